"""Checks before a launch: what would make the run fail in its first minute, found in seconds.

Nothing here imports torch or TRL, except the template check of a model that is already on disk, which loads its
tokenizer. Each check is independent: one that fails does not hide the next.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pydantic import BaseModel

from training.config import JobConfig
from training.errors import ConfigError, DataError, ModelError, TiltyardError
from training.model_check import check_model_folder

SAMPLE_ROWS = 1000


class Check(BaseModel):
    """The outcome of one check, as forms and ``preflight --json`` show it."""

    check: str
    ok: bool
    message: str
    hint: str = ""


def preflight(config: JobConfig, *, load_template: bool = True) -> list[Check]:
    """All checks of a job in the order of its config. Never raises for what it checks.

    ``load_template`` False leaves out the template check, which takes seconds to import transformers.
    """
    checks: list[tuple[str, Callable[[JobConfig], str]]] = [("model", _model), ("dataset", _dataset)]
    if config.kind == "grpo":
        checks += [("environment", _environment), ("slots", _slots), ("rewards", _rewards)]
    checks.append(("batch", _batch))
    if load_template and _local_folder(config) is not None:
        checks.append(("template", _template))
    return [_run(name, check, config) for name, check in checks]


def _run(name: str, check: Callable[[JobConfig], str], config: JobConfig) -> Check:
    try:
        return Check(check=name, ok=True, message=check(config))
    except TiltyardError as error:
        return Check(check=name, ok=False, message=error.message, hint=error.hint)


def _local_folder(config: JobConfig) -> Path | None:
    folder = Path(config.model.source).expanduser()
    return folder if config.model.source != "starter" and folder.is_dir() else None


def _model(config: JobConfig) -> str:
    source = config.model.source
    if source == "starter":
        if config.kind == "grpo":
            return "A new tiny model that knows nothing yet: GRPO can hardly teach it. Train it by SFT first."
        return "A tiny model is built from the dataset's own words."
    folder = _local_folder(config)
    if folder is None:
        if source.startswith((".", "/", "~")) or source.count("/") != 1:
            raise ModelError(f"There is no model folder {source}.", hint="Fix model.source.")
        return f"{source} is fetched from Hugging Face when the run starts."
    facts = check_model_folder(folder)
    name = facts.architecture or facts.model_type or "a model"
    return f"{name} with {facts.parameters:,} parameters, safe to open."


def _dataset(config: JobConfig) -> str:
    from training.data.reader import load_rows

    if not config.data.train:
        raise DataError("No dataset is chosen.", hint="Set data.train.")
    limit = min(config.data.max_rows or SAMPLE_ROWS, SAMPLE_ROWS)
    rows = load_rows(Path(config.data.train), limit)
    if config.kind == "sft" and not any(m.role == "assistant" for row in rows for m in row.messages):
        raise DataError(
            "The first rows hold no assistant turn, so there is nothing to imitate.",
            hint="Choose a dataset of dialogues.",
        )
    more = " or more" if len(rows) == SAMPLE_ROWS else ""
    return f"{len(rows)}{more} rows are readable."


def _environment(config: JobConfig) -> str:
    from training.rollout.client import check_health

    if not config.environment.url:
        if config.environment.name:
            raise ConfigError(
                f"The environment '{config.environment.name}' has no address.", hint="Set environment.url, or start it."
            )
        return "No environment: each rollout is one turn, judged by the rewards alone."
    health = check_health(config.environment)
    return f"{health.name} {health.version} is {health.status}."


def _slots(config: JobConfig) -> str:
    from training.rollout.client import check_health

    needed = config.rollouts_per_step
    if not config.environment.url:
        return "No environment, so no slots are needed."
    health = check_health(config.environment)
    free = health.slots - health.sessions
    if free < needed:
        raise ConfigError(
            f"{needed} rollouts run at once, but the environment has {free} of {health.slots} slots free.",
            hint="Start it with more --slots, or lower rollout.prompts_per_step.",
        )
    return f"{free} free slots for {needed} rollouts."


def _rewards(config: JobConfig) -> str:
    from training.rewards.registry import default_components
    from training.rewards.scoring import validate_components

    components = config.rewards.components or default_components()
    problems = validate_components(components)
    if problems:
        raise ConfigError(" ".join(problems), hint="Fix rewards.components.")
    return ", ".join(f"{component.name} × {component.weight:g}" for component in components)


def _batch(config: JobConfig) -> str:
    micro = config.optim.micro_batch_size
    whole = config.sft.batch_size if config.kind == "sft" else config.rollouts_per_step
    if micro and whole % micro:
        raise ConfigError(
            f"{whole} rows of a step cannot be divided into micro batches of {micro}.",
            hint="Fix optim.micro_batch_size.",
        )
    return f"{whole} rows a step in {whole // micro if micro else 1} micro batches."


def _template(config: JobConfig) -> str:
    folder = _local_folder(config)
    if folder is None:
        raise ModelError("There is no model folder.", hint="Fix model.source.")
    check_model_folder(folder)  # the tokenizer's files are as hostile as the weights until checked
    from training.algorithms.loading import load_tokenizer

    _, note = load_tokenizer(folder)
    return note or "The chat template keeps earlier turns as they were."
