"""verl's console log: lines with ``step:1 - actor/entropy:0.676 - …`` among whatever else was printed.

Colours, prefixes of Ray's workers and NumPy's ``np.float64(0.5)`` are read past. A time that some line names, such as
``2026-03-11 13:35:33``, is the time of the steps that follow it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import reduce
from pathlib import Path

from training.data.files.sniff import open_regular
from training.data.problems import MAX_LINE_BYTES
from training.imports.base import MAX_NAME_CHARS, BadRow, Figures, Item, Notes, Reader, number_of, shown, step_of
from training.words import Sentence, _, sentence

COLOUR = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_STEP = re.compile(r"(?:^|[\s)])step:(\S{1,20}) - (?=\S[^:]*:\S)")
_STEP_BYTES = re.compile(rb"(?:^|[\s)m])step:\d{1,12} - \S[^:\n]{0,200}:\S", re.M)
_NUMPY = re.compile(r"^(?:np|numpy)\.\w+\((.*)\)$")
_TIME = re.compile(rb"\b(20\d\d-\d\d-\d\d)[ T](\d\d:\d\d:\d\d)")
_PIECE_BYTES = 1 << 20


def holds(path: Path, pattern: re.Pattern[bytes]) -> bool:
    """Whether a file has a match of at most 400 bytes; read in pieces that overlap, so that no line is too long."""
    with open_regular(path) as file:
        kept = b""
        while piece := file.read(_PIECE_BYTES):
            if pattern.search(kept + piece):
                return True
            kept = piece[-400:]
    return False


def _recognise(path: Path) -> str:
    return "It has lines such as “step:1 - critic/score/mean:0.5”." if holds(path, _STEP_BYTES) else ""


def _read_items(path: Path, notes: Notes) -> Iterator[Item]:
    number = offset = 0
    at: float | None = None
    with open_regular(path) as file:
        while line := file.readline(MAX_LINE_BYTES):
            offset += len(line)
            number += 1
            if found := _TIME.search(line[:400]):
                at = _seconds(found[1] + b" " + found[2]) or at
            if b"step:" in line:
                item = _figures_of_line(line, number, offset, at)
                if item is not None:
                    yield item
            while not line.endswith(b"\n") and len(line) == MAX_LINE_BYTES:  # the rest of a very long line
                line = file.readline(MAX_LINE_BYTES)
                offset += len(line)


def _seconds(text: bytes) -> float | None:
    try:
        return datetime.strptime(text.decode(), "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC).timestamp()
    except ValueError:
        return None


def _figures_of_line(line: bytes, number: int, offset: int, at: float | None) -> Item | None:
    """A line's figures; ``None`` for a line that only looks as if it had some."""
    text = COLOUR.sub("", line.decode("utf-8", "replace")).replace("\0", "").rstrip()
    found = _STEP.search(text)
    if found is None or len(text) > MAX_LINE_BYTES // 4:
        return None
    pairs = text[found.end() :].split(" - ")
    is_cut = not line.endswith(b"\n") and len(pairs) > 1
    values, wrong = _pairs(pairs[:-1] if is_cut else pairs)
    if not values:
        return None
    try:
        step = step_of(found[1])
    except BadRow as exc:
        return Item(number, offset, reason=exc.sentence)
    remarks = [sentence(_("{part} is not a name with a number"), part=shown(part)) for part in wrong[:3]]
    if is_cut:
        remarks.append(
            sentence(_("the file ends in this line, so its last figure, which may be cut off, was left out"))
        )
    return Item(number, offset, Figures(step, values, at), remark=reduce(_both, remarks) if remarks else "")


def _both(one: str, other: str) -> Sentence:
    return sentence(_("{one}; {other}"), one=one, other=other)


def _pairs(pairs: list[str]) -> tuple[dict[str, float], list[str]]:
    values: dict[str, float] = {}
    wrong: list[str] = []
    for pair in pairs:
        name, _, text = pair.strip().rpartition(":")
        inner = _NUMPY.match(text)
        try:
            value = number_of(inner[1] if inner else text)
        except BadRow:
            value = {"True": 1.0, "False": 0.0}.get(text)
        if value is None or not name or len(name) > MAX_NAME_CHARS:
            wrong.append(pair)
        else:
            values[name] = value
    return values, wrong


READER = Reader(
    name="verl_console",
    title=_("console log"),
    tool="verl",
    about="What verl prints: the lines `step:1 - key:0.676 - …` are read, all others are passed over and kept as the "
    "run's output. A number that is not readable is named and the rest of its line kept.",
    recognise=_recognise,
    read=_read_items,
)
