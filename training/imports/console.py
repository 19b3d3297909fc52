"""The output of trainers: verl's and prime-rl's consoles, and what Hugging Face's Trainer prints and keeps."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import reduce
from pathlib import Path
from typing import Any

from training.data.files.sniff import open_regular
from training.data.problems import MAX_LINE_BYTES
from training.errors import DataError
from training.imports.base import MAX_NAME_CHARS, BadRow, Figures, Item, Notes, Reader, number_of, shown, step_of
from training.words import Sentence, _, sentence

# verl's console log: lines with ``step:1 - actor/entropy:0.676 - …`` among all else that was printed.
#
# Colours, prefixes of Ray's workers and NumPy's ``np.float64(0.5)`` are read past. A time that some line names, such as
# ``2026-03-11 13:35:33``, is the time of the steps that follow it.

COLOUR = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_VERL_STEP = re.compile(r"(?:^|[\s)])step:(\S{1,20}) - (?=\S[^:]*:\S)")
_VERL_STEP_BYTES = re.compile(rb"(?:^|[\s)m])step:\d{1,12} - \S[^:\n]{0,200}:\S", re.M)
_VERL_NUMPY = re.compile(r"^(?:np|numpy)\.\w+\((.*)\)$")
_TIME = re.compile(rb"\b(20\d\d-\d\d-\d\d)[ T](\d\d:\d\d:\d\d)")
_VERL_PIECE_BYTES = 1 << 20


def holds(path: Path, pattern: re.Pattern[bytes]) -> bool:
    """Whether a file has a match of at most 400 bytes; read in pieces that overlap, so that no line is too long."""
    with open_regular(path) as file:
        kept = b""
        while piece := file.read(_VERL_PIECE_BYTES):
            if pattern.search(kept + piece):
                return True
            kept = piece[-400:]
    return False


def _recognise_verl(path: Path) -> str:
    return "It has lines such as “step:1 - critic/score/mean:0.5”." if holds(path, _VERL_STEP_BYTES) else ""


def _read_items_verl(path: Path, notes: Notes) -> Iterator[Item]:
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
    found = _VERL_STEP.search(text)
    if found is None or len(text) > MAX_LINE_BYTES // 4:
        return None
    pairs = text[found.end() :].split(" - ")
    is_cut = not line.endswith(b"\n") and len(pairs) > 1
    values, wrong = _pairs_verl(pairs[:-1] if is_cut else pairs)
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


def _pairs_verl(pairs: list[str]) -> tuple[dict[str, float], list[str]]:
    values: dict[str, float] = {}
    wrong: list[str] = []
    for pair in pairs:
        name, _, text = pair.strip().rpartition(":")
        inner = _VERL_NUMPY.match(text)
        try:
            value = number_of(inner[1] if inner else text)
        except BadRow:
            value = {"True": 1.0, "False": 0.0}.get(text)
        if value is None or not name or len(name) > MAX_NAME_CHARS:
            wrong.append(pair)
        else:
            values[name] = value
    return values, wrong


VERL_READER = Reader(
    name="verl_console",
    title=_("console log"),
    tool="verl",
    about="What verl prints: the lines `step:1 - key:0.676 - …` are read, all others are passed over and kept as the "
    "run's output. A number that is not readable is named and the rest of its line kept.",
    recognise=_recognise_verl,
    read=_read_items_verl,
)


# prime-rl's console logs, of its trainer and of its orchestrator: ``Step 3 | Time: 4.20s | Reward: 0.5 | …``.

_PRIME_STEP = re.compile(r"\bStep (\d{1,10}) \| (?=Time: [\d.]{1,20}s\b)")
_PRIME_STEP_BYTES = re.compile(rb"\bStep \d{1,10} \| Time: [\d.]{1,20}s\b")
_NUMBER = re.compile(r"[-+]?(?:\d+(?:\.\d*)?|\.\d+|inf|nan)(?:[eE][-+]?\d+)?(?![\d.])")
_NAMES = {"time": "timing/step", "lr": "learning_rate"}


def _recognise_prime(path: Path) -> str:
    return "It has lines such as “Step 1 | Time: 4.20s | Reward: 0.5”." if holds(path, _PRIME_STEP_BYTES) else ""


def _read_items_prime(path: Path, _notes: Notes) -> Iterator[Item]:
    offset = 0
    with open_regular(path) as file:
        for number, line in enumerate(iter(lambda: file.readline(MAX_LINE_BYTES), b""), 1):
            offset += len(line)
            text = COLOUR.sub("", line[: 64 << 10].decode("utf-8", "replace")).replace("\0", "").rstrip()
            found = _PRIME_STEP.search(text)
            if found is None:
                continue
            values, wrong = _pairs_prime(text[found.end() :].split(" | "))
            remark = sentence(_("{part} is not a name with a number"), part=shown(wrong[0])) if wrong else ""
            if values:
                yield Item(number, offset, Figures(step_of(found[1]), values), remark=remark)


def _pairs_prime(parts: list[str]) -> tuple[dict[str, float], list[str]]:
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


PRIME_READER = Reader(
    name="prime_console",
    title=_("console log"),
    tool="prime-rl",
    about="What prime-rl's trainer and orchestrator print: the lines `Step 1 | Time: 4.20s | Reward: 0.5 | …` are "
    "read; names become lower case with underscores, units are left out.",
    recognise=_recognise_prime,
    read=_read_items_prime,
)


# Hugging Face's ``trainer_state.json``, which every checkpoint of a Trainer (TRL's too) holds: its log is a table.

TOOL = "Hugging Face Trainer"
MAX_BYTES = 256 << 20
"""It is read whole; a log of a million steps has some 200 MB."""
_HEAD_BYTES = 1 << 20
_LOG = re.compile(rb'"log_history"\s*:\s*\[')


def _recognise_state(path: Path) -> str:
    """Keys are in the order of the alphabet: ``global_step`` and ``log_history`` before what is long.

    A line of its own before that is a row of a log; ms-swift ends its log with such a state.
    """
    with open_regular(path) as file:
        head = file.read(_HEAD_BYTES)
    if _is_row(head.partition(b"\n")[0]):
        return ""
    is_state = head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{") and _LOG.search(head) is not None
    return "It is an object with a log_history." if is_state else ""


def _is_row(line: bytes) -> bool:
    """Whether a line is a whole object without a log in it."""
    try:
        value = json.loads(line.decode("utf-8-sig"))
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict) and "log_history" not in value


def _read_items_state(path: Path, notes: Notes) -> Iterator[Item]:
    log = _log(path)
    size = path.stat().st_size
    for number, entry in enumerate(log, 1):
        offset = size * number // len(log)
        try:
            yield Item(number, offset, _figures(entry, notes))
        except BadRow as exc:
            yield Item(number, offset, reason=exc.sentence)


def _log(path: Path) -> list[Any]:
    """The entries of the log. Raises ``DataError``."""
    if path.stat().st_size > MAX_BYTES:
        raise DataError(sentence(_("The file is larger than {limit} MB."), limit=MAX_BYTES >> 20))
    with open_regular(path) as file:
        data = file.read(MAX_BYTES + 1)
    try:
        value = json.loads(data.decode("utf-8-sig"))
    except (ValueError, RecursionError):
        raise DataError(_("The file is cut off or is not valid JSON."), hint=_("Copy it again.")) from None
    log = value.get("log_history") if isinstance(value, dict) else None
    if not isinstance(log, list) or not log:
        raise DataError(_("The file has an empty log_history."), hint=_("Give the state of a later checkpoint."))
    return log


def _figures(entry: Any, notes: Notes) -> Figures:
    if not isinstance(entry, dict):
        raise BadRow(sentence(_("{value} is not a log entry"), value=shown(entry)))
    step = step_of(entry.get("step"))
    values: dict[str, float] = {}
    for name, given in entry.items():
        if name == "step":
            continue
        try:
            value = number_of(given)
        except BadRow:
            notes.left_out.setdefault(name[:MAX_NAME_CHARS], _("its values are not numbers"))
            continue
        if value is not None:
            values[name[:MAX_NAME_CHARS]] = value
    if not values:
        raise BadRow(_("it holds no figure"))
    return Figures(step, values)


STATE_READER = Reader(
    name="trainer_state",
    title=_("trainer state"),
    tool=TOOL,
    about="`trainer_state.json` of a checkpoint of Hugging Face's Trainer or of TRL: each entry of `log_history` gives "
    "the figures of its step. The newest checkpoint has the whole log.",
    recognise=_recognise_state,
    read=_read_items_state,
)


# What Hugging Face's Trainer prints, TRL's too: lines with ``{'loss': 0.5, 'reward': 0.25, 'epoch': 0.1}``.
#
# Such a line names no step. The progress bar before it does (``10/500 [00:12<``); without one the lines are numbered.
# OpenRLHF prints the same with its step: ``Global step 3: {'reward': 0.25, …}``; ms-swift names it among the figures,
# as Python or as JSON: ``{"loss": "0.25", "global_step/max_steps": "10/438"}``.

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
_TRAINER_NUMPY = re.compile(r"^(?:np|numpy)\.\w{1,20}\((.*)\)$")
_TRAINER_PIECE_BYTES = 1 << 18
_MAX_TEXT = 64 << 10
"""Longest line that is looked at: a real one has some kB."""


def _recognise_trainer(path: Path) -> str:
    """Look for such a line among the lines of the file."""
    with open_regular(path) as file:
        while line := file.readline(_TRAINER_PIECE_BYTES):
            if b"{'" not in line and _SWIFT_BYTES not in line:
                continue
            text = _text(line)
            begins = _figures_start(text)
            if begins is not None and _values(text[begins:])[0]:
                return "It has lines such as {'loss': 0.5, 'reward': 0.25}."
    return ""


def _read_items_trainer(path: Path, notes: Notes) -> Iterator[Item]:
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
    """Whether the line sums up, or evaluates, the step before it."""
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
        inner = _TRAINER_NUMPY.match(plain)
        try:
            value = number_of(inner[1] if inner else plain)
        except BadRow:
            value = {"True": 1.0, "False": 0.0}.get(plain)
            if value is None and plain != "None":
                wrong.append(f"{name}: {plain}")
        if value is not None:
            values[name[:MAX_NAME_CHARS]] = value
    return values, wrong


TRAINER_READER = Reader(
    name="trainer_console",
    title=_("console log of a Trainer"),
    tool=TOOL,
    about="What Hugging Face's Trainer and TRL print: lines such as `{'loss': 0.5, 'reward': 0.25, 'epoch': 0.1}`. "
    "They name no step; it is taken from the progress bar before them, or they are numbered in their order, and the "
    "report says which. OpenRLHF's lines `Global step 3: {…}` name it, and so do ms-swift's (`global_step/max_steps`).",
    recognise=_recognise_trainer,
    read=_read_items_trainer,
)
