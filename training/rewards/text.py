"""Measures of text, fair to English and Chinese alike, and where in the messages a value comes from."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from itertools import chain, islice

from envs.wire import MAX_REWARD, Message
from training.rewards.base import Episode, Span
from training.rewards.turns import Turn, turns_of

# Text measures of the reward components, fair to English and Chinese alike.
#
# source: SEED 2 compares texts by words cut at white space; differs: Chinese and Japanese put no spaces between
# words, so runs of their characters are compared by overlapping n-grams instead. All comparisons ignore case.

HEAD_CHARS = 2000
"""Only this much of a tool result's beginning is searched for its key words."""
KEY_NGRAMS = 12
"""How many CJK n-grams of a result count as "its first words": about one short sentence."""

_HAN = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\u3040-\u30ff\U00020000-\U0003ffff"
_WORD = re.compile(r"\w+")
_CJK_RUN = re.compile(f"[{_HAN}]+")
_TOKEN = re.compile(rf"[{_HAN}]+|[^\W{_HAN}]+")


def ngrams(run: str, n: int) -> list[str]:
    """Overlapping pieces of ``n`` characters; a shorter run is one piece."""
    return [run[i : i + n] for i in range(len(run) - n + 1)] if len(run) > n else [run]


def tokens(text: str, n: int) -> set[str]:
    """Words of a text, lower-cased; runs of CJK characters give their ``n``-grams."""
    found: set[str] = set()
    for piece in _TOKEN.findall(text.casefold()):
        found.update(ngrams(piece, n) if _CJK_RUN.match(piece) else (piece,))
    return found


def overlap_share(wanted: str, text: str, n: int) -> float:
    """Share (0 to 1) of the tokens of ``wanted`` that occur in ``text``; 0 where ``wanted`` has none."""
    asked = tokens(wanted, n)
    return len(asked & tokens(text, n)) / len(asked) if asked else 0.0


def mentions(result: str, answer: str, *, words: int, min_chars: int, n: int, share: float) -> bool:
    """Whether an answer takes up the beginning of a tool result.

    True when one of the first ``words`` words with at least ``min_chars`` characters is in the answer, or, for
    results with CJK text, when at least ``share`` of their first ``KEY_NGRAMS`` different n-grams do.
    """
    head, answer = result[:HEAD_CHARS].casefold(), answer.casefold()
    if any(len(word) >= min_chars and word in answer for word in head.split()[:words]):
        return True
    grams = _key_ngrams(head, n)
    return bool(grams) and sum(gram in answer for gram in grams) >= share * len(grams)


def _key_ngrams(head: str, n: int) -> list[str]:
    """The first ``KEY_NGRAMS`` different n-grams, looked for among four times as many: a text may repeat itself."""
    runs = islice(_CJK_RUN.finditer(head), KEY_NGRAMS * 4)
    every = chain.from_iterable(ngrams(run[0], n) for run in runs)
    return list(islice(dict.fromkeys(islice(every, KEY_NGRAMS * 4)), KEY_NGRAMS))


def literal_share(wanted: str, text: str) -> float:
    """The seed's own share: words are runs of letters and digits, so a Chinese sentence is one word."""
    asked = set(_WORD.findall(wanted.lower()))
    return len(asked & set(_WORD.findall(text.lower()))) / len(asked) if asked else 0.0


def literal_mentions(result: str, answer: str, *, words: int, min_chars: int) -> bool:
    """The seed's own rule: the result's words as they are, in the answer in lower case."""
    answer = answer.lower()
    return any(len(word) >= min_chars and word in answer for word in result[:HEAD_CHARS].split()[:words])


# --- Numbers --------------------------------------------------------------------------------------------------------
# The numbers in texts: ``1,053``, ``$12.50``, ``-3``, ``40%``; ``1/2`` is two.

MAX_CHARS = 100_000
# Not inside a word of Latin letters, but right after a Chinese character: "有25个".
_NUMBER = re.compile(
    r"(?<![A-Za-z0-9_.\u00c0-\u024f])[-−+]?(?:\d{1,3}(?:,\d{3})+(?!\d)|\d{1,100})(?:\.\d{1,100})?(?:[eE][-+]?\d{1,3})?"
)


def numbers(text: str) -> list[float]:
    """The finite numbers of a text's last ``MAX_CHARS`` characters, in order."""
    found = (_to_float(piece) for piece in _NUMBER.findall(text[-MAX_CHARS:]))
    return [number for number in found if math.isfinite(number)]


def last_number_at(text: str) -> tuple[int, int] | None:
    """Where the last of ``numbers`` is."""
    skipped = max(0, len(text) - MAX_CHARS)
    found = [match.span() for match in _NUMBER.finditer(text[skipped:]) if math.isfinite(_to_float(match[0]))]
    return (found[-1][0] + skipped, found[-1][1] + skipped) if found else None


def first_number(text: str) -> float | None:
    """The first number of a text."""
    match = _NUMBER.search(text[:MAX_CHARS])
    number = _to_float(match[0]) if match else math.nan
    return number if math.isfinite(number) else None


def _to_float(piece: str) -> float:
    return float(piece.replace(",", "").replace("−", "-"))


# --- Bounds ---------------------------------------------------------------------------------------------------------
# How large a reward may be: one bound for environments, components and what is recorded elsewhere.

__all__ = ["MAX_REWARD", "within_bounds"]


def within_bounds(value: float) -> bool:
    """Whether a number can be a reward or a part of one: finite, and at most ``MAX_REWARD`` in size."""
    return -MAX_REWARD <= value <= MAX_REWARD


# Helpers of the spans of components: where in the messages a value comes from.


def placed_turns(episode: Episode) -> Iterator[tuple[int, Turn]]:
    """The policy's turns, each with the place of its message."""
    places = (i for i, m in enumerate(episode.messages) if i >= episode.prompt_length and m.role == "assistant")
    return zip(places, turns_of(episode), strict=True)


def whole(message: int, note: str) -> Span:
    """All of a message, or its calls."""
    return Span(message, 0, 0, note)


def piece(message: int, start: int, end: int, note: str) -> list[Span]:
    """A piece of a message's text; none where it is empty."""
    return [Span(message, start, end, note)] if end > start else []


def answer_at(episode: Episode, marker: str = "") -> tuple[int, int, int] | None:
    """The message, start and end of the final answer, behind the last ``marker``; ``None`` without an answer."""
    text = episode.final_answer
    if not text or (marker and marker not in text):
        return None
    start = text.rfind(marker) + len(marker) if marker else 0
    start += len(text[start:]) - len(text[start:].lstrip())
    return len(episode.messages) - 1, start, max(start, len(text.rstrip()))


def last_said(episode: Episode) -> tuple[int, Message] | None:
    """The last message of the policy with its place."""
    places = [(i, m) for i, m in enumerate(episode.messages) if i >= episode.prompt_length and m.role == "assistant"]
    return places[-1] if places else None
