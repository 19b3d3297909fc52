"""What every dialect returns."""

from __future__ import annotations

from dataclasses import dataclass, field

from envs.wire import ToolCall


@dataclass(frozen=True)
class ParsedTurn:
    """One model turn: the text around the calls, the calls, and what was wrong with one that could not be parsed.

    ``parse_error`` is a sentence for the model; well-formed calls before and after the broken one are kept.
    """

    text: str
    tool_calls: list[ToolCall] = field(default_factory=list)
    parse_error: str | None = None
