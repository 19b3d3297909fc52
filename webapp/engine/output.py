"""What a trainer prints goes into ``output.log``, which is kept from growing without a bound.

The trainer appends to the file by itself, so that nothing it prints is lost when its supervisor is killed. The
supervisor looks at the size as it polls: beyond ``LIMIT_BYTES`` the first ``HEAD_BYTES`` and the last ``TAIL_BYTES``
stay, with a line between them that says how much was left out. The file is changed in place: the trainer's handle
appends at the end of the file. A kill at any point leaves a readable file, at worst with some lines twice.
"""

from __future__ import annotations

import os
from pathlib import Path

HEAD_BYTES, TAIL_BYTES = 1 << 20, 4 << 20
LIMIT_BYTES = HEAD_BYTES + 2 * TAIL_BYTES


def output_trim(path: Path) -> bool:
    """Shorten the file if it is over the limit. Returns whether it was."""
    try:
        if path.stat().st_size <= LIMIT_BYTES:
            return False
        with open(path, "r+b", buffering=0) as file:
            _cut_middle(file.fileno())
    except OSError:  # it is only what was printed; the next look tries again
        return False
    return True


def _cut_middle(handle: int) -> None:
    size = os.fstat(handle).st_size
    begin = size - TAIL_BYTES
    tail = os.pread(handle, TAIL_BYTES, begin)
    cut = tail.find(b"\n") + 1  # 0 where there is no line's end: then a line is cut
    left_out = begin + cut - HEAD_BYTES
    note = b"\n--- %d bytes left out ---\n" % left_out
    at = HEAD_BYTES + _write_all(handle, note + tail[cut:], HEAD_BYTES)
    # What was printed meanwhile is copied too. Between the last read and the cut a line may be lost.
    while more := os.pread(handle, TAIL_BYTES, size):
        size += len(more)
        at += _write_all(handle, more, at)
    os.ftruncate(handle, at)


def _write_all(handle: int, data: bytes, at: int) -> int:
    written = 0
    while written < len(data):
        written += os.pwrite(handle, data[written:], at + written)
    return written
