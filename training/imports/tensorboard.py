"""TensorBoard's event files, read without TensorFlow: records of protocol buffers, of which the scalars are taken.

A file is a list of records: length (8 bytes), its checksum (4), the data, its checksum (4). Of an event:
``wall_time`` = 1, ``step`` = 2, ``file_version`` = 3, ``summary`` = 5;
of a summary's value: ``tag`` = 1, ``simple_value`` = 2, ``tensor`` = 8. Nothing is trusted: lengths are bounded,
checksums compared, and every field that is not known is passed over.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from training.data.files.sniff import open_regular
from training.event_files import masked_crc
from training.imports.base import MAX_NAME_CHARS, MAX_STEP, BadRow, Figures, Item, Notes, Reader
from training.words import _, sentence

MAX_RECORD_BYTES = 64 << 20
_HEAD = struct.Struct("<QI")
_SUM = struct.Struct("<I")
_VERSION = b"brain.Event:"
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_FLOAT, _DOUBLE, _INT32, _INT64 = 1, 2, 3, 9
"""TensorFlow's numbers of the types that a scalar has."""
_LAYOUT = {_FLOAT: "<f", _DOUBLE: "<d", _INT32: "<i", _INT64: "<q"}
_LISTED = {5: "<f", 6: "<d"}
"""Fields of a tensor that list its numbers, packed or one by one."""


class Record(NamedTuple):
    """One record, or why there is none. ``ends`` says that nothing after it can be found."""

    data: bytes
    reason: str = ""
    ends: bool = False


def records(file: BinaryIO) -> Iterator[Record]:
    """The records of a file, each checked. Lengths are believed only where their own checksum is right."""
    while head := file.read(_HEAD.size):
        if len(head) < _HEAD.size:
            yield Record(b"", sentence(_("the file ends in the middle of this record")), ends=True)
            return
        length, check = _HEAD.unpack(head)
        if masked_crc(head[:8]) != check or length > MAX_RECORD_BYTES:
            yield Record(b"", sentence(_("its length is damaged, so that nothing after it can be read")), ends=True)
            return
        data, tail = file.read(length), file.read(_SUM.size)
        if len(data) < length or len(tail) < _SUM.size:
            yield Record(b"", sentence(_("the file ends in the middle of this record")), ends=True)
            return
        if masked_crc(data) != _SUM.unpack(tail)[0]:
            yield Record(b"", sentence(_("its checksum is wrong")))
            continue
        yield Record(data)


def fields(data: bytes) -> Iterator[tuple[int, int, Any]]:
    """Number, wire type and value of each field of a message. Raises ``BadRow`` where it breaks off."""
    place = 0
    while place < len(data):
        key, place = _varint(data, place)
        kind = key & 7
        if kind == _VARINT:
            value, place = _varint(data, place)
            yield key >> 3, kind, value
            continue
        size = {_FIXED64: 8, _FIXED32: 4}.get(kind)
        if kind == _BYTES:
            size, place = _varint(data, place)
        if size is None or place + size > len(data):
            raise BadRow(_("the event cannot be read"))
        yield key >> 3, kind, data[place : place + size]
        place += size


def _varint(data: bytes, place: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if place >= len(data):
            break
        byte = data[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, place
    raise BadRow(_("the event cannot be read"))


def figures_of(data: bytes, notes: Notes) -> Figures | None:
    """The scalars of one event; ``None`` for an event without any. Raises ``BadRow``."""
    at, step = None, 0
    values: dict[str, float] = {}
    for number, kind, value in fields(data):
        if (number, kind) == (1, _FIXED64):
            at = struct.unpack("<d", value)[0]
        elif (number, kind) == (2, _VARINT):
            step = value
        elif (number, kind) == (5, _BYTES):
            values |= _scalars(value, notes)
    if not values:
        return None
    if step > MAX_STEP:
        raise BadRow(sentence(_("its step is {step}, not a whole number from 0"), step=step))
    return Figures(step, values, at if at is not None and 9e8 < at < 5e9 else None)


def _scalars(summary: bytes, notes: Notes) -> dict[str, float]:
    values: dict[str, float] = {}
    for number, kind, value in fields(summary):
        if (number, kind) != (1, _BYTES):
            continue
        tag, scalar = _tag_and_scalar(value)
        if scalar is None:
            notes.left_out.setdefault(tag, _("its values are not numbers"))
        elif tag:
            values[tag] = scalar
    return values


def _tag_and_scalar(data: bytes) -> tuple[str, float | None]:
    """Tag and scalar of one value of a summary; ``None`` for texts, pictures and histograms."""
    tag, scalar = "", None
    for number, kind, value in fields(data):
        if (number, kind) == (1, _BYTES):
            text = value.decode("utf-8", "replace").replace("\0", "")
            tag = "".join(mark if mark.isprintable() else " " for mark in text)[:MAX_NAME_CHARS]
        elif (number, kind) == (2, _FIXED32):
            scalar = struct.unpack("<f", value)[0]
        elif (number, kind) == (8, _BYTES):
            scalar = _tensor(value)
    return tag, scalar


def _tensor(data: bytes) -> float | None:
    """The number of a tensor that holds one."""
    layout, found = "", []
    for number, kind, value in fields(data):
        if (number, kind) == (1, _VARINT):
            layout = _LAYOUT.get(value, "")
        elif (number, kind) == (4, _BYTES) and layout and len(value) == struct.calcsize(layout):
            found.append(struct.unpack(layout, value)[0])
        elif number in _LISTED and kind in (_BYTES, _FIXED32, _FIXED64):
            size = struct.calcsize(_LISTED[number])
            if len(value) == size:
                found.append(struct.unpack(_LISTED[number], value)[0])
        elif number in (7, 10) and kind == _VARINT:
            found.append(value - (1 << 64) if value >> 63 else value)
    return float(found[0]) if len(found) == 1 else None


def _recognise(path: Path) -> str:
    with open_regular(path) as file:
        head = file.read(_HEAD.size + 64)
    if len(head) <= _HEAD.size:
        return ""
    length, check = _HEAD.unpack(head[: _HEAD.size])
    is_events = length <= 64 and masked_crc(head[:8]) == check and _VERSION in head
    return "It begins as TensorBoard's event files do." if is_events else ""


def _read_items(path: Path, notes: Notes) -> Iterator[Item]:
    with open_regular(path) as file:
        for number, record in enumerate(records(file), 1):
            offset = file.tell()
            if record.reason:
                yield Item(number, offset, reason=record.reason)
                continue
            try:
                found = figures_of(record.data, notes)
            except BadRow as exc:
                yield Item(number, offset, reason=exc.sentence)
            else:
                if found is not None:
                    yield Item(number, offset, found)


READER = Reader(
    name="tensorboard",
    title=_("TensorBoard events"),
    tool="",
    about="`events.out.tfevents.*`, as TensorBoard, verl and Hugging Face's Trainer write them: every scalar is a "
    "figure of its step. Checksums are compared; texts, pictures and histograms are named and left out.",
    recognise=_recognise,
    read=_read_items,
)
