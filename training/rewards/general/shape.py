"""How much is said and called, how often it is repeated, and in which language."""

from __future__ import annotations

import re
from typing import Literal

from pydantic import Field, model_validator

from training.rewards.base import Episode, Params
from training.rewards.turns import call_outcomes
from training.words import OptionError, _, sentence

MAX_CHARS = 200_000
_HAN = re.compile("[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")
_LATIN = re.compile("[A-Za-z]+")
_PIECES = re.compile(
    "[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\u3040-\u30ff\U00020000-\U0003ffff]|[^\\W\u3040-\u30ff\u3400-\u9fff]+"
)


class ScopeParams(Params):
    """Which of the model's texts count."""

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
        return episode.final_answer[:MAX_CHARS]
    return "\n".join(turn.content for turn in episode.policy_messages)[:MAX_CHARS]
