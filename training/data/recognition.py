"""What a file can be, told from its first rows: the candidates with their evidence, and its columns with examples."""

from __future__ import annotations

import json
from typing import Any

from pydantic import BaseModel, Field

from training.data.files.containers import Opened
from training.data.formats import ENOUGH, recognise
from training.data.formats.columns import suggest
from training.data.limits import MAX_COLUMNS
from training.data.raw import Sample
from training.words import Sentence

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
        """Whether the format is told by what the rows say; the usual names of columns are only a guess."""
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
    names = dict.fromkeys(opened.columns)
    for row in sample.rows:
        names.update(dict.fromkeys(row))
    usable = [name for name in names if name and len(name) <= MAX_NAME_CHARS]
    return [Column(name=name, example=_example(name, sample.rows)) for name in usable[:MAX_COLUMNS]]


def _example(name: str, rows: list[dict[str, Any]]) -> str:
    value = next((row[name] for row in rows if row.get(name) not in (None, "")), "")
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= EXAMPLE_CHARS else text[: EXAMPLE_CHARS - 1] + "…"
