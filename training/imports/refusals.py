"""Files that people bring for a run and that hold none: each is refused by its name."""

from __future__ import annotations

import json
import re
from pathlib import Path

from training.data.files.sniff import open_regular
from training.errors import DataError
from training.words import _

_HEAD_BYTES = 256 << 10
_EXPORT = _("Export the run's history as CSV, or save `run.history()` as JSON Lines.")
_OTHERS = (
    (
        re.compile(rb"AnswerStatus\.(?:Solved|Unsolved|Unsure)"),
        _("This is a result of ToolEval: verdicts by query, without steps and without rollouts."),
        _("Give the answers that it judged as a dataset."),
    ),
    (
        re.compile(rb'\A\s*\{"id": "\w+", "(?:model_)?result": '),
        _("These are results of BFCL: answers without rewards and steps."),
        _("Play the tasks as an evaluation here, or give a trainer's log."),
    ),
    (
        re.compile(rb'"(?:lm_eval_version|n-shot|higher_is_better)"\s*:'),
        _("This is a result of the LM Evaluation Harness: scores of tasks, without steps and without rollouts."),
        _("Give a trainer's log, or a table of metrics with steps."),
    ),
)
"""What a file has that no reader takes, what it is, and what to give instead."""


def refuse_wandb(path: Path) -> None:
    """Raise ``DataError`` for files of Weights & Biases that hold no history, whatever else they look like."""
    head = _head(path)
    if head.startswith(b":W&B"):
        raise DataError(_("This is Weights & Biases' own file of a run, which only its program reads."), hint=_EXPORT)
    if b'"_wandb"' in head and _is_summary(head):
        raise DataError(
            _("This is the summary of a run of Weights & Biases: only the last figure of each metric."), hint=_EXPORT
        )


def _is_summary(head: bytes) -> bool:
    try:
        value = json.loads(head)
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict) and "_wandb" in value


def refuse_others(path: Path) -> None:
    """Raise ``DataError`` that says what a file is which no reader takes, where that is known."""
    head = _head(path)
    for found, what, instead in _OTHERS:
        if found.search(head):
            raise DataError(what, hint=instead)


def _head(path: Path) -> bytes:
    with open_regular(path) as file:
        return file.read(_HEAD_BYTES)
