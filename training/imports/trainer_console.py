"""What Hugging Face's Trainer prints, TRL's too: lines with ``{'loss': 0.5, 'reward': 0.25, 'epoch': 0.1}``.

Such a line names no step. The progress bar before it does (``10/500 [00:12<``); without one the lines are numbered.
OpenRLHF prints the same with its step: ``Global step 3: {'reward': 0.25, …}``; ms-swift names it among the figures, as
Python or as JSON: ``{"loss": "0.25", "global_step/max_steps": "10/438"}``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from training.data.files.sniff import open_regular
from training.data.problems import MAX_LINE_BYTES
from training.imports.base import MAX_NAME_CHARS, BadRow, Figures, Item, Notes, Reader, number_of, shown
from training.imports.trainer_state import TOOL
from training.words import _, sentence

_BEGINS = re.compile(r"\{'[^'\n]{1,120}': ")
_SWIFT = re.compile(r"'global_step/max_steps': '(\d{1,10})/\d{1,10}'")
_SWIFT_BYTES = b'"global_step/max_steps": "'
SWIFT = "ms-swift"
_PAIR = re.compile(
    r"'([^'\n]{1,200})': ('[^'\n]{0,64}'|[^,'{}\[\]()\n]{1,64}|(?:np|numpy)\.\w{1,20}\([^()\n]{1,64}\))[,}]"
)
_GLOBAL = re.compile(r"Global step (\d{1,10})(?: \[\w{1,20}\])?: $")
OPENRLHF = "OpenRLHF"
_BAR = re.compile(r"(\d{1,10})/\d{1,10} \[\d")
_KNOWN = ("'loss'", "'train_loss'", "'eval_loss'", "'learning_rate'", "'reward'", "'train_runtime'")
_NUMPY = re.compile(r"^(?:np|numpy)\.\w{1,20}\((.*)\)$")
_PIECE_BYTES = 1 << 18
_MAX_TEXT = 64 << 10
"""Longest line that is looked at: a real one has some kB."""


def _recognise(path: Path) -> str:
    """Look for such a line among the lines of the file."""
    with open_regular(path) as file:
        while line := file.readline(_PIECE_BYTES):
            if b"{'" not in line and _SWIFT_BYTES not in line:
                continue
            text = _text(line)
            begins = _figures_start(text)
            if begins is not None and _values(text[begins:])[0]:
                return "It has lines such as {'loss': 0.5, 'reward': 0.25}."
    return ""


def _read_items(path: Path, notes: Notes) -> Iterator[Item]:
    number = offset = step = 0
    bar: int | None = None
    with open_regular(path) as file:
        while line := file.readline(MAX_LINE_BYTES):
            offset += len(line)
            number += 1
            text = _text(line)
            begins = _figures_start(text)
            bar = _bar(text if begins is None else text[:begins], bar)
            if begins is None:
                continue
            values, wrong = _values(text[begins:])
            if not values:
                continue
            if (named := _GLOBAL.search(text[:begins])) is not None:
                step, notes.tool = int(named[1]), OPENRLHF
            elif (named := _SWIFT.search(text, begins)) is not None:
                step, notes.tool = int(named[1]), SWIFT
                names = [each.partition(":")[0] for each in wrong if not each.startswith("global_step")]
                notes.left_out |= dict.fromkeys(names, _("its values are not numbers"))
                wrong = []
            else:
                if not _belongs_to_last(values) or not step:
                    step = bar if bar is not None and bar > step else step + 1
                notes.say(_named(bar))
            remark = sentence(_("{part} is not a name with a number"), part=shown(wrong[0])) if wrong else ""
            yield Item(number, offset, Figures(step, values), remark=remark)


def _text(line: bytes) -> str:
    """The line as text; ms-swift's in the marks of Python."""
    text = line[:_MAX_TEXT].decode("utf-8", "replace").replace("\0", "")
    return text.replace('"', "'") if _SWIFT_BYTES in line else text


def _figures_start(text: str) -> int | None:
    """Where a line of figures begins; ``None`` for any other line."""
    found = _BEGINS.search(text) if "{'" in text else None
    if found is None:
        return None
    is_log = _GLOBAL.search(text[: found.start()]) or any(name in text for name in _KNOWN)
    return found.start() if is_log else None


def _bar(text: str, before: int | None) -> int | None:
    if " [" not in text:
        return before
    found = _BAR.findall(text)
    return int(found[-1]) if found else before


def _belongs_to_last(values: dict[str, float]) -> bool:
    """Whether the line sums up, or evaluates, the step that was told before."""
    return "train_runtime" in values or all(name.startswith("eval_") or name == "epoch" for name in values)


def _named(bar: int | None) -> str:
    if bar is None:
        return sentence(_("Its lines have no step number: they are numbered in their order."))
    return sentence(_("Its lines have no step number: it is taken from the progress bar before them."))


def _values(text: str) -> tuple[dict[str, float], list[str]]:
    """Numbers by name, and the pairs that are none."""
    values: dict[str, float] = {}
    wrong: list[str] = []
    for name, given in _PAIR.findall(text):
        plain = given.strip().strip("'")
        inner = _NUMPY.match(plain)
        try:
            value = number_of(inner[1] if inner else plain)
        except BadRow:
            value = {"True": 1.0, "False": 0.0}.get(plain)
            if value is None and plain != "None":
                wrong.append(f"{name}: {plain}")
        if value is not None:
            values[name[:MAX_NAME_CHARS]] = value
    return values, wrong


READER = Reader(
    name="trainer_console",
    title=_("console log of a Trainer"),
    tool=TOOL,
    about="What Hugging Face's Trainer and TRL print: lines such as `{'loss': 0.5, 'reward': 0.25, 'epoch': 0.1}`. "
    "They name no step; it is taken from the progress bar before them, or they are numbered in their order, and the "
    "report says which. OpenRLHF's lines `Global step 3: {…}` name it, and so do ms-swift's (`global_step/max_steps`).",
    recognise=_recognise,
    read=_read_items,
)
