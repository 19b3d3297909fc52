"""Helpers of the spans of components: where in the messages a value comes from."""

from __future__ import annotations

from collections.abc import Iterator

from envs.wire import Message
from training.rewards.base import Episode, Span
from training.rewards.turns import Turn, turns_of


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
