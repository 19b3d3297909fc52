"""The number that a solution ends in, and its steps."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from training.rewards.base import Episode, Span
from training.rewards.spans import last_said, piece
from training.rewards.text import last_number_at
from training.words import _

MAX_STEPS_SHOWN = 50


def found_number(episode: Episode, marks: Sequence[re.Pattern[str]], max_chars: int) -> list[Span]:
    """What stands behind the first known mark, else the last number of the last line that has any."""
    said = last_said(episode)
    if said is None:
        return []
    place, text, note = said[0], said[1].content, _("the number that is compared")
    skipped = max(0, len(text) - max_chars)
    text = text[skipped:]
    for mark in marks:
        if match := mark.search(text):
            return piece(place, skipped + match.start(1), skipped + match.end(1), note)
    end = len(text)
    for line in reversed(text.splitlines(keepends=True)):
        end -= len(line)
        if at := last_number_at(line):
            return piece(place, skipped + end + at[0], skipped + end + at[1], note)
    return []


def steps(episode: Episode, markers: re.Pattern[str] | None, max_chars: int) -> list[Span]:
    """The step marks, or the lines that end in a break where there are no marks to look for."""
    said = last_said(episode)
    if said is None:
        return []
    place, text = said[0], said[1].content[:max_chars]
    found = _lines(text) if markers is None else ((match.start(), match.end()) for match in markers.finditer(text))
    spans: list[Span] = []
    for start, end in found:
        if len(spans) == MAX_STEPS_SHOWN:
            break
        spans += piece(place, start, end, _("a step"))
    return spans


def _lines(text: str) -> Iterator[tuple[int, int]]:
    start = 0
    while (end := text.find("\n", start)) >= 0:
        yield start, end + 1
        start = end + 1
