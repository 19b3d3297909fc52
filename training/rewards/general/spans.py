"""Which part of the final answer the matches look at."""

from __future__ import annotations

from training.rewards.base import Episode, Span
from training.rewards.general.answers import AnswerParams, RegexParams
from training.rewards.general.patterns import first_match
from training.rewards.spans import answer_at, piece
from training.rewards.text import last_number_at
from training.words import _


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
    """What the pattern matched."""
    found = answer_at(episode, params.marker)
    if found is None or not params.pattern:
        return []
    message, start, end = found
    at = first_match(params.pattern, episode.final_answer[start:end], whole=params.whole)
    return piece(message, start + at[0], start + at[1], _("what the pattern matched")) if at else []
