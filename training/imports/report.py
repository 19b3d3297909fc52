"""The report on what was read, for people: counts, what became what, and every row that could not be used."""

from __future__ import annotations

import json
import re
from pathlib import Path

from pydantic import BaseModel, Field

from training.data.files.sniff import open_regular, sniff
from training.data.files.sources import Given
from training.errors import DataError
from training.imports import console, recorded, rollouts, tables, trackers
from training.imports.axis import STEPS
from training.imports.base import MAX_REASON_CHARS, Reader, shown
from training.words import Sentence, _, sentence

MAX_LISTED = 200
MAX_MAPPED = 500


class Listed(BaseModel):
    """One row that was left out, or of which something was."""

    file: str
    line: int
    reason: str
    told: Sentence | None = Field(default=None, description="The reason, for translation.")


class FileRead(BaseModel):
    """One file: ``rows_in`` are ``rows`` kept and ``bad_rows`` listed."""

    name: str
    kind: str = ""
    tool: str = ""
    bytes: int = 0
    why: str = Field(default="", description="What it was recognised by.")
    rows_in: int = 0
    rows: int = 0
    bad_rows: int = 0
    left_out: dict[str, str] = Field(default_factory=dict, description="Columns without a place, and why.")
    notes: list[str] = Field(default_factory=list)
    told: list[Sentence] = Field(default_factory=list, description="The notes, for translation.")


class ImportReport(BaseModel):
    """The outcome of one import. A file that cannot be read at all rejects all of it."""

    verdict: str = Field(default="rejected", description="ok, bad_rows or rejected")
    message: str = ""
    told: list[Sentence] = Field(default_factory=list, description="The sentences of the message, for translation.")
    tool: str = ""
    files: list[FileRead] = Field(default_factory=list)
    steps: int = 0
    last_step: int = 0
    metrics: int = 0
    points: int = 0
    rollouts: int = 0
    groups: int = 0
    mapped: dict[str, str] = Field(default_factory=dict, description="Their name → ours.")
    bad: list[Listed] = Field(default_factory=list)
    remarks: list[Listed] = Field(default_factory=list)

    def say(self, *sentences: str) -> None:
        """Set the message."""
        self.message, self.told = " ".join(sentences), [Sentence.of(text) for text in sentences]

    @property
    def rows_in(self) -> int:
        """Rows over all files."""
        return sum(file.rows_in for file in self.files)

    @property
    def bad_rows(self) -> int:
        """Rows that were left out."""
        return sum(file.bad_rows for file in self.files)

    def list_bad(self, file: FileRead, line: int, reason: str) -> None:
        """Count a row that cannot be used, and list it while there is room."""
        file.bad_rows += 1
        if len(self.bad) < MAX_LISTED:
            self.bad.append(_listed(file, line, reason))

    def remark(self, file: FileRead, line: int, reason: str) -> None:
        """Note what was left out of a row that is kept."""
        if len(self.remarks) < MAX_LISTED:
            self.remarks.append(_listed(file, line, reason))


def _listed(file: FileRead, line: int, reason: str) -> Listed:
    return Listed(file=file.name, line=line, reason=reason[:MAX_REASON_CHARS], told=Sentence.of(reason))


# --- Refusals -------------------------------------------------------------------------------------------------------
# Files that people bring for a run and that hold none: each is refused by its name.

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


# --- Kinds ----------------------------------------------------------------------------------------------------------
# The kinds of files that an import reads, and what shows that a file is of one.

# Figures first, so that what a log says of a step is known before its rollouts are summed up.
READERS: tuple[Reader, ...] = (
    console.STATE_READER,
    trackers.READER,
    trackers.TRACKIO_READER,
    trackers.MLFLOW_DATABASE_READER,
    trackers.MLFLOW_FILES_READER,
    tables.CSV_READER,
    tables.LINES_READER,
    rollouts.DUMP_READER,
    recorded.NEMO_READER,
    recorded.TRACE_READER,
    recorded.ART_READER,
    rollouts.COMPLETIONS_READER,
    console.VERL_READER,
    console.PRIME_READER,
    console.TRAINER_READER,
)
_BINARY = (trackers.READER, trackers.TRACKIO_READER, trackers.MLFLOW_DATABASE_READER)
LOGS = (console.VERL_READER, console.PRIME_READER, console.TRAINER_READER)


def recognise(given: Given) -> tuple[Reader, str]:
    """What reads a file, and why. Raises ``DataError`` that says what the file is instead."""
    for reader in _BINARY:
        if why := reader.recognise(given.path):
            return reader, why
    if trackers.is_database(given.path):
        trackers.refuse(given.path)
    refuse_wandb(given.path)
    sniff(given.path)  # says what a picture, a pickle or UTF-16 is
    for reader in READERS:
        if why := reader.recognise(given.path):
            return reader, why
    refuse_others(given.path)
    header = tables.header_of(given.path)
    if header:
        raise DataError(
            sentence(
                _("The table has no column of steps; its columns are {columns}."), columns=shown(", ".join(header))
            ),
            hint=sentence(_("Name one of them {name}."), name=STEPS[0]),
        )
    raise DataError(
        _(
            "This is not a known file of a run: there is no line such as “step:1 - reward:0.5” or “{'loss': 0.5}”, "
            "and its rows are neither rollouts nor metrics with a step."
        ),
        hint=_(
            "Give a console log, rollout dumps, TRL's completions, trainer_state.json, TensorBoard's events, or a "
            "table of metrics."
        ),
    )
