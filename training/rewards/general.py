"""Components for any task: the answer against the row's, budgets, repetition and language."""

from __future__ import annotations

import math
import re
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from training.rewards.base import Component, Episode, Example, Params, Span, played, says, tool
from training.rewards.mathematics.equal import states
from training.rewards.patterns import (
    MAX_PATTERN_CHARS,
    MAX_SCHEMA_CHARS,
    first_match,
    found,
    matches,
    pattern_problem,
    schema_problem,
)
from training.rewards.text import answer_at, first_number, last_number_at, numbers, piece
from training.rewards.turns import call_outcomes
from training.rows import row_value
from training.words import OptionError, _, sentence

# The environment's own verdict as a reward component.


class VerdictParams(Params):
    """The value of an episode that ran out before the environment gave its verdict."""

    cut_off: float | None = Field(
        0.0,
        title=_("Cut off"),
        description=_(
            "Value of an episode that ran out of turns or tokens before the environment gave a verdict. Empty "
            "excludes such episodes; then a policy never learns to finish in time."
        ),
        ge=-1,
        le=1,
        allow_inf_nan=False,
    )


def task_success(episode: Episode, params: VerdictParams) -> float | None:
    """The environment's reward as it is.

    ``None`` where an episode that came to its end has none: the environment failed to judge it, which is not 0. An
    episode that the policy did not bring to its end within its budget is worth ``cut_off``.
    """
    if episode.env_reward is None and episode.truncated:
        return params.cut_off
    return episode.env_reward


TASK_SUCCESS = Component(
    "task_success",
    _("Task success"),
    _("The environment's own reward for the task."),
    task_success,
    VerdictParams,
    source="the environment server (`reward` of its last observation)",
    formula="reward",
    examples=(
        Example("the environment says 0.25", played("q", says("a"), env_reward=0.25), 0.25),
        Example("cut off without a verdict", played("q", says("a"), truncated=True), 0.0),
        Example("ended without a verdict", played("q", says("a")), None),
    ),
)
OUTCOME = (TASK_SUCCESS,)


# The final answer against the row's: exact, numeric, by pattern, by schema.

ANSWER_MAX_CHARS = 100_000
_SPACE = re.compile(r"\s+")
_MARKS = re.compile(r"[^\w\s]")


class AnswerParams(Params):
    """The part of the final answer that is looked at."""

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
    given = _normalised(answer_text(episode, params), params)
    return float(any(given == _normalised(truth, params) for truth in truths))


def numeric_match(episode: Episode, params: NumericParams) -> float | None:
    """1 when the last number of the answer is the right one; ``None`` where the row has none."""
    known = [number for value in _truths(episode, params.truth_field) if (number := _number(value)) is not None]
    if not known:
        return None
    given = numbers(answer_text(episode, params))
    if not given:
        return 0.0
    close = (math.isclose(given[-1], truth, rel_tol=params.relative, abs_tol=params.tolerance) for truth in known)
    return float(any(close))


def math_answer(episode: Episode, params: MatchParams) -> float | None:
    """1 when the answer claims the right one, however it is written; ``None`` where the row has none."""
    truths = [str(value) for value in _truths(episode, params.truth_field) if not isinstance(value, bool)]
    if not truths:
        return None
    text = answer_text(episode, params)
    return float(any(states(text, truth) for truth in truths))


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
    text = text[:ANSWER_MAX_CHARS]
    if params.ignore_punctuation:
        text = _MARKS.sub("", text)
    if params.ignore_case:
        text = text.casefold()
    return _SPACE.sub(" ", text).strip()


# How much is said and called, how often it is repeated, and in which language.

REPEATED_MAX_CHARS = 200_000
_HAN = re.compile("[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")
_LATIN = re.compile("[A-Za-z]+")
_PIECES = re.compile(
    "[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\u3040-\u30ff\U00020000-\U0003ffff]|[^\\W\u3040-\u30ff\u3400-\u9fff]+"
)


class ScopeParams(Params):
    """The texts of the model that count."""

    scope: Literal["final", "all"] = Field(
        "final",
        title=_("Text"),
        description=_("Which text of the model counts."),
        json_schema_extra={"choices": {"final": _("the final answer"), "all": _("all that it wrote")}},
    )


class LengthBudgetParams(ScopeParams):
    """Parameters of ``length_budget``."""

    min_chars: int = Field(
        1, title=_("Length from"), description=_("Shortest text worth 1, in characters."), ge=0, le=1_000_000
    )
    max_chars: int = Field(
        1000, title=_("Length to"), description=_("Longest text worth 1, in characters."), ge=1, le=1_000_000
    )
    zero_chars: int = Field(
        2000,
        title=_("Zero from"),
        description=_("Length from which it is worth 0, in characters."),
        ge=2,
        le=1_000_000,
    )

    @model_validator(mode="after")
    def _check_order(self) -> LengthBudgetParams:
        if not self.min_chars <= self.max_chars < self.zero_chars:
            raise OptionError("zero_chars", sentence(_("the three lengths must rise")))
        return self


