"""What every dialect returns, and how all of them read JSON."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import Any

from envs.wire import ToolCall


@dataclass(frozen=True)
class ParsedTurn:
    """One model turn: the text around the calls, the calls, and what was wrong with one that could not be parsed.

    ``parse_error`` is a sentence for the model; well-formed calls before and after the broken one are kept.
    ``wrote``: the whole text of such a turn, where ``text`` lacks some of it; for people, the model is not told.
    """

    text: str
    tool_calls: list[ToolCall] = field(default_factory=list)
    parse_error: str | None = None
    wrote: str | None = None

    def read_from(self, text: str) -> ParsedTurn:
        """It, with the ``text`` that it was read from where a call is broken and the message lacks some of that."""
        lost = self.parse_error is not None and text.strip() != self.text.strip()
        return replace(self, wrote=text) if lost else self


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


# Stops where the value ends, and takes no NaN.
json_decoder = json.JSONDecoder(parse_constant=_no_constant)


def json_reason(exc: Exception) -> str:
    """Why some JSON could not be read, in words for the model."""
    if isinstance(exc, json.JSONDecodeError):
        return f"{exc.msg} at character {exc.pos}"
    return "it is nested too deeply" if isinstance(exc, RecursionError) else str(exc)[:80]
