"""The cells of the list of runs: what is plain text is made here, because a page has hundreds of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from django.utils.translation import gettext as _

from webapp.figures import NOTHING, duration, figure, percent
from webapp.records.columns import Column
from webapp.records.listing import RunRow
from webapp.text import translated


class Head(NamedTuple):
    """A column as a page names it."""

    key: str
    title: str
    column: Column


class Cell(NamedTuple):
    """One cell. ``text`` is ``None`` where the template draws it; ``sub`` stands small beneath, with ``about`` as its
    title."""

    key: str
    label: str
    figure: bool
    text: str | None = None
    sub: str = ""
    about: str = ""


class Line(NamedTuple):
    """A row of the table."""

    row: RunRow
    cells: list[Cell]


PLAIN: dict[str, Callable[[RunRow], str]] = {
    "heldout": lambda row: percent(row.heldout),
    "spec": lambda row: row.spec or NOTHING,
    "model": lambda row: row.model or NOTHING,
    "dataset": lambda row: row.dataset or NOTHING,
    "owner": lambda row: row.owner or NOTHING,
    "duration": lambda row: duration(row.duration_seconds),
    "device": lambda row: duration(row.device_seconds),
}


def heads(columns: Iterable[Column]) -> list[Head]:
    """The columns with their titles in the reader's language."""
    return [Head(column.key, translated(column.title), column) for column in columns]


def lines(rows: Iterable[RunRow], shown: Sequence[Head]) -> list[Line]:
    """The rows of the table."""
    return [Line(row, [_cell(row, head) for head in shown]) for row in rows]


def _cell(row: RunRow, head: Head) -> Cell:
    cell = Cell(head.key, head.title, head.column.figure)
    if head.key in PLAIN:
        return cell._replace(text=PLAIN[head.key](row))
    if head.key == "success":
        between = " – ".join(map(percent, row.success_range or ()))
        return cell._replace(text=percent(row.success), sub=between)
    if head.key == "reward":
        reward = row.view["last_reward"]
        if reward is None:
            return cell._replace(text=NOTHING)
        return cell._replace(text=figure(reward), sub=_rewarded_by(row), about=_not_comparable())
    return cell


def _rewarded_by(row: RunRow) -> str:
    return row.spec or (_("own components") if row.own_parts else _("default components"))


def _not_comparable() -> str:
    return _("Rewards of different specs cannot be compared.")
