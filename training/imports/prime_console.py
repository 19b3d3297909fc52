"""prime-rl's console logs, of its trainer and of its orchestrator: ``Step 3 | Time: 4.20s | Reward: 0.5 | …``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from training.data.files.sniff import open_regular
from training.data.problems import MAX_LINE_BYTES
from training.imports.base import MAX_NAME_CHARS, Figures, Item, Notes, Reader, shown, step_of
from training.imports.console import COLOUR, holds
from training.words import _, sentence

_STEP = re.compile(r"\bStep (\d{1,10}) \| (?=Time: [\d.]{1,20}s\b)")
_STEP_BYTES = re.compile(rb"\bStep \d{1,10} \| Time: [\d.]{1,20}s\b")
_NUMBER = re.compile(r"[-+]?(?:\d+(?:\.\d*)?|\.\d+|inf|nan)(?:[eE][-+]?\d+)?(?![\d.])")
_NAMES = {"time": "timing/step", "lr": "learning_rate"}


def _recognise(path: Path) -> str:
    return "It has lines such as “Step 1 | Time: 4.20s | Reward: 0.5”." if holds(path, _STEP_BYTES) else ""


def _read_items(path: Path, _notes: Notes) -> Iterator[Item]:
    offset = 0
    with open_regular(path) as file:
        for number, line in enumerate(iter(lambda: file.readline(MAX_LINE_BYTES), b""), 1):
            offset += len(line)
            text = COLOUR.sub("", line[: 64 << 10].decode("utf-8", "replace")).replace("\0", "").rstrip()
            found = _STEP.search(text)
            if found is None:
                continue
            values, wrong = _pairs(text[found.end() :].split(" | "))
            remark = sentence(_("{part} is not a name with a number"), part=shown(wrong[0])) if wrong else ""
            if values:
                yield Item(number, offset, Figures(step_of(found[1]), values), remark=remark)


def _pairs(parts: list[str]) -> tuple[dict[str, float], list[str]]:
    """Numbers by name, without their units; and the parts that are none."""
    values: dict[str, float] = {}
    wrong: list[str] = []
    for part in parts:
        name, _colon, text = part.strip().partition(": ")
        plain = re.sub(r"\W+", "_", name.strip().lower()).strip("_")[:MAX_NAME_CHARS]
        number = _NUMBER.match(text.strip())
        if number is None or not plain:
            wrong.append(part)
        else:
            values[_NAMES.get(plain, plain)] = float(number[0])
    return values, wrong


READER = Reader(
    name="prime_console",
    title=_("console log"),
    tool="prime-rl",
    about="What prime-rl's trainer and orchestrator print: the lines `Step 1 | Time: 4.20s | Reward: 0.5 | …` are "
    "read; names become lower case with underscores, units are left out.",
    recognise=_recognise,
    read=_read_items,
)
