"""Files of a run that are given as a dataset: recognised by what they say, and refused with the way to import them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from training.data.files.containers import Opened
from training.data.files.sniff import open_regular
from training.data.formats.base import Value
from training.data.raw import Sample
from training.errors import DataError
from training.words import _, sentence

STEPS = {"step", "global_step", "train/global_step", "_step", "training/global_step", "trainer/global_step"}
_EVENTS = b"brain.Event:"
_LOG_BYTES = 4 << 20
_LOG = re.compile(rb"(?:^|[\s)m])step:\d{1,12} - [^\s:]{1,200}:[-\dn]|\{'(?:loss|eval_loss|train_loss)': '?[-\dn]")
_HINT = _("Import it as a run: its curves and rollouts are shown there.")


class RunFile(DataError):
    """A file of a run that was given as a dataset. Pages lead from here to the import of runs."""

    code = "run_file"


def refuse_run(opened: Opened, sample: Sample) -> None:
    """Raise ``RunFile`` where the first rows, or lines, are those of a run."""
    what = _of_rows(sample.rows) or ("" if sample.rows else _of_lines(opened))
    if what:
        raise RunFile(sentence(_("This is {what} of a run, not a dataset."), what=sentence(what)), hint=_HINT)


def _of_rows(rows: list[Value]) -> str:
    first = rows[0] if rows else {}
    if {"input", "output", "score"} <= first.keys() and _is_number(first["score"]) and isinstance(first["input"], str):
        return _("a rollout dump")
    if {"step", "prompt", "completion", "advantage"} <= first.keys():
        return _("a table of completions")
    if STEPS & first.keys() and _are_texts(first.get("prompt")) and _are_texts(first.get("completion")):
        return _("a table of completions")  # a row a step, as ms-swift writes it
    if isinstance(first.get("log_history"), list) and "global_step" in first:
        return _("the trainer state")
    return _("a table of metrics") if rows and all(map(_is_figures, rows)) else ""


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(each, str) for each in value)


def _is_figures(row: Value) -> bool:
    """Whether a row is a step and numbers, and nothing else."""
    others = [value for name, value in row.items() if name.lower() not in STEPS]
    return len(others) < len(row) and any(value not in (None, "") for value in others) and all(map(_is_number, others))


def _is_number(value: Any) -> bool:
    if value is None or value == "" or isinstance(value, int | float):
        return True
    try:
        float(value if isinstance(value, str) and len(value) <= 64 else "x")
    except ValueError:
        return False
    return True


def _of_lines(opened: Opened) -> str:
    if opened.container != "jsonl" or opened.members:
        return ""
    with open_regular(opened.path) as file:
        return _("a console log") if _LOG.search(file.read(_LOG_BYTES)) else ""


def refuse_events(path: Path) -> None:
    """Raise ``RunFile`` for TensorBoard's event files, which are no text."""
    if path.is_file():
        with open_regular(path) as file:
            if _EVENTS in file.read(64):
                what = sentence(_("a TensorBoard file"))
                raise RunFile(sentence(_("This is {what} of a run, not a dataset."), what=what), hint=_HINT)
