"""Read any accepted dataset file, whatever its format, and recognise what a file is."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel, Field

from training.data.files.containers import Opened, open_values
from training.data.files.sniff import open_regular
from training.data.formats import ENOUGH, choose, format_of, recognise
from training.data.formats.base import DataFormat, Evidence, Value
from training.data.formats.columns import fields_in, suggest
from training.data.options import Cut, ReadOptions
from training.data.problems import MAX_COLUMNS, CheckLimits, RowError
from training.data.schema import CONVERSATION_KEYS, Record, Row, Sample, make_row
from training.errors import DataError
from training.words import Sentence, _, sentence

# Files of a run that are given as a dataset: recognised by what they hold, and refused with the way to import them.

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


# What a file can be, by its first rows: the candidates with their evidence, and its columns with examples.

EXAMPLE_CHARS = 120
MAX_NAME_CHARS = 200


class Candidate(BaseModel):
    """One format that the first rows fit."""

    format: str
    certainty: float
    reasons: list[Sentence] = Field(default_factory=list)


class Column(BaseModel):
    """A field of the first rows, and what it holds in the first of them that has it."""

    name: str
    example: str = ""


class Recognition(BaseModel):
    """How a file is stored and what its rows can be, the surest first."""

    container: str = ""
    evidence: list[Sentence] = Field(default_factory=list)
    candidates: list[Candidate] = Field(default_factory=list)
    columns: list[Column] = Field(default_factory=list)
    mapping: dict[str, str] = Field(default_factory=dict, description="Columns by their usual names, as a suggestion.")

    @property
    def sure(self) -> bool:
        """Whether the format is known from what the rows say; the usual names of columns are only a guess."""
        first = self.candidates[0] if self.candidates else None
        return first is not None and first.certainty >= ENOUGH and first.format != "columns"

    @property
    def asks(self) -> bool:
        """Whether a person has to say what the file is, and has something to choose from."""
        return not self.sure and bool(self.columns)


def recognition_of(opened: Opened, sample: Sample) -> Recognition:
    """What the first rows of a file say."""
    mapping = suggest(sample)
    return Recognition(
        container=opened.container,
        evidence=[Sentence.of(text) for text in opened.evidence],
        candidates=[
            Candidate(
                format=each.format, certainty=each.certainty, reasons=[Sentence.of(text) for text in each.reasons]
            )
            for each in recognise(sample)
        ],
        columns=_columns(opened, sample),
        mapping=mapping.model_dump(exclude_none=True) if mapping else {},
    )


def _columns(opened: Opened, sample: Sample) -> list[Column]:
    """The columns and the fields in their objects, each with the first value that is not empty."""
    found: dict[str, Any] = dict.fromkeys(opened.columns, "")
    for row in sample.rows:
        for name, value in fields_in(row):
            if found.get(name) in (None, ""):
                found[name] = value
    usable = [name for name in found if name and len(name) <= MAX_NAME_CHARS]
    return [Column(name=name, example=_example(found[name])) for name in usable[:MAX_COLUMNS]]


def _example(value: Any) -> str:
    value = "" if value is None else value
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= EXAMPLE_CHARS else text[: EXAMPLE_CHARS - 1] + "…"


# --- Cutting --------------------------------------------------------------------------------------------------------
# Cut the conversation of a row where the model is to begin.


def cut_row(row: Row, cut: Cut) -> Row:
    """The row with the beginning of its conversation. Raises ``RowError`` where nothing would be left.

    A row without an assistant turn has nothing to cut off and stays as it is.
    """
    turns = [number for number, message in enumerate(row.messages) if message.role == "assistant"]
    if cut is Cut.NONE or not turns:
        return row
    end = turns[0] if cut is Cut.QUERY else turns[-1]
    if not end:
        raise RowError("conversation_empty", key=row.spelling.key)
    return make_row(
        row.messages[:end],
        row.extra,
        tools=row.tools,
        others=row.others[:end] if row.others else None,
        offered=row.offered,
        notes=[],
        facts=row.facts,
        spelling=replace(row.spelling, roles=row.spelling.roles[:end], completion=0),
    )


class Source(NamedTuple):
    """A dataset file, its format, and why it is taken for that."""

    opened: Opened
    format: DataFormat
    reasons: list[str]
    options: ReadOptions
    recognised: Recognition

    def records(self) -> Iterator[Record]:
        """Its rows, good and bad, converted and cut. Raises ``DataError``."""
        records = self.format.read(self.opened.values(), self.options)
        return records if self.options.cut is Cut.NONE else _cut(records, self.options.cut)


def open_dataset(
    path: Path, options: ReadOptions | None = None, max_rows: int = CheckLimits.max_rows, *, ask: bool = False
) -> Source:
    """Recognise a file, or take it for what ``options`` say. Raises ``DataError`` when it cannot be read at all.

    Where ``ask`` is set, a table that is not recognised is no error: ``recognised.asks`` then says that a person has to
    choose.
    """
    options = options or ReadOptions()
    refuse_events(path)
    opened = open_values(path, max_rows)
    sample = opened.sample()
    found = recognition_of(opened, sample)
    if options.format or options.mapping:
        reasons: list[str] = [sentence(_("Chosen by a user."))]
        return Source(opened, format_of(options.format or "columns"), reasons, options, found)
    refuse_run(opened, sample)
    chosen, evidence = choose(sample)
    if evidence is None and not ask:
        _refuse_tables(opened, sample)
    return Source(opened, chosen, _reasons(chosen, evidence), options, found)


def _refuse_tables(opened: Opened, sample: Sample) -> None:
    names = opened.columns or [name for row in sample.rows[:1] for name in row]
    if opened.container in ("parquet", "csv") and not set(CONVERSATION_KEYS) & set(names):
        raise DataError(
            _("The file has no conversation column."),
            hint=sentence(
                _("Name one of its columns {names}, or map its columns."),
                names=" or ".join(CONVERSATION_KEYS),
            ),
        )


def _reasons(chosen: DataFormat, evidence: Evidence | None) -> list[str]:
    if evidence:
        return evidence.reasons
    return [sentence(_("Not recognised; read as {format}."), format=sentence(chosen.title))]


def _cut(records: Iterator[Record], cut: Cut) -> Iterator[Record]:
    for record in records:
        try:
            yield record if record.row is None else record._replace(row=cut_row(record.row, cut), text="")
        except RowError as exc:
            yield record._replace(row=None, error=exc)


def read_records(path: Path, options: ReadOptions | None = None) -> Iterator[Record]:
    """Stream the rows of a file, good and bad. Raises ``DataError`` when it cannot be read at all."""
    yield from open_dataset(path, options).records()


def load_rows(path: Path | str, max_rows: int = 0) -> list[Row]:
    """All rows of a dataset, or its first ``max_rows`` where that is above 0.

    Raises ``DataError`` naming the line of the first bad row, or when the file cannot be read or has no rows.
    """
    rows: list[Row] = []
    for record in islice(read_records(Path(path)), max_rows or None):
        if record.row is None:
            raise DataError(
                sentence(
                    _("{name}, line {line}: {reason}."),
                    name=Path(path).name,
                    line=record.line,
                    reason=record.reason,
                )
            )
        rows.append(record.row)
    if not rows:
        raise DataError(sentence(_("{name} has no rows."), name=Path(path).name))
    return rows
