"""A format: how it is recognised, read and, where it can be, written."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from training.data.native import may_hold_calls, read_native
from training.data.nulls import without_nulls
from training.data.options import ReadOptions
from training.data.problems import RowError, kind
from training.data.schema import Message, Raw, Record, Row, Sample, other_fields, others_of
from training.words import _, sentence

Value = dict[str, Any]


class Evidence(NamedTuple):
    """How surely a file is of a format, and why in words."""

    format: str
    certainty: float
    reasons: list[str]


@dataclass(frozen=True)
class DataFormat:
    """One format. ``rank`` orders formats that all fit: the more a format asks of a row, the higher."""

    name: str
    title: str
    about: str
    example: str
    rank: float
    recognise: Callable[[Sample], tuple[int, str] | None]
    """How many rows of the sample fit, and why; ``None`` where none does."""
    read: Callable[[Iterator[Raw], ReadOptions], Iterator[Record]]
    write: Callable[[Row], Value] | None = None
    """A row in this format's own spelling. Raises ``RowError`` where the format cannot hold it."""
    written_as: str = "jsonl"
    learned: str = "The assistant's turns."
    """What SFT learns of its rows; DPO where that is said."""
    options: tuple[str, ...] = field(default=("cut",))
    takes_messages: bool = False
    """Whether rows with a list under `messages` can be of it; else they are rows in our own spelling."""

    def evidence(self, sample: Sample) -> Evidence | None:
        """Whether and why the sample is of this format."""
        rows = sample.rows
        if not self.takes_messages:
            rows = [row for row in rows if not isinstance(row.get("messages"), list)]
        found = self.recognise(sample._replace(rows=rows))
        if found is None or not sample.rows:
            return None
        count, why = found
        return Evidence(
            format=self.name,
            certainty=round(self.rank * count / len(sample.rows), 3),
            reasons=[
                sentence(
                    _("{count} of the first {total} rows {why}."),
                    count=count,
                    total=len(sample.rows),
                    why=sentence(why),
                )
            ],
        )


def fits(sample: Sample, test: Callable[[Value], bool], why: str) -> tuple[int, str] | None:
    """How many rows pass a test."""
    count = sum(bool(test(row)) for row in sample.rows)
    return (count, why) if count else None


def each(convert: Callable[[Value], Row]) -> Callable[[Iterator[Raw], ReadOptions], Iterator[Record]]:
    """A reader that makes one row of each."""

    def read(raws: Iterator[Raw], options: ReadOptions) -> Iterator[Record]:
        return converted(raws, convert)

    return read


def converted(raws: Iterable[Raw], convert: Callable[[Value], Row]) -> Iterator[Record]:
    """One record for each raw row, good or bad."""
    for raw in raws:
        if raw.value is None:
            yield Record(raw.line, raw.offset, None, raw.error, ignored=raw.ignored)
            continue
        try:
            row = _as_meant(convert(raw.value), raw)
        except RowError as exc:
            yield Record(raw.line, raw.offset, None, exc, ignored=raw.ignored)
        else:
            yield Record(raw.line, raw.offset, row, None, raw.text if row.as_written else "", raw.ignored)


def _as_meant(row: Row, raw: Raw) -> Row:
    """The row with calls in texts read as calls, and without Arrow's nulls; most texts can have neither."""
    text = raw.text
    if not text or may_hold_calls(text):
        row = read_native(row)
    if not text or "null" in text or "None" in text:
        row = without_nulls(row, raw.value or {})
    return row


def text_of(value: Value, key: str, name: str) -> str:
    """A text that the format needs. Raises ``RowError``."""
    found = value.get(key)
    if not isinstance(found, str) or not found:
        raise RowError(
            "shape", format=name, detail=sentence(_("`{key}` is {kind}, not text"), key=key, kind=kind(found))
        )
    return found


def without(value: Value, *keys: str) -> Value:
    """The other fields, in their order."""
    return {name: item for name, item in value.items() if name not in keys}


def call_texts(message: Message) -> list[str]:
    """Each call of a message as the JSON text that formats have whose calls are messages of their own."""
    calls = [{"name": call.name, "arguments": call.arguments} for call in message.tool_calls or []]
    return [json.dumps(call, ensure_ascii=False) for call in calls]


def written_messages(row: Row, role_key: str, content_key: str, roles: dict[str, str]) -> list[Value]:
    """The messages in another spelling: their roles as in the file, or as ``roles`` says."""
    written = row.spelling.roles
    spelled = written if len(written) == len(row.messages) else [roles.get(m.role, m.role) for m in row.messages]
    return [
        {role_key: role, content_key: message.content} | other_fields(message, other)
        for role, message, other in zip(spelled, row.messages, others_of(row), strict=True)
    ]
