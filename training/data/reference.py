"""Makes docs/data.md from the code's own descriptions: `python -m training data docs`; a test keeps it current."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from enum import Enum
from typing import Any

from pydantic import BaseModel

from training.data import options, problems
from training.data.files.sources import MAX_MEMBERS, MAX_UNPACKED_BYTES, RATIO
from training.data.formats import FORMATS
from training.data.learned import LABELS, NOT_LEARNED, ROW_WEIGHTS, WEIGHTS
from training.data.making.conversion import ConvertOptions, writers
from training.data.problems import PROBLEMS
from training.data.schema import Row
from training.plain import REASONING

_INTRODUCTION = """# Datasets

Made from `training/data/` by `python -m training data docs`.

A file is JSON Lines, a JSON list, JSON objects one after the other, an object with its rows under `data`, CSV or
parquet; its first bytes say which, never its name. A table that is not UTF-8 is read as GB18030 (GBK) where that gives
mostly common Chinese characters. A gzip file, a zip archive or a folder is one dataset. Its data files are read in the
order of their names. Where it has parts (train, test), only the part for training is read, and the report names the
other files.

The format of the rows is recognised from the first {sample} of them and shown with the reason; another can be chosen,
and the columns of a table can be mapped. Every row is kept or listed as bad with its line and a reason. Every column is
in the conversation, kept with its row, or listed as ignored with a count: NaN, bytes, decimals, dates and deep nesting
cannot be stored; a row that is complete without them is kept. Two rows are duplicates where messages, tools and all
fields are equal. Fields that only name or sort a row do not count ({names}). A file of a recorded run is no dataset: it
is refused, and the page has a link to *Import a run*.

```
python -m training data preview --input FILE
python -m training data check --input FILE --output-dir FOLDER
python -m training data convert --input toolllama_G123_dfs_eval.json --split \\
    --train_output train.parquet --val_output val.parquet --train_ratio 0.9 --max_samples 100
```

The last one does what ToolBench's converter does: the same columns, the same shuffle. `--to` writes another format,
`--cut query` and `--cut last_turn` cut data of step prefixes. A folder, an archive, or the id of a dataset on Hugging
Face may replace the file; `check` takes several files. What a format has no place for is counted under `lost`: each
written row is read back and compared.
"""
_BROWSER = """
## In the browser

The form takes several files of one format (at most 40: JSON Lines, JSON, CSV, TSV or Parquet, also gzipped) as one
dataset: they are packed as the zip archive that the check reads anyway, in the natural order of their names. Files of
several formats, and the parts of a benchmark (`train`, `test`), are refused with the reason.

An upload is checked at once where its rows show its format. A table needs its columns mapped, and a file of an unknown
format needs a choice: both wait for you (state *Format not recognised*). So does every upload when "Show the first rows
before checking" is ticked. The page *How to read it* shows the format with its evidence, maps
columns, cuts conversations, and shows after every change the first {shown} rows as they would come out, and what among
the first {looked} rows would be left out. That look runs in a process of its own with {cpu} s of processor time.

*Change how it is read* reads the same upload again. A version that was never ready (it waits for a choice, has bad
rows, or was rejected) is replaced: nothing has used it. A ready version never changes, so the file becomes the next
version of that name.

Files that are read with a dataset (BFCL's answers and function documents, StableToolBench's query ids) are uploaded
with it, or chosen from the project's other uploads. `POST /api/v1/projects/<slug>/datasets` takes the
same: the multipart fields `reading` and `checking` hold the options below as JSON, `answers`, `documents` and `ids`
files, and `look`. `answers`, `ids` and the check's `other` may also be `dataset:<name>@<version>`. `model` is
`model:<name>`: its tokenizer counts the tokens.

*Quality* plots lengths, turns, tools, categories, languages, roles, duplicates and what was found. *Rows to fix*
lists each bad row and remark with its line, its sentence and a suggestion, by code, and as a CSV file. Each row of the
file is either kept or listed there. Beyond {remarks:,} remarks only bad rows are listed.

For a dataset of Hugging Face, give its id, its revision and a part of the file's name. A worker fetches the file from
`TILTYARD_HUB_URL` under the outbound policy, which checks each redirect, and then checks it like any upload.

The page of a dataset that is ready offers *Derive…*: split (two datasets, train and validation), take a subset (the
first rows, a draw, or rows by their ids), filter (up to four rules, with a count of the rows they keep), mix with up to
four others by weight, and cut conversations. What is made is a new version under its own name: its file is written from
the checked rows of its parents, each row copied byte for byte, and checked like an upload. Parents stay as they are.

Each version shows its lineage: the operation and its options, the versions that it was made of (with their content
hashes and the number of rows from each), and the versions that were made of it. Uploads, rows added by hand and
datasets written by an environment are marked as such.

*Download* writes a version in any format above, whole or as two parts in a zip; `verl_toolbench` with *two parts* is
what ToolBench's converter writes. Rows that a format cannot hold are counted, with the reason of the first. Fields
that it has no place for are counted too. The API has the same:
`POST /api/v1/datasets/ID/make` and `/exports` (its schema is at `/api/v1/openapi.json`).
"""
_ROW = """
## A row

| field | meaning |
|---|---|
"""
_LEARNED = """
## What is learned

SFT learns what the assistant wrote; DPO compares the turns of two answers by the same rule. The check's report counts
the rows with such marks, and a run's log counts the rows and turns that it left out.

