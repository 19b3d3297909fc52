"""The default score of a job that names no reward: whether the task was done, where that is known, and form after it.

It is known where an environment gives verdicts, or where each row has its right answer. Else form alone is paid,
which says nothing of success, and the user who launches is warned.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

from training.config import JobConfig, RewardComponent
from training.config.environment import Protocol
from training.config.parts import Laid
from training.data.reader import load_rows
from training.errors import TiltyardError
from training.rewards.scoring import form_components, starting_components
from training.rows import TRUTH_FIELDS, answer_of, row_value

L = TypeVar("L", bound=Laid)
SAMPLED = 200
"""Rows that are looked at."""
WITH_VERDICT: frozenset[Protocol] = frozenset({"openenv", "openenv-mcp", "openenv-text", "agentgym"})
"""Protocols whose answers carry a reward. MCP and StableToolBench's ``/virtual`` know none."""
_NO_TASK = frozenset({"messages", "conversation", "conversations", "tools", "id", "index", "source"})
"""Fields of a row by which no answer can be judged."""


class Default(NamedTuple):
    """The components, and what decides whether a task was done: the environment, the rows' answers, or nothing."""

    components: list[RewardComponent]
    told_by: Literal["environment", "answers", ""]


def default_rewards(config: JobConfig) -> Default:
    """The default reward of this job, or of a stage's, where it names no components.

    A row with nothing but a conversation cannot be judged by a server of ours, which reads the criterion from it. Where
    the rows cannot be read, the environment alone decides; the player says what is wrong with them.
    """
    rows = _rows(config)
    if config.environment.url or config.environment.name:
        bare = bool(rows) and config.environment.protocol == "openenv" and not any(set(row) - _NO_TASK for row in rows)
        if config.environment.protocol in WITH_VERDICT and not bare:
            return Default(starting_components(), "environment")
    for field in TRUTH_FIELDS:
        if rows and all(_answered(row, field) for row in rows):
            judge = RewardComponent(name="math_answer", weight=0.6, params={"truth_field": field})
            return Default(starting_components(judge), "answers")
    return Default(form_components(), "")


def with_rewards(config: JobConfig) -> JobConfig:
    """The job with components in place of none, of each stage or part too; the same one where none are lacking."""
    if not config.method.plays or all(course.rewards.components for course in [config, *config.courses]):
        return config
    filled = config.model_copy(deep=True)
    filled.rewards.components = config.rewards.components or default_rewards(config).components
    for number, stage in enumerate(filled.stages):
        course = config.stage(number + 1)
        found = course.rewards.components or default_rewards(course).components
        if not course.rewards.components and found != filled.rewards.components:
            filled.curriculum.stages[number] = _part_with(stage, found)
    for number, part in enumerate(filled.mix.parts):
        course = config.part(number + 1)
        found = course.rewards.components or default_rewards(course).components
        if not course.rewards.components and found != filled.rewards.components:
            filled.mix.parts[number] = _part_with(part, found)
    return filled


def said(config: JobConfig) -> str:
    """One line for the log of a job that named no components: what it is scored by instead."""
    reasons = {
        "environment": "the environment says whether a task was done",
        "answers": "the rows have the right answers",
        "": "nothing tells whether a task was done, so form alone is paid",
    }
    found = default_rewards(config)
    parts = ", ".join(f"{part.name} × {part.weight:g}" for part in found.components)
    return f"No reward was chosen. Scored by {parts}: {reasons[found.told_by]}."


def _part_with(part: L, components: Sequence[RewardComponent]) -> L:
    """A stage or a part of a mix with components of its own."""
    own = [item.model_dump(mode="json", exclude_defaults=True) for item in components]
    rewards = part.options.get("rewards", {})
    return part.model_copy(update={"rewards": rewards | {"spec": "", "components": own}})


def _rows(config: JobConfig) -> list[dict[str, Any]]:
    if config.draws_tasks or not config.data.train:
        return []
    try:
        return [row.task() for row in load_rows(Path(config.data.train), SAMPLED)]
    except (TiltyardError, OSError):
        return []


def _answered(row: dict[str, Any], field: str) -> bool:
    """Whether the row has a short right answer just there."""
    value = row_value(row, field)
    return value is not None and bool(answer_of({"answer": value}))
