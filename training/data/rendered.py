"""What is said of rows as a model reads them; ``training.algorithms.rendered`` makes it, pages show it."""

from __future__ import annotations

import json
from typing import Any, Literal

from pydantic import BaseModel

from training.data.learned import LEFT_OUT

Kind = Literal["context", "learned", "unlearned"]
SAMPLED = 200
"""Rows that are counted at most; fewer are shown."""


class Token(BaseModel):
    """One id, and what it adds to the text."""

    id: int
    text: str


class Reading(BaseModel):
    """What the dialect reads in a turn of the assistant; ``error`` says why a call cannot be read."""

    text: str
    calls: list[dict[str, Any]]
    reasoning: str = ""
    error: str = ""
    same: bool = True
    """Whether that is what the row says."""

    @property
    def lines(self) -> list[str]:
        """Each call as one line."""
        return [f"{call['name']} {json.dumps(call['arguments'], ensure_ascii=False)}" for call in self.calls]


class Part(BaseModel):
    """A stretch of a conversation, and for a turn of the assistant what is read in it."""

    kind: Kind
    tokens: list[Token]
    reading: Reading | None = None


class RenderedRow(BaseModel):
    """One conversation of a row; ``why`` nothing of it is learned is empty where something is.

    ``dropped`` names what of the row the template leaves out.
    """

    row: int
    title: Literal["conversation", "chosen", "rejected"] = "conversation"
    parts: list[Part]
    why: str = ""
    dropped: list[str] = []


class Rendered(BaseModel):
    """The first rows, and counts over up to ``SAMPLED`` of them. ``left_out`` counts rows by reason."""

    rows: list[RenderedRow]
    sampled: int
    tokens: int = 0
    learned: int = 0
    left_out: dict[str, int] = {}
    unreasoned: int = 0
    unread: int = 0
    dialect: str = ""
    note: str = ""


def why_words(code: str, limit: str) -> str:
    """A reason of ``left_out`` in words; a sentence of an error is its own."""
    return LEFT_OUT[code].format(limit=limit) if code in LEFT_OUT else code