class CallBudgetParams(Params):
    """Parameters of ``tool_call_budget``."""

    max_calls: int = Field(4, title=_("Calls"), description=_("Number of calls without a penalty."), ge=0, le=1000)
    penalty: float = Field(
        0.25, title=_("Penalty"), description=_("Penalty for each call above, down to 0."), ge=0, le=1
    )


class RepetitionParams(ScopeParams):
    """Parameters of ``repetition``."""

    ngram: int = Field(
        4, title=_("Words"), description=_("Words, or Chinese characters, of one compared piece."), ge=1, le=20
    )


class LanguageParams(ScopeParams):
    """Parameters of ``language``."""

    language: Literal["zh", "en"] = Field(
        "zh",
        title=_("Language"),
        description=_("The language that is wanted."),
        json_schema_extra={"choices": {"zh": _("Chinese"), "en": _("English")}},
    )
    no_text_score: float = Field(
        0.0, title=_("No text"), description=_("Value of a text without a word of either."), ge=0, le=1
    )


def length_budget(episode: Episode, params: LengthBudgetParams) -> float:
    """1 within the bounds, then in a straight line down to 0."""
    length = len(_text(episode, params).strip())
    if length < params.min_chars:
        return length / params.min_chars
    if length <= params.max_chars:
        return 1.0
    return max(0.0, (params.zero_chars - length) / (params.zero_chars - params.max_chars))


def tool_call_budget(episode: Episode, params: CallBudgetParams) -> float:
    """1 up to so many calls, less for each above."""
    return max(0.0, 1 - params.penalty * max(0, len(call_outcomes(episode)) - params.max_calls))


def repetition(episode: Episode, params: RepetitionParams) -> float:
    """Share of the text's pieces that are different: 1 where nothing is repeated."""
    words = _PIECES.findall(_text(episode, params).casefold())
    if len(words) <= params.ngram:
        return 1.0
    pieces = [tuple(words[i : i + params.ngram]) for i in range(len(words) - params.ngram + 1)]
    return len(set(pieces)) / len(pieces)


def language(episode: Episode, params: LanguageParams) -> float:
    """Share of the wanted language: Chinese characters against English words."""
    text = _text(episode, params)
    chinese, english = len(_HAN.findall(text)), len(_LATIN.findall(text))
    if not chinese + english:
        return params.no_text_score
    return (chinese if params.language == "zh" else english) / (chinese + english)


def _text(episode: Episode, params: ScopeParams) -> str:
    if params.scope == "final":
        return episode.final_answer[:REPEATED_MAX_CHARS]
    return "\n".join(turn.content for turn in episode.policy_messages)[:REPEATED_MAX_CHARS]


# Which part of the final answer the matches look at.


def answer(episode: Episode, params: AnswerParams) -> list[Span]:
    """The whole answer."""
    found = answer_at(episode, params.marker)
    return piece(*found, _("the answer that is compared")) if found else []


def number(episode: Episode, params: AnswerParams) -> list[Span]:
    """The last number of the answer."""
    found = answer_at(episode, params.marker)
    if found is None:
        return []
    message, start, end = found
    at = last_number_at(episode.final_answer[start:end])
    return piece(message, start + at[0], start + at[1], _("the number that is compared")) if at else []


def pattern(episode: Episode, params: RegexParams) -> list[Span]:
    """The text that the pattern matched."""
    found = answer_at(episode, params.marker)
    if found is None or not params.pattern:
        return []
    message, start, end = found
    at = first_match(params.pattern, episode.final_answer[start:end], whole=params.whole)
    return piece(message, start + at[0], start + at[1], _("what the pattern matched")) if at else []


SOURCE = "Tiltyard"
_ROW = {"answer": "1,053"}
SAID = played("q", says("The answer is 1053."), row=_ROW)
EXACT = played("q", says("Answer:  1,053 "), row=_ROW)
LIST = played("q", says("paris"), row={"answer": ["Paris", "the city of Paris"]})
WRONG = played("q", says("12 or 13"), row=_ROW)
NO_TRUTH = played("q", says("1053"))
JSON = played("q", says('```json\n{"city": "Rome", "days": 3}\n```'))
NO_JSON = played("q", says('{"city": "Rome", "days": "three"}'))
_SCHEMA = '{"type": "object", "required": ["city"], "properties": {"days": {"type": "integer"}}}'
CALLS = played("q", *[part for _turn in range(6) for part in (says("", "ls"), tool("a"))], says("done"))
MIXED = played("q", says("你好 world 世界"))
AGAIN = played("q", says("a b c d a b c d a b c d"))

