"""What every dialect returns, and what all of them need to read one call."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from envs.wire import Message, ToolCall
from training.plain import json_problem

Tools = list[dict[str, Any]]
Found = tuple[str, dict[str, Any]]
"""A call's name and arguments."""
MAX_NAME = 64
"""Characters of a name that a sentence repeats."""


@dataclass(frozen=True)
class ParsedTurn:
    """One model turn: the text around the calls, the calls, and what was wrong with one that could not be parsed.

    ``reasoning`` is what it thought, without the marks; calls that it drafted there are not made. ``parse_error`` is a
    sentence for the model; well-formed calls before and after the broken one are kept.
    ``wrote``: the whole text of such a turn, where ``text`` lacks some of it; for people, the model is not told.
    """

    text: str
    tool_calls: list[ToolCall] = field(default_factory=list)
    parse_error: str | None = None
    wrote: str | None = None
    reasoning: str | None = None

    def read_from(self, text: str) -> ParsedTurn:
        """It, with the ``text`` that it was read from where a call is broken and the message lacks some of that."""
        lost = self.parse_error is not None and text.strip() != self.text.strip()
        return replace(self, wrote=text) if lost else self

    def message(self) -> Message:
        """The turn as the assistant's message."""
        return Message(
            role="assistant", content=self.text, tool_calls=self.tool_calls or None, reasoning=self.reasoning
        )


class Parse(Protocol):
    """Reads a turn: its text, how the ids of its calls begin, the tools that it may call, and whether the prompt ended
    inside a thought. Never raises."""

    def __call__(
        self, text: str, call_prefix: str, tools: Tools | None = None, *, in_thought: bool = False
    ) -> ParsedTurn: ...


class Unreadable(ValueError):
    """A call cannot be read; its text is a sentence for the model. ``end``: where reading goes on, if that is known."""

    def __init__(self, sentence: str, end: int | None = None) -> None:
        super().__init__(sentence)
        self.end = end


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


# Stops where the value ends, and takes no NaN.
json_decoder = json.JSONDecoder(parse_constant=_no_constant)


def json_reason(exc: Exception) -> str:
    """Why some JSON could not be read, in words for the model."""
    if isinstance(exc, json.JSONDecodeError):
        return f"{exc.msg} at character {exc.pos}"
    return "it is nested too deeply" if isinstance(exc, RecursionError) else str(exc)[:80]


def checked(name: str, arguments: dict[str, Any]) -> Found:
    """A call that can be passed on. Raises ``Unreadable``."""
    if not name.strip():
        raise Unreadable("The tool call has no name.")
    if (problem := json_problem([name, arguments])) is not None:
        raise Unreadable(f"The tool call cannot be used: {problem}.")
    return name.strip(), arguments


def skip_spaces(text: str, at: int) -> int:
    """The place of the next character that is no white space, or the end."""
    while at < len(text) and text[at].isspace():
        at += 1
    return at
