"""TensorBoard's event files, written without TensorFlow or TensorBoard: scalars, with the wall times of their steps.

``training.imports.trackers`` reads the same few fields. Checksums are CRC-32C, rotated and shifted by a constant. A
scalar is TensorBoard's ``simple_value``, a 32-bit float, as every other writer's is: the only form that all its readers
show.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import BinaryIO

import google_crc32c

_VERSION = b"brain.Event:2"
_START = 1  # SessionLog.START: what this folder holds of this step and later ones is void
_FLOAT_MAX = 3.4028234663852886e38
_DELTA = 0xA282EAD8


def masked_crc(data: bytes) -> int:
    """The checksum that TensorFlow writes of some bytes."""
    crc = google_crc32c.value(data)
    return ((crc >> 15 | crc << 17) + _DELTA) & 0xFFFFFFFF


class EventFile:
    """Appends events to an open file; the first one names the format. Raises ``OSError`` as the file does."""

    def __init__(self, file: BinaryIO, at: float) -> None:
        """``at`` is the wall time of the first event, in seconds since 1970."""
        self._file = file
        self._record(_double(1, at) + _bytes(3, _VERSION))

    def restart(self, step: int, at: float) -> None:
        """Have readers forget what earlier files of the folder hold from ``step`` on: it is trained again."""
        self._record(_double(1, at) + _number(2, step) + _bytes(7, _number(1, _START)))

    def scalars(self, step: int, at: float, values: Mapping[str, float]) -> None:
        """The figures of one step, by tag, as one event."""
        found = b"".join(_bytes(1, _bytes(1, tag.encode()) + _float(2, value)) for tag, value in values.items())
        self._record(_double(1, at) + _number(2, step) + _bytes(5, found))

    def _record(self, data: bytes) -> None:
        head = struct.pack("<Q", len(data))
        self._file.write(head + struct.pack("<I", masked_crc(head)) + data + struct.pack("<I", masked_crc(data)))


def _varint(value: int) -> bytes:
    made = bytearray()
    while value > 0x7F:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    made.append(value)
    return bytes(made)


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _double(field: int, value: float) -> bytes:
    return _varint(field << 3 | 1) + struct.pack("<d", value)


def _float(field: int, value: float) -> bytes:
    # Beyond a 32-bit float's range its infinity is written, which struct refuses to make.
    small = value if not abs(value) > _FLOAT_MAX else float("inf") if value > 0 else float("-inf")
    return _varint(field << 3 | 5) + struct.pack("<f", small)


def _bytes(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(value)) + value
