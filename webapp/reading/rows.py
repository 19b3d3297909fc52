"""The task behind a rollout: its row of the dataset, and the row's expected answer."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

from training.config import JobConfig, RewardComponent
from training.plain import number_in
from training.rows import row_value
from webapp.datasets.models import Dataset
from webapp.datasets.rows import row_of
from webapp.reading.groups import Member
from webapp.reading.turns import Message, message_of
from webapp.runs.rollouts.models import Rollout, Turn

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


# --- Columns --------------------------------------------------------------------------------------------------------
# Transcripts of a group side by side, turn by turn, with the first turn in which they differ.

MOST_COLUMNS = 4
ROWS = 24
TEXT_CHARS = 4_000
MOST_SEARCHED = 480
"""Turns in which the first difference is looked for."""


class Row(NamedTuple):
    """A turn of several rollouts. ``same``: all of them said the same; ``first``: the first turn of all in which they
    did not. A rollout that had ended before has no messages."""

    number: int
    messages: list[list[Message]]
    same: bool
    first: bool


class Beside(NamedTuple):
    """The rollouts that are shown, their turns from ``first`` on, and where the parts before and after begin."""

    shown: list[Member]
    rows: list[Row]
    first: int
    before: int | None
    after: int | None
    differs: int | None


def chosen_of(members: Sequence[Member], asked: Sequence[str]) -> list[Member]:
    """The rollouts that an address names by index; without any the best and the worst of the group."""
    indices = {number_in(text, 5) for text in asked}
    found = [member for member in members if member.rollout.index in indices][:MOST_COLUMNS]
    if found:
        return found
    known = [member for member in members if member.rollout.reward is not None]
    if len(known) < 2:
        return list(members[:2])
    best = max(known, key=lambda member: member.rollout.reward or 0.0)
    worst = min((item for item in known if item is not best), key=lambda member: member.rollout.reward or 0.0)
    return [best, worst]


def beside(shown: Sequence[Member], first: int) -> Beside:
    """The turns of these rollouts from number ``first`` on, ``ROWS`` of them."""
    ids = [member.rollout.pk for member in shown]
    found = _turn_messages(ids, first, first + ROWS)
    differs = _first_difference(ids)
    rows = []
    for number in range(first, first + ROWS):
        said = [found.get((pk, number), []) for pk in ids]
        if any(said):
            same = len(ids) < 2 or all(messages == said[0] for messages in said)
            drawn = [[message_of(raw, at, TEXT_CHARS) for at, raw in enumerate(messages)] for messages in said]
            rows.append(Row(number, drawn, same, number == differs))
    more = Turn.objects.filter(rollout__in=ids, number__gte=first + ROWS).exists()
    before = max(0, first - ROWS) if first else None
    return Beside(list(shown), rows, first, before, first + ROWS if more else None, differs)


def _turn_messages(ids: Sequence[UUID], first: int, end: int) -> dict[tuple[UUID, int], list[dict[str, Any]]]:
    rows = Turn.objects.filter(rollout__in=ids, number__gte=first, number__lt=end).defer("words")
    return {(turn.rollout_id, turn.number): turn.written for turn in rows}


def _first_difference(ids: Sequence[UUID]) -> int | None:
    """The number of the first turn in which they differ; ``None`` where they are the same."""
    if len(ids) < 2:
        return None
    for start in range(0, MOST_SEARCHED, ROWS):
        found = _turn_messages(ids, start, start + ROWS)
        if not found:
            return None
        for number in range(start, start + ROWS):
            said = [found.get((pk, number)) for pk in ids]
            if any(messages != said[0] for messages in said):
                return number
    return None
