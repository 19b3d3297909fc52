"""A job for verl: ``train.parquet`` (its rows), ``config.yaml`` (its keys), ``reward.py`` and ``README.txt`` (what is
missing). Each names the version of verl that it is for.

Nothing of this machine goes along: no paths, no addresses, no options of environments.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from training.config import JobConfig, Stage
from training.data.making.conversion import Converted, ConvertOptions, convert
from training.data.reader import read_records
from training.errors import ConfigError
from training.exports.verl_options import REWARD_NAME, TRAIN_NAME, VERL, passed_through, translated, tree_of
from training.exports.verl_reward import reward_text
from training.rows import answer_of

CONFIG_NAME, README_NAME = "config.yaml", "README.txt"
HEAD = f"# Made by Tiltyard: overrides of the ppo_trainer.yaml of verl {VERL}, which they were checked against.\n"
MEGATRON_HEAD = HEAD.replace("ppo_trainer", "ppo_megatron_trainer")
_PRIVATE = {"environment.url", "environment.options", "environment.replicas", "rewards.components"}
"""Options whose values may name machines or hold secrets; components are named without their parameters."""


def export_verl(config: JobConfig, rows: Path, output: Path, *, name: str = "", about: str = "") -> list[str]:
    """Write the four files into ``output``, which must exist; their names. ``about`` is a sentence for the readme.

    Raises ``ConfigError`` for a job that verl cannot run and ``DataError`` when ``rows`` cannot be read.
    """
    if config.method.learns_from != "rollouts":
        raise ConfigError("only jobs that learn from rollouts can be exported for verl", option="kind")
    done = convert(
        rows, ConvertOptions(output=output / TRAIN_NAME, to="verl", max_samples=config.data.max_rows or None)
    )
    (output / CONFIG_NAME).write_text(verl_yaml(config, name), encoding="utf-8")
    answered = _answered(rows, config.data.max_rows)
    (output / REWARD_NAME).write_text(reward_text(unanswered=answered.without), encoding="utf-8")
    (output / README_NAME).write_text(_readme(config, done, about, answered), encoding="utf-8")
    return [TRAIN_NAME, CONFIG_NAME, REWARD_NAME, README_NAME]


class _Answered(NamedTuple):
    """How many rows have a short right answer, and how many have none."""

    rows: int
    without: int


def _answered(rows: Path, limit: int) -> _Answered:
    found = [bool(answer_of(record.row.task())) for record in islice(read_records(rows), limit or None) if record.row]
    return _Answered(len(found), found.count(False))


def export_stages(
    config: JobConfig, courses: Sequence[JobConfig], rows: Sequence[Path], output: Path, *, name: str = ""
) -> list[str]:
    """A job for verl for each stage of ``config``, in a folder of its own: verl runs them one after the other.

    ``courses`` are the jobs of the stages, ``rows`` what each is trained on. Returns and raises as ``export_verl``.
    """
    found, began, run = [], 0, name or "run"
    for number, (stage, course, own) in enumerate(zip(config.stages, courses, rows, strict=True), start=1):
        folder = output / f"stage-{number}"
        folder.mkdir(exist_ok=True)
        ends = stage.until_step or config.run.max_steps
        alone = course.model_copy(update={"run": course.run.model_copy(update={"max_steps": max(1, ends - began)})})
        about = _about(stage, number, len(courses))
        found += [
            f"{folder.name}/{each}"
            for each in export_verl(alone, own, folder, name=f"{run}-stage-{number}", about=about)
        ]
        began = stage.until_step or began
    return found


def export_parts(
    config: JobConfig, courses: Sequence[JobConfig], rows: Sequence[Path], output: Path, *, name: str = ""
) -> list[str]:
    """A job for verl for each part of a mix, in a folder of its own, with a word on the mix, which is not carried over.

    ``courses`` are the jobs of the parts, ``rows`` what each is trained on. Returns and raises as ``export_verl``.
    """
    found, parts = [], config.mix.parts
    for number, (part, course, own) in enumerate(zip(parts, courses, rows, strict=True), start=1):
        folder = output / f"part-{number}"
        folder.mkdir(exist_ok=True)
        about = (
            f"Part {number} of {len(parts)} of a mix: {_one_line(part.name)}, weight {part.weight:g}.\n"
            "mix.parts is not carried over: verl plays one environment. This is a run of the part alone."
        )
        names = export_verl(course, own, folder, name=f"{name or 'run'}-part-{number}", about=about)
        found += [f"{folder.name}/{each}" for each in names]
    return found


def _about(stage: Stage, number: int, of: int) -> str:
    lines = [f"Stage {number} of {of}: {_one_line(stage.name)}."]
    if number > 1:
        lines.append(f"It begins with the model that stage {number - 1} leaves: set actor_rollout_ref.model.path.")
    if stage.until is not None:
        goal = f"{stage.until.figure} of held-out tasks is at least {stage.until.at_least:g}"
        lines.append(f"It ends once {goal} in {stage.until.times} evaluations in a row; verl knows no such end.")
    return "\n".join(lines)


def verl_yaml(config: JobConfig, name: str = "") -> str:
    """verl's overrides; what cannot be carried over becomes comments there."""
    keys, missing = translated(config)
    keys |= {"trainer.project_name": "tiltyard", "trainer.experiment_name": name or "run"}
    text = yaml.safe_dump(tree_of(passed_through(config, keys)), sort_keys=True, allow_unicode=True)
    lines = [f"# {line}\n" for line in _missing(config, missing)]
    return "".join([head_of(config), text, "\n# Not carried over:\n", *lines])