GENERAL = (
    Component(
        "exact_match",
        _("Exact match"),
        _("The final answer equals the row's answer, ignoring white space."),
        exact_match,
        ExactParams,
        spans=answer,
        source=SOURCE,
        formula="1 if equal, else 0",
        examples=(
            Example("after a marker", EXACT, 1.0, {"marker": "Answer:"}),
            Example("without it", EXACT, 0.0),
            Example("any of a list", LIST, 1.0),
            Example("capitals count", LIST, 0.0, {"ignore_case": False}),
            Example("no answer in the row", NO_TRUTH, None),
        ),
    ),
    Component(
        "math_answer",
        _("Mathematical answer"),
        _("The text claims the row's answer, however it is written: numbers, fractions, LaTeX, units, sets."),
        math_answer,
        MatchParams,
        spans=answer,
        source="Tiltyard; Math-Verify 0.9 (Kydlíček: Math-Verify, 2025) decides on expressions",
        formula="1 if the text asserts exactly one answer, and that is right; else 0 (several answers, a denied one)",
        examples=(
            Example("1053 for 1,053", SAID, 1.0),
            Example("two numbers", WRONG, 0.0),
            Example("denied", played("q", says("The answer is definitely not 1053."), row=_ROW), 0.0),
            Example("a fraction", played("q", says("\\boxed{\\frac{2}{4}}"), row={"answer": "0.5"}), 1.0),
            Example("another unit", played("q", says("5 feet"), row={"answer": "5 meters"}), 0.0),
            Example("the same length", played("q", says("It is 500 cm."), row={"answer": "5 meters"}), 1.0),
            Example("no answer in the row", NO_TRUTH, None),
        ),
    ),
    Component(
        "numeric_match",
        _("Numeric match"),
        _("The last number of the final answer is the row's number."),
        numeric_match,
        NumericParams,
        spans=number,
        source=SOURCE,
        formula="1 if |last number − right number| ≤ tolerance, else 0",
        warning=_(
            "The last number counts, also where the text denies it or names several: `math_answer` looks at that."
        ),
        examples=(
            Example("1053 for 1,053", SAID, 1.0),
            Example("another number", WRONG, 0.0),
            Example("no number", played("q", says("many"), row=_ROW), 0.0),
            Example("no answer in the row", NO_TRUTH, None),
        ),
    ),
    Component(
        "regex_match",
        _("Pattern match"),
        _("The final answer matches a regular expression."),
        regex_match,
        RegexParams,
        spans=pattern,
        source=SOURCE,
        formula="1 if the pattern is found, else 0; missing after a second",
        examples=(
            Example("found", SAID, 1.0, {"pattern": r"\d{4}"}),
            Example("not the whole text", SAID, 0.0, {"pattern": r"\d{4}", "whole": True}),
            Example("no pattern", SAID, None),
        ),
    ),
    Component(
        "json_schema_match",
        _("JSON schema match"),
        _("The final answer is JSON that a schema accepts."),
        json_schema_match,
        SchemaParams,
        spans=answer,
        source=SOURCE,
        formula="1 if it is valid (JSON Schema 2020-12), else 0",
        examples=(
            Example("in a code fence", JSON, 1.0, {"json_schema": _SCHEMA}),
            Example("a text for a number", NO_JSON, 0.0, {"json_schema": _SCHEMA}),
            Example("no JSON", SAID, 0.0),
        ),
    ),
    Component(
        "length_budget",
        _("Length budget"),
        _("The text is neither too short nor too long."),
        length_budget,
        LengthBudgetParams,
        source=SOURCE,
        formula="1 within the bounds; length / lower bound below them; above them a straight line down to 0",
        examples=(
            Example("within", SAID, 1.0),
            Example("halfway between bound and 0", played("q", says("x" * 1500)), 0.5),
            Example("no answer", played("q"), 0.0),
        ),
    ),
    Component(
        "tool_call_budget",
        _("Tool call budget"),
        _("No more calls than needed."),
        tool_call_budget,
        CallBudgetParams,
        source=SOURCE,
        formula="max(0, 1 − penalty · calls above the budget)",
        examples=(Example("six calls", CALLS, 0.5), Example("no call", SAID, 1.0)),
        warning=_("Calling nothing at all is worth 1: use it together with an outcome, or behind a gate."),
    ),
    Component(
        "repetition",
        _("No repetition"),
        _("The text does not repeat itself."),
        repetition,
        RepetitionParams,
        source=SOURCE,
        formula="different pieces of n words / pieces of n words",
        examples=(Example("a b c d three times", AGAIN, 4 / 9), Example("nothing repeated", SAID, 1.0)),
    ),
    Component(
        "language",
        _("Language"),
        _("The text is in the wanted language, Chinese or English."),
        language,
        LanguageParams,
        source=SOURCE,
        formula="Chinese characters / (Chinese characters + English words), or the other way round",
        examples=(
            Example("4 characters, 1 word", MIXED, 0.8),
            Example("the same in English", MIXED, 0.2, {"language": "en"}),
            Example("digits only", played("q", says("1053")), 0.0),
        ),
    ),
)
