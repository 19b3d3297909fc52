"""Hugging Face's ``trainer_state.json``, which every checkpoint of a Trainer (TRL's too) holds: its log is a table."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from training.data.files.sniff import open_regular
from training.errors import DataError
from training.imports.base import MAX_NAME_CHARS, BadRow, Figures, Item, Notes, Reader, number_of, shown, step_of
from training.words import _, sentence

TOOL = "Hugging Face Trainer"
MAX_BYTES = 256 << 20
"""It is read whole; a log of a million steps has some 200 MB."""
_HEAD_BYTES = 1 << 20
_LOG = re.compile(rb'"log_history"\s*:\s*\[')


def _recognise(path: Path) -> str:
    """Keys stand in the order of the alphabet: ``global_step`` and ``log_history`` before what is long.

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


def _read_items(path: Path, notes: Notes) -> Iterator[Item]:
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


READER = Reader(
    name="trainer_state",
    title=_("trainer state"),
    tool=TOOL,
    about="`trainer_state.json` of a checkpoint of Hugging Face's Trainer or of TRL: each entry of `log_history` gives "
    "the figures of its step. The newest checkpoint has the whole log.",
    recognise=_recognise,
    read=_read_items,
)