def head_of(config: JobConfig) -> str:
    """The first line of verl's overrides: the tree that they are for."""
    return MEGATRON_HEAD if config.by_verl and config.hardware.sharding == "megatron" else HEAD


def _missing(config: JobConfig, missing: dict[str, str]) -> list[str]:
    lines = []
    for option, why in missing.items():
        group, _, name = option.partition(".")
        value = getattr(getattr(config, group), name)
        lines.append(
            f"{option}: {why}"
            if option in _PRIVATE or option == "model.source"
            else f"{option} = {_one_line(value)}: {why}"
        )
    for component in config.rewards.components:
        lines.append(f"reward component {component.name} ({component.registered}), weight {component.weight:g}")
    return lines


def _one_line(value: Any) -> str:
    return "".join(letter if letter.isprintable() else " " for letter in str(value))[:120] or "(none)"


def _rewarded(config: JobConfig, answered: _Answered) -> list[str]:
    """Lines on the job's reward in verl; the first of all where it has none."""
    if not answered.without:
        return [f"{REWARD_NAME}: 1 where the answer is the row's right one, else 0. Nothing else is paid for."]
    plays = f" The environment {config.environment.name} judged it here." if config.environment.name else ""
    return [
        f"THIS JOB CANNOT RUN AS IT IS: {answered.without} of {answered.rows} rows have no right answer, so verl has",
        f"no reward for them, and it plays no environments.{plays} Write their reward in {REWARD_NAME}, which stops",
        "the job until then.",
    ]


def _readme(config: JobConfig, done: Converted, about: str, answered: _Answered) -> str:
    _keys, missing = translated(config)
    tree = "ppo_trainer" if head_of(config) == HEAD else "ppo_megatron_trainer"
    lines = [
        f"A job of Tiltyard for verl {VERL}, whose keys it was checked against; other versions may have others.",
        "",
        *([about, ""] if about else []),
        *_rewarded(config, answered),
        "",
        f"{TRAIN_NAME}: {done.rows} rows of {done.rows_in}; {done.bad_rows} could not be read and were left out.",
        *(f"{TRAIN_NAME} has no place for {name} of {count} rows." for name, count in done.lost.items()),
        f"{CONFIG_NAME}: overrides of its {tree}.yaml. data.val_files names the training rows and no",
        "validation is run; name other rows there if you have them.",
        "",
        "  python -m verl.trainer.main_ppo --config-path=$PWD --config-name=config",
        "",
        f"needs `defaults: [{tree}, _self_]` and verl's own config folder on hydra's search path; or pass the",
        f"keys of {CONFIG_NAME} on the command line.",
        "",
        f"Not carried over ({len(missing)} options):",
        *(f"- {line}" for line in _missing(config, missing)),
    ]
    return "\n".join(lines) + "\n"