- A turn is not learned where its message says so by 0 or false under {weights}. The model reads it, and its tokens have
  no part in the loss. A weight is a switch: above 0 the turn counts in full. A `mask` changes nothing, because programs
  disagree on what it means.
- A whole row is not learned where it says so under {row_weights}, or where {labels} is false (a bad example of KTO).
- Reasoning is read from the first of {reasoning} that has text. It is learned as the chat template writes it.
  Where the template leaves it out, the log says of how many rows.
- The text before a turn is the one that a rollout has there. Where that text opens a thought (DeepSeek, Nemotron,
  Qwen 3.5), the turn continues with the row's reasoning and closes the thought, also where the template would not.
- A row whose tool calls the chat template leaves out is not learned: the model would learn to say nothing there.
- The rejected answer of a pair is never imitated.

Rows that SFT leaves out are:

{reasons}"""
_MODELS: tuple[tuple[str, type[BaseModel]], ...] = (
    ("Reading", options.ReadOptions),
    ("Mapped columns", options.ColumnMapping),
    ("Checking", options.CheckOptions),
    ("Converting", ConvertOptions),
    ("Splitting", options.SplitOptions),
    ("Taking a subset", options.SubsetOptions),
    ("Taking rows by id", options.PickOptions),
    ("Filtering: one rule", options.FilterRule),
    ("Mixing", options.MixOptions),
)


def reference() -> str:
    """The page as Markdown."""
    from training.data.checking.check import LOOKED_AT_ROWS, ROWS_SHOWN
    from training.data.checking.checks import NAMES
    from training.data.files.containers import SAMPLE_ROWS

    browser = _BROWSER.format(
        shown=ROWS_SHOWN, looked=LOOKED_AT_ROWS, cpu=problems.PREVIEW_LIMITS.cpu_s, remarks=problems.MAX_REMARKS_WRITTEN
    )
    parts = [
        _INTRODUCTION.format(sample=SAMPLE_ROWS, names=", ".join(f"`{name}`" for name in sorted(NAMES))),
        browser,
        _ROW,
        *_fields(),
        _learned(),
        _formats(),
        _cuts(),
    ]
    parts += [_model(title, model) for title, model in _MODELS]
    return "".join([*parts, _codes(), _limits()])


def _fields() -> list[str]:
    return [
        f"| `{name}` | {field.description} |\n"
        for name, field in Row.model_fields.items()
        if name in ("messages", "tools", "extra")
    ]


def _learned() -> str:
    def names(fields: Iterable[str]) -> str:
        return ", ".join(f"`{name}`" for name in fields)

    reasons = "".join(f"- {words}\n" for words in NOT_LEARNED.values())
    return _LEARNED.format(
        weights=names(WEIGHTS),
        row_weights=names(ROW_WEIGHTS),
        labels=names(LABELS),
        reasoning=names(REASONING),
        reasons=reasons,
    )


def _formats() -> str:
    lines = ["\n## Formats\n\n| name | rows | what is learned | written |\n|---|---|---|---|\n"]
    for each in FORMATS.values():
        own = f"yes, as {each.written_as}" if each.write else "no"
        example = each.example.replace("|", "\\|")
        lines.append(f"| `{each.name}` | **{each.title}.** {each.about} `` {example} `` | {each.learned} | {own} |\n")
    rest = ", ".join(f"`{name}`" for name in writers() if name not in FORMATS)
    return "".join(lines) + f"\nAlso written: {rest}.\n"


def _cuts() -> str:
    lines = "".join(f"| `{cut.value}` | {words} |\n" for cut, words in options.CUT_WORDS.items())
    return f"\n## Cutting\n\n| cut | what it does |\n|---|---|\n{lines}"


def _model(title: str, model: type[BaseModel]) -> str:
    lines = [f"\n## {title}\n\n{inspect.getdoc(model)}\n\n| option | default | what it does |\n|---|---|---|\n"]
    for name, field in model.model_fields.items():
        default = "–" if field.is_required() else _shown(field.get_default(call_default_factory=True))
        lines.append(f"| `{name}` | {default} | {field.description} |\n")
    return "".join(lines)


def _shown(value: Any) -> str:
    if isinstance(value, Enum):
        value = value.value
    return "–" if value in (None, "", []) or isinstance(value, BaseModel) else f"`{value}`"


def _codes() -> str:
    lines = ["\n## Codes\n\nA row with a problem is left out; a remark is about a row that is kept.\n\n"]
    lines.append("| code | | sentence | suggestion |\n|---|---|---|---|\n")
    for code, problem in PROBLEMS.items():
        weight = "problem" if problem.drops else "remark"
        lines.append(f"| `{code}` | {weight} | {problem.template.replace('<', '&lt;')} | {problem.suggestion} |\n")
    return "".join(lines)


def _limits() -> str:
    return (
        "\n## Limits\n\n"
        f"A row has at most {problems.MAX_LINE_BYTES >> 20} MB, a text {problems.MAX_FIELD_BYTES >> 20} MB, "
        f"{problems.MAX_DEPTH} levels and {problems.MAX_COLUMNS} columns. A file has at most "
        f"{problems.CheckLimits.max_rows:,} rows, and a parquet file decodes to at most "
        f"{problems.PARQUET_DECODED_BYTES >> 30} GB and {problems.PARQUET_RATIO} times its size. "
        f"An archive unpacks to at most {MAX_UNPACKED_BYTES >> 30} GB and {RATIO} times its size, from "
        f"{MAX_MEMBERS:,} files. "
        f"Duplicates and shared tasks are looked for among the first {problems.MAX_HASHES:,} rows.\n"
    )
