"""Whether a final answer solves its task: numbers by value, text by content, and no credit for guessing."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Collection, Iterable
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_validator

MAX_FINAL_LENGTH = 400
# Numbers in an answer that neither the conversation, a tool nor the gold knows. A few are working; many are guesses.
MAX_UNSUPPORTED_NUMBERS = 3

_NUMBER = re.compile(r"(?<![0-9.])-?(?:[0-9]+(?:\.[0-9]+)?|\.[0-9]+)(?:e[+-]?[0-9]{1,3})?(?![0-9])")
_THOUSANDS = re.compile(r"(?<=[0-9]),(?=[0-9]{3}(?![0-9]))")
_MINUS = str.maketrans({"\u2212": "-", "\u2013": "-"})
# Unicode's stream-safe limit (UAX #15). Python sorts a run of combining marks by insertion, so that 60,000 of them
# take seconds; no language writes more than a handful.
MAX_MARKS = 30
_LAST_MARK = 0x20000
_MARKS = re.compile(
    f"[{''.join(chr(code) for code in range(_LAST_MARK) if unicodedata.combining(chr(code)))}]{{{MAX_MARKS + 1},}}"
)


class Answer(BaseModel):
    """The environment's own truth in a dataset row."""

    model_config = ConfigDict(extra="ignore")

    contains: list[str] = Field(default_factory=list, max_length=32)
    tools: list[str] = Field(default_factory=list, max_length=32)

    @field_validator("contains", mode="before")
    @classmethod
    def _numbers_as_text(cls, value: Any) -> Any:
        values = value if isinstance(value, list) else [value]
        return [str(item) if isinstance(item, int | float) else item for item in values]


def normalise(text: str) -> str:
    """Half-width, lower case, without thousands separators."""
    if not text.isascii():
        bounded = _MARKS.sub(lambda run: run[0][:MAX_MARKS], text)
        text = unicodedata.normalize("NFKC", bounded).translate(_MINUS)
    return _THOUSANDS.sub("", text.casefold())


def numbers(text: str) -> list[float]:
    """Every number in a text, by value."""
    return [float(found) for found in _NUMBER.findall(normalise(text))]


def holds(text: str, needle: str) -> bool:
    """Whether ``text`` states ``needle``: as a whole number of that value, or as a phrase."""
    wanted = normalise(needle).strip()
    if not wanted:
        return True
    if _NUMBER.fullmatch(wanted):
        return _among(float(wanted), numbers(text))
    # "14:05" must not be found in "114:05" or "14:056".
    head = r"(?<![0-9])" if wanted[0].isdigit() else ""
    tail = r"(?![0-9])" if wanted[-1].isdigit() else ""
    return re.search(head + re.escape(wanted) + tail, normalise(text)) is not None


def score(final: str, answer: Answer, *, called: Collection[str], supported: Iterable[float]) -> float:
    """1.0 when the answer states everything asked for and the tools were used, else 0.0."""
    if not final.strip() or len(final) > MAX_FINAL_LENGTH:
        return 0.0
    if not all(tool in called for tool in answer.tools):
        return 0.0
    if not all(holds(final, needle) for needle in answer.contains):
        return 0.0
    known = [*supported, *(value for needle in answer.contains for value in numbers(needle))]
    unsupported = {value for value in numbers(final) if not _among(value, known)}
    return 0.0 if len(unsupported) > MAX_UNSUPPORTED_NUMBERS else 1.0


def _among(value: float, values: Iterable[float]) -> bool:
    return any(math.isclose(value, other, rel_tol=1e-9, abs_tol=1e-12) for other in values)
