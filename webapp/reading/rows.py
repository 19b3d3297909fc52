"""The task behind a rollout: its row of the dataset, and the row's expected answer."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

from training.config import JobConfig, RewardComponent
from training.rows import row_value
from webapp.datasets.models import Dataset
from webapp.datasets.rows import row_of
from webapp.runs.rollouts.models import Rollout

EXPECTED_FIELDS = (
    "answer",
    "expected_answer",
    "expected",
    "ground_truth",
    "reward_model.ground_truth",
    "extra_info.answer",
    "possible_answer",
    "solution",
    "final_answer",
    "target",
    "verifier",
)
"""The usual fields of an expected answer; fields that the run's components read come before them."""
SHOWN_CHARS = 4_000


class Expected(NamedTuple):
    """A field of the row and what it says; ``value`` is JSON, ``text`` the same as text, cut where it is long."""

    field: str
    value: Any
    text: str


class TaskRow(NamedTuple):
    """The row that a rollout played. ``number`` counts from 1, as pages of datasets do; ``row`` is empty where the file
    is gone."""

    dataset: Dataset
    number: int
    row: dict[str, Any]
    expected: list[Expected]


def dataset_of(rollout: Rollout, config: JobConfig | None) -> Dataset | None:
    """The dataset whose row was played, if it is one of the project's: no other path is read."""
    if config is None or rollout.row is None:
        return None
    held_out = config.evaluate.data if rollout.held_out else ""
    path = Path(held_out or config.data.train)
    try:
        found = Dataset.objects.filter(pk=UUID(path.parent.name), project=rollout.run.project_id).first()
    except ValueError:
        return None
    return found if found is not None and found.rows_path == path else None


def task_row(rollout: Rollout, config: JobConfig | None, components: Sequence[RewardComponent]) -> TaskRow | None:
    """The row of a rollout; ``None`` where its environment drew the task, or its dataset is not known any more."""
    dataset = dataset_of(rollout, config)
    if dataset is None or rollout.row is None:
        return None
    row = row_of(dataset, rollout.row + 1) or {}
    return TaskRow(dataset, rollout.row + 1, row, expected_of(row, components))


def expected_of(row: dict[str, Any], components: Sequence[RewardComponent] = ()) -> list[Expected]:
    """The row's fields with an expected answer: first those that the run's components compare with, then usual ones."""
    found: list[Expected] = []
    for field in dict.fromkeys((*_fields_of(components), *EXPECTED_FIELDS)):
        value = row_value(row, field)
        if value is not None and value not in ("", [], {}):
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            found.append(Expected(field, value, text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]} …"))
    return found


def _fields_of(components: Sequence[RewardComponent]) -> Iterator[str]:
    """The row's fields that components name in their parameters."""
    for item in components:
        value = item.params.get("truth_field")
        if isinstance(value, str) and value:
            yield value
