"""What a format cannot hold of a row: each written row is read back and compared, and every difference has a name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from training.data.formats.base import DataFormat
from training.data.options import ReadOptions
from training.data.raw import Raw
from training.data.schema import Row
from training.words import _

Value = dict[str, Any]
MESSAGES, CALLS, IDS = _("messages"), _("tool calls"), _("ids of tool calls")
FIELDS, TOOLS, REASONING = _("fields of messages"), _("tools"), _("reasoning")
COLUMN = "column "
"""Stands before the name of a column."""


class Losses:
    """Reads rows back that were written in a format. One reader serves all rows, as of a file."""

    def __init__(self, form: DataFormat) -> None:
        self._value: Value = {}
        self._records = form.read(self._written(), ReadOptions(format=form.name))

    def _written(self) -> Iterator[Raw]:
        while True:
            yield Raw(1, 0, self._value)

    def of(self, row: Row, value: Value) -> list[str]:
        """Names of what is in the row and not in what was written of it."""
        self._value = value
        again = next(self._records).row
        return differences(row, again) if again is not None else [MESSAGES]


def differences(row: Row, again: Row) -> list[str]:
    """Names of what is in ``row`` and not in ``again``. How turns are cut into messages does not matter."""
    found = []
    if _role_texts(row) != _role_texts(again):
        found.append(MESSAGES)
    if not row.is_plain or not again.is_plain or row.others or _reasoning(row):
        found += _beside_texts(row, again)
    found += [COLUMN + name[:80] for name, value in row.extra.items() if not _holds(again, name, value)]
    return found


def _role_texts(row: Row) -> list[tuple[str, str]]:
    return [(message.role, message.content) for message in row.messages if message.content]


def _beside_texts(row: Row, again: Row) -> list[str]:
    found = []
    if _calls(row) != _calls(again):
        found.append(CALLS)
    elif _ids(row) - _ids(again):
        found.append(IDS)
    if _reasoning(row) != _reasoning(again):
        found.append(REASONING)
    if any(row.others or []) and _others(row) != _others(again):
        found.append(FIELDS)
    if row.tools is not None and row.tools not in (again.tools, _info(again).get("tools")):
        found.append(TOOLS)
    return found


def _calls(row: Row) -> list[tuple[str, Value]]:
    return [(call.name, call.arguments) for message in row.messages for call in message.tool_calls or []]


def _reasoning(row: Row) -> list[str]:
    return [message.reasoning for message in row.messages if message.reasoning]


def _ids(row: Row) -> set[str]:
    """Ids and names by which results name their calls."""
    return {text for message in row.messages for text in (message.tool_call_id, message.name) if text}


def _others(row: Row) -> list[Value]:
    return [other for other in row.others or [] if other]


def _info(row: Row) -> Value:
    info = row.extra.get("extra_info")
    return info if isinstance(info, dict) else {}


def _holds(again: Row, name: str, value: Any) -> bool:
    if name in again.extra and again.extra[name] == value:
        return True
    info = _info(again)
    return name in info and info[name] == value
