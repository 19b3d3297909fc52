"""No calls: all of what the model wrote is its message."""

from __future__ import annotations

from training.dialects.base import ParsedTurn, Tools


def parse(text: str, call_prefix: str, tools: Tools | None = None, *, in_thought: bool = False) -> ParsedTurn:
    """The whole completion as a message."""
    return ParsedTurn(text=text.strip())
