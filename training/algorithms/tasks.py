"""What is played and what it is scored by: the same for jobs that train on rollouts and for jobs that only sample."""

from __future__ import annotations

from pathlib import Path

from training.algorithms.job import Job
from training.config import JobConfig, RewardComponent
from training.data.reader import load_rows
from training.data.schema import Row
from training.errors import ConfigError, DataError, TemplateError
from training.evaluation.tasks import DRAWN_TASKS
from training.rewards.custom import refuse_custom
from training.rewards.registry import components_of, form_components, require_one_meaning
from training.rewards.scoring import validate_components
from training.rollout.tokens import Template


def reward_components(config: JobConfig) -> list[RewardComponent]:
    """The configured components or the default ones. Raises ``ConfigError`` when one is unknown or wrong."""
    parts = config.courses if config.mix.parts else [config]
    for number, part in enumerate(parts):
        components = part.rewards.components or form_components()
        refuse_custom(components)
        if problems := validate_components(components):
            raise ConfigError(problems[0], option=f"{_below(config, number)}rewards.components")
    require_one_meaning(config)
    return components_of(parts)


def _below(config: JobConfig, number: int) -> str:
    return f"mix.parts.{number}." if config.mix.parts else ""


def task_rows(config: JobConfig) -> list[Row]:
    """The rows to play. Without a dataset a job that only samples gets empty ones: the environment draws its tasks."""
    if config.draws_tasks:
        drawn = config.evaluate.tasks or DRAWN_TASKS
        count = drawn if config.method.evaluates else config.rollout.prompts_per_step * config.run.max_steps
        return [Row(messages=[]) for _ in range(count)]
    if not config.data.train:
        raise ConfigError("a run needs a dataset.", option="data.train", hint="Set data.train to a JSONL file.")
    return load_rows(Path(config.data.train), config.data.max_rows)


def playable(job: Job, rows: list[Row], template: Template) -> list[int]:
    """Places of the rows that can be played; what is left out is logged. Raises ``DataError`` when none can."""
    kept = short_prompts(rows, template, job.config.rollout.max_prompt_tokens)
    if dropped := len(rows) - len(kept):
        job.log(f"{dropped} rows are left out: their prompts exceed rollout.max_prompt_tokens.", "warning")
    return kept


def short_prompts(rows: list[Row], template: Template, limit: int) -> list[int]:
    """Indices of the rows whose own prompt fits. Tools that come from the environment are counted at play.

    Raises ``DataError`` when none fits.
    """
    kept: list[int] = []
    for index, row in enumerate(rows):
        # A token is at least one byte of text, so short texts need not be tokenised to know that they fit.
        size = sum(len(message.content.encode()) + 32 for message in row.messages)
        try:
            fits = (size < limit and not row.tools) or len(template.prompt_ids(row.messages, row.tools)) <= limit
        except TemplateError:
            fits = False
        if fits:
            kept.append(index)
    if not kept:
        raise DataError("No row fits rollout.max_prompt_tokens.", hint="Raise the limit or shorten the rows.")
    return kept
