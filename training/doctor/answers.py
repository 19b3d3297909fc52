"""What is wrong with the answer of a rollout that did not solve its task, as far as its words and the expected answer
tell."""

from __future__ import annotations

import math
import re
from enum import StrEnum

from training.rewards.text import numbers

TOLERANCE = 1e-9  # relative: numbers that were written differently


class AnswerKind(StrEnum):
    """The kinds of answers of rollouts that did not solve their task."""

    SILENT = "silent"  # no words at all
    NO_NUMBER = "no_number"  # a number was expected, and its words hold none
    OTHER_NUMBER = "other_number"  # a number was expected, and its words hold others
    OTHER_WORDS = "other_words"  # a text was expected, and its words do not hold it
    HELD = "held"  # its words hold what was expected: something else was wrong, or the reward is
    UNKNOWN = "unknown"  # no expected answer is known, or it is not one text


def answer_kind(words: str, expected: str) -> AnswerKind:
    """The kind of an answer: ``words`` are the end of the model's last text, ``expected`` the answer that was wanted,
    either empty where there is none."""
    expected = expected.strip()
    if not words.strip():
        return AnswerKind.SILENT
    if not expected or expected[0] in "[{":  # a structure, which words need not spell
        return AnswerKind.UNKNOWN
    wanted = _number_of(expected)
    if wanted is None:
        return AnswerKind.HELD if _holds(words, expected) else AnswerKind.OTHER_WORDS
    found = numbers(words)
    if any(math.isclose(each, wanted, rel_tol=TOLERANCE) for each in found):
        return AnswerKind.HELD
    return AnswerKind.OTHER_NUMBER if found else AnswerKind.NO_NUMBER


def _holds(words: str, expected: str) -> bool:
    """Whether the words hold this text, in any case, and not as a part of a Latin word or of a number."""
    whole = rf"(?<![a-z0-9]){re.escape(expected.casefold())}(?![a-z0-9])"
    return re.search(whole, words.casefold()) is not None


def _number_of(text: str) -> float | None:
    """The number that a text is; ``None`` for one that is more than a number."""
    found = numbers(text)
    return found[0] if len(found) == 1 and not any(each.isalpha() for each in text) else None
