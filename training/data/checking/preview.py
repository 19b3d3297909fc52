"""The first rows of a file as chosen options would make them, and the rows among the first that would be bad."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field

from training.data.checking.report import shorten
from training.data.options import ReadOptions
from training.data.problems import Finding
from training.data.reader import open_dataset
from training.data.recognition import Recognition
from training.errors import DataError
from training.words import Sentence

ROWS_SHOWN = 5
LOOKED_AT_ROWS = 200
LOOKED_AT_S = 5.0
MAX_BAD = 10
MEASURED_ROWS = 256


class Preview(BaseModel):
    """How a file begins. ``looked`` rows were read for it; ``message`` says why there are none."""

    format: str = ""
    reasons: list[str] = Field(default_factory=list)
    told: list[Sentence] = Field(default_factory=list, description="The reasons, for translation.")
    rows: list[dict[str, Any]] = Field(default_factory=list)
    bad: list[Finding] = Field(default_factory=list)
    good_rows: int = 0
    bad_rows: int = 0
    recognised: Recognition = Field(default_factory=Recognition)
    message: list[Sentence] = Field(default_factory=list)

    @property
    def looked(self) -> int:
        """How many rows were read."""
        return self.good_rows + self.bad_rows


def preview(path: Path, options: ReadOptions | None = None, rows: int = 10, look_at: int = 0) -> Preview:
    """The first rows as ``options`` would make them, texts shortened. Raises ``DataError``.

    More rows are read than are shown, ``look_at`` of them, so that bad ones further down are seen.
    """
    source = open_dataset(path, options, MEASURED_ROWS)
    reasons = [*source.opened.evidence, *source.reasons]
    found = Preview(
        format=source.format.name,
        reasons=[str(text) for text in reasons],
        told=[Sentence.of(text) for text in reasons],
        recognised=source.recognised,
    )
    end = time.monotonic() + LOOKED_AT_S
    for record in source.records():
        if record.row is not None:
            found.good_rows += 1
            if len(found.rows) < rows:
                found.rows.append(shorten(record.row.normal()))
        elif record.error is not None:
            found.bad_rows += 1
            if len(found.bad) < MAX_BAD:
                found.bad.append(record.error.finding(record.line))
        if found.looked >= max(rows, look_at) or time.monotonic() > end:
            break
    return found


def safe_preview(path: Path, options: ReadOptions | None = None, rows: int = ROWS_SHOWN) -> Preview:
    """As ``preview``, but what cannot be read at all is told in ``message``."""
    try:
        return preview(path, options, rows, LOOKED_AT_ROWS)
    except DataError as exc:
        return Preview(message=sentences(exc), recognised=recognised(path))


def recognised(path: Path) -> Recognition:
    """What a file is recognised as, where its choices fail; nothing when it cannot be opened at all."""
    try:
        return open_dataset(path, None, MEASURED_ROWS, ask=True).recognised
    except DataError:
        return Recognition()


def sentences(exc: DataError) -> list[Sentence]:
    """An error and what to do about it, for translation."""
    return [Sentence.of(text) for text in (exc.message, exc.hint) if text]
