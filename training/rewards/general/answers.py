"""The final answer against the row's: exact, numeric, by pattern, by schema."""

from __future__ import annotations

import math
import re
from typing import Any

from pydantic import Field, field_validator

from training.rewards.base import Episode, Params
from training.rewards.general.patterns import MAX_PATTERN_CHARS, found, pattern_problem
from training.rewards.general.schemas import MAX_SCHEMA_CHARS, matches, schema_problem
from training.rewards.mathematics.equal import states
from training.rewards.text import first_number, numbers
from training.rows import row_value
from training.words import _, sentence

MAX_CHARS = 100_000
_SPACE = re.compile(r"\s+")
_MARKS = re.compile(r"[^\w\s]")


class AnswerParams(Params):
    """Which part of the final answer is looked at."""

    marker: str = Field(
        "",
        title=_("After"),
        description=_("Only the text after the last occurrence counts, such as `Answer:`. Empty uses everything."),
        max_length=100,
    )


class MatchParams(AnswerParams):
    """... and what it is compared with."""

    truth_field: str = Field(
        "answer",
        title=_("Answer field"),
        description=_(
            "Path of the right answer in the row, such as `extra_info.answer`. A list accepts any of its items."
        ),
        max_length=200,
        min_length=1,
    )


class ExactParams(MatchParams):
    """Parameters of ``exact_match``."""

    ignore_case: bool = Field(
        True, title=_("Ignore case"), description=_("Whether capitals and small letters are the same.")
    )
    ignore_punctuation: bool = Field(
        False, title=_("Ignore punctuation"), description=_("Whether only letters and digits count.")
    )


class NumericParams(MatchParams):
    """Parameters of ``numeric_match``."""

    tolerance: float = Field(
        1e-6, title=_("Tolerance"), description=_("Largest difference that still counts as right."), ge=0, le=1e12
    )
    relative: float = Field(
        0.0, title=_("Relative tolerance"), description=_("The same as a share of the right number."), ge=0, le=1
    )


class RegexParams(AnswerParams):
    """Parameters of ``regex_match``."""

    pattern: str = Field("", title=_("Pattern"), description=_("A regular expression."), max_length=MAX_PATTERN_CHARS)
    whole: bool = Field(False, title=_("Whole text"), description=_("Whether it must match from beginning to end."))

    @field_validator("pattern")
    @classmethod
    def _check(cls, value: str) -> str:
        if problem := pattern_problem(value):
            raise ValueError(problem)
        return value

    def problems(self) -> list[str]:
        """A pattern is needed."""
        return [] if self.pattern else [sentence(_("There is no pattern."))]


class SchemaParams(AnswerParams):
    """Parameters of ``json_schema_match``."""

    json_schema: str = Field(
        "{}", title=_("JSON schema"), description=_("The schema, as JSON text."), max_length=MAX_SCHEMA_CHARS
    )

    @field_validator("json_schema")
    @classmethod
    def _check(cls, value: str) -> str:
        if problem := schema_problem(value):
            raise ValueError(problem)
        return value


def exact_match(episode: Episode, params: ExactParams) -> float | None:
    """1 when the answer is the right one, white space aside; ``None`` where the row has none."""
    truths = [str(value) for value in _truths(episode, params.truth_field)]
    if not truths:
        return None
    said = _normalised(answer_text(episode, params), params)
    return float(any(said == _normalised(truth, params) for truth in truths))


def numeric_match(episode: Episode, params: NumericParams) -> float | None:
    """1 when the last number of the answer is the right one; ``None`` where the row has none."""
    known = [number for value in _truths(episode, params.truth_field) if (number := _number(value)) is not None]
    if not known:
        return None
    said = numbers(answer_text(episode, params))
    if not said:
        return 0.0
    close = (math.isclose(said[-1], truth, rel_tol=params.relative, abs_tol=params.tolerance) for truth in known)
    return float(any(close))


def math_answer(episode: Episode, params: MatchParams) -> float | None:
    """1 when the answer claims the right one, however it is written; ``None`` where the row has none."""
    truths = [str(value) for value in _truths(episode, params.truth_field) if not isinstance(value, bool)]
    if not truths:
        return None
    said = answer_text(episode, params)
    return float(any(states(said, truth) for truth in truths))


def regex_match(episode: Episode, params: RegexParams) -> float | None:
    """1 when the pattern matches the answer; ``None`` without a pattern."""
    return float(found(params.pattern, answer_text(episode, params), whole=params.whole)) if params.pattern else None


def json_schema_match(episode: Episode, params: SchemaParams) -> float:
    """1 when the answer is JSON that the schema accepts, in a code fence or not."""
    return float(matches(params.json_schema, answer_text(episode, params)))


def answer_text(episode: Episode, params: AnswerParams) -> str:
    """The part of the final answer that counts; "" where the marker is missing."""
    text = episode.final_answer
    if params.marker:
        text = text.rpartition(params.marker)[2] if params.marker in text else ""
    return text.strip()


def _truths(episode: Episode, path: str) -> list[Any]:
    value = row_value(episode.row, path)
    values = value if isinstance(value, list) else [value]
    return [item for item in values if isinstance(item, (str, int, float))]


def _number(value: Any) -> float | None:
    if isinstance(value, str):
        return first_number(value.rpartition("####")[2])
    return float(value) if not isinstance(value, bool) and math.isfinite(value) else None


def _normalised(text: str, params: ExactParams) -> str:
    text = text[:MAX_CHARS]
    if params.ignore_punctuation:
        text = _MARKS.sub("", text)
    if params.ignore_case:
        text = text.casefold()
    return _SPACE.sub(" ", text).strip()
