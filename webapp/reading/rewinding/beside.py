"""Branches of a rollout next to it, message by message, from the first turn that was not the recorded one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from webapp.reading.rewinding.models import Branch
from webapp.reading.rewinding.scene import recorded_messages
from webapp.reading.turns import Message, message_of
from webapp.runs.rollouts.models import Rollout

MOST_COLUMNS = 4
ROWS = 60
TEXT_CHARS = 4_000
Raw = dict[str, Any]


class Column(NamedTuple):
    """The recorded rollout (no ``branch``) or one of its branches."""

    branch: Branch | None
    messages: list[Raw]


class Cell(NamedTuple):
    """What one of them says at a place: one message, or none after its end."""

    branch: Branch | None
    messages: list[Message]


class Row(NamedTuple):
    """One place of the conversation; ``first``: the first place at which they are not all the same."""

    cells: list[Cell]
    same: bool
    first: bool


class Beside(NamedTuple):
    """The columns, the rows from ``skipped`` on, and how many messages come after them."""

    columns: list[Column]
    rows: list[Row]
    skipped: int
    left: int


def chosen_of(branches: Sequence[Branch], asked: Sequence[str]) -> list[Branch]:
    """The branches that an address names by id; without any the newest ones."""
    found = [branch for branch in branches if str(branch.pk) in asked]
    return (found or list(branches))[: MOST_COLUMNS - 1]


def beside(rollout: Rollout, branches: Sequence[Branch]) -> Beside:
    """The recorded rollout and these branches; what all of them begin with is left out but for its last message."""
    recorded = recorded_messages(rollout)
    columns = [Column(None, recorded), *(Column(item, item.told(recorded)) for item in branches)]
    length = max(len(column.messages) for column in columns)
    differs = next((at for at in range(length) if not _same_message(columns, at)), None)
    skipped = max(0, (length if differs is None else differs) - 1)
    rows = [_row_at(columns, at, differs) for at in range(skipped, min(length, skipped + ROWS))]
    return Beside(columns, rows, skipped, max(0, length - skipped - ROWS))


def _message_at(column: Column, at: int) -> Raw | None:
    return column.messages[at] if at < len(column.messages) else None


def _same_message(columns: Sequence[Column], at: int) -> bool:
    first = _message_at(columns[0], at)
    return all(_message_at(column, at) == first for column in columns[1:])


def _row_at(columns: Sequence[Column], at: int, differs: int | None) -> Row:
    return Row([_cell_at(column, at) for column in columns], _same_message(columns, at), at == differs)


def _cell_at(column: Column, at: int) -> Cell:
    raw = _message_at(column, at)
    return Cell(column.branch, [] if raw is None else [message_of(raw, at, TEXT_CHARS)])
