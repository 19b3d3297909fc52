"""No calls: all of what the model wrote is its message."""

from __future__ import annotations

from training.rollout.dialects.base import ParsedTurn


def parse(text: str, call_prefix: str) -> ParsedTurn:
    """The whole completion as a message."""
    return ParsedTurn(text=text.strip())
