"""Makes docs/imports.md from the code: `python -m training import --docs`; a test keeps it current."""

from __future__ import annotations

from training.data.files.sources import MAX_MEMBERS, RATIO
from training.data.problems import MAX_COLUMNS, MAX_DEPTH, MAX_LINE_BYTES, CheckLimits
from training.exports.verl_options import OPTIONS, SKIPPED, VERL, translated
from training.imports.axis import STEPS
from training.imports.read import MAX_POINTS, MAX_ROLLOUTS
from training.imports.recorder import COUNTERS, METRICS, PREFIX
from training.imports.report import READERS
from training.imports.rollouts import EXPECTED, FIRST, GROUP_KEYS

_IN_A_CELL = str.maketrans({"|": r"\|"})
_INTRODUCTION = """# Runs from elsewhere, and ours to verl

Made from `training/imports/` and `training/exports/` by `python -m training import --docs`.

"Import a run" on the list of runs takes the files of one run, packed with gzip or as a zip archive where that is handy:
a log and rollouts together give curves and transcripts. `tiltyard run import train.log rollouts/*.jsonl` does the same
from a terminal, `POST /api/v1/projects/<project>/runs/import` from a script. Without the web:

```
python -m training import --input train.log rollouts/*.jsonl --output FOLDER
python manage.py import_run FOLDER --project my-project
```

A file is recognised by its content and never by its name. The same files are imported once.

## What is read

| file | of | what becomes of it |
|---|---|---|
"""
_ROLLOUTS = """
## Rollouts

- Texts are split into turns at the marks of ChatML and Llama 3, or at lines that are nothing but a role where the
  prompt begins and ends with one (verl leaves special tokens out). Otherwise: one question, one answer.
- Calls in `<tool_call>` tags are shown as calls.
- Rollouts of one step with the same {keys}, or else with the same input, are a group. Advantages are those of the file,
  or are computed as in a run of ours: `(r - mean) / (std + 1e-4)`.
- Without such an id a prompt that a step draws twice has twice as many rollouts as the others: they are split, in the
  order of their rows, into groups as large as the others of the step. Where that does not come out even they stay one
  group, and the report says how large it is.
- Rollouts that name no step take the number at the end of the file's name, or are those of step {first}.
- The answer that was wanted ({expected}) is on the page of the rollout; reasoning is in its turn, marked as such.
- Numbers next to the score are parts. Their means are curves `rewards/<part>/mean`, or `rollouts/<part>/mean` where the
  name ends in {counters}. Texts have no place and are named in the report.
- TRL records each reward as it was, and its run summed them by `reward_weights`. The weights are taken from the run's
  config (YAML, JSON, Weights & Biases' `config.yaml`) given with the files, or from `--reward-weights 1.0,0.5`; the
  first parts are those of the weights, others are not summed. Without weights every part counts 1, and the report says
  in how many groups the advantages of the file contradict that.
- A reward that is empty or NaN is missing, never 0. A rollout without a reward is excluded.
- Figures of a step that no file gives (`reward`, `reward_std`, parts, `groups/zero_variance_share`,
  `rollouts/excluded`, `rollouts/turns_mean`) are computed from its rollouts.

## Metrics

Every metric keeps its name. Those that mean the same as one of ours have a curve under that name too; where two of
theirs do, the first of the line counts. Names with `_` for `/` are known as well, and `{prefix}` before one of ours.

| ours | theirs |
|---|---|
"""
_LIMITS = """
A figure that is NaN or infinite stays what it is: a gap in its curve with a mark, counted in the report. Cells that are
empty are no figures.

## Steps of tables

One column numbers the steps of all tables of an import: of {steps} the first that places the most rows, whatever their
order. A row without it is placed by the rows that have both columns, at the last step before it: an evaluation that
only has Weights & Biases' `_step` is put at the `train/global_step` logged before. The report says so. Rows are put in
order of their steps, other counters and times; of two figures of a step the later one counts.

A column is a metric where most of its cells are numbers. Numbers may have decimal commas where none has a point. Of a
chart of several runs of Weights & Biases (`<run> - <metric>`), and of a database with several, one is read: *Run in the
file* of the form, `source_run` of the API, `--run NAME` on the command lines.

Weights & Biases' `.wandb` files and summaries, results of ToolEval, BFCL and the LM Evaluation Harness, and other
SQLite databases are refused by their names.

## Limits

A row that cannot be used is listed with its file, its line and a reason, and all others are kept: longer than {line}
MB, not UTF-8, NUL, half a surrogate pair, nested deeper than {depth} levels, a key twice, more than {columns} columns,
no step. At most {rows} rows, {rollouts} rollouts and {points} figures; an archive has at most {members} files and
unpacks to at most {ratio} times its size. Files from the web are read by a child process
with limits of memory, time and open files.
"""
_EXPORT = f"""
## A run of ours for verl

"For verl" on a run's config, or `python -m training export-verl config.yaml --output FOLDER`, writes `train.parquet`,
`config.yaml` (overrides of verl's `ppo_trainer.yaml`), `reward.py` and `README.txt`. What cannot be carried over
becomes a comment with its reason in both texts; addresses, paths and the options of environments never go along. A run
with stages gives a folder with these files for each stage, to be run one after the other.

Keys and reasons are those of verl {VERL}, whose config tree a slow test holds them against; the files say so too. That
version has tools, written in Python, and no environments or interactions. So what a run there is rewarded by is
`reward.py` alone: the rows' right answers. Where some rows have none, as those that an environment of ours judges, the
job cannot run as it is: the readme begins with that, and `reward.py` stops the job by name until it is written.

| option | in verl {VERL} |
|---|---|
"""


def reference() -> str:
    """The page as Markdown."""
    parts = [_INTRODUCTION]
    parts += [f"| {each.title} | {each.tool or 'any'} | {each.about.translate(_IN_A_CELL)} |\n" for each in READERS]
    keys = " or ".join(f"`{name}`" for name in GROUP_KEYS)
    counters = ", ".join(f"`{name}`" for name in COUNTERS)
    expected = _names(EXPECTED)
    parts.append(_ROLLOUTS.format(keys=keys, counters=counters, prefix=PREFIX, first=FIRST, expected=expected))
    parts += [f"| `{ours}` | {_names(theirs)} |\n" for ours, theirs in METRICS.items()]
    parts.append(
        _LIMITS.format(
            steps=_names(STEPS),
            line=MAX_LINE_BYTES >> 20,
            depth=MAX_DEPTH,
            columns=MAX_COLUMNS,
            rows=f"{CheckLimits.max_rows:,}",
            rollouts=f"{MAX_ROLLOUTS:,}",
            points=f"{MAX_POINTS:,}",
            members=f"{MAX_MEMBERS:,}",
            ratio=RATIO,
        )
    )
    return "".join([*parts, _EXPORT, *_options()])


def _names(names: tuple[str, ...]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _options() -> list[str]:
    from training.config import JobConfig

    config = JobConfig()
    lines = []
    for option, carry in OPTIONS.items():
        group, _, name = option.partition(".")
        carried = carry(getattr(getattr(config, group), name))
        lines.append(f"| `{option}` | {_names(tuple(carried.keys)) or carried.why or 'only where it is set'} |\n")
    fixed = sorted(set(translated(config)[0]) - {key for carry in OPTIONS for key in _keys(config, carry)})
    return [*lines, f"\nAlso written: {_names(tuple(fixed))}. Left out: {_names(SKIPPED)}.\n"]


def _keys(config: object, option: str) -> list[str]:
    group, _, name = option.partition(".")
    return [*OPTIONS[option](getattr(getattr(config, group), name)).keys]
