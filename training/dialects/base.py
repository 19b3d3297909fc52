"""The result of every dialect, and the helpers that all of them need to read one call."""

from __future__ import annotations

import json
import re
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
    ``wrote``: the whole text of such a turn, where ``text`` lacks some of it; for people; the model does not get it.
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
    """A call cannot be read; its text is a sentence for the model. ``end``: where reading continues, if known."""

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


# Where a model's thoughts begin and end. Calls that are drafted in a thought are not made.

MARKS = {
    "<think>": "</think>",
    "<seed:think>": "</seed:think>",
    "<think:opensource>": "</think:opensource>",
    "[THINK]": "[/THINK]",
    "<|START_THINKING|>": "<|END_THINKING|>",
    "<|channel>thought": "<channel|>",
    "<|channel|>analysis<|message|>": "<|end|>",
    "to=self<|message|>": "<|eom|>",
    "<|inner_prefix|>": "<|inner_suffix|>",
}
"""Opening marks of thoughts with their closing ones, over all families."""
PLAIN = ("</think>", "</seed:think>", "</think:opensource>", "[/THINK]", "<|END_THINKING|>", "<|inner_suffix|>")
"""Closing marks that close nothing else, so that one without an opening mark closes what the prompt opened."""
OPENING = re.compile("|".join(re.escape(mark) for mark in MARKS))
_EITHER = re.compile("|".join(re.escape(mark) for mark in (*MARKS, *PLAIN)))


def first_closing(text: str) -> tuple[int, int] | None:
    """Where a thought that was open before ``text`` is closed: begin and end of the mark, ``None`` if it is not."""
    match = _EITHER.search(text)
    return None if match is None or match[0] in MARKS else match.span()


def open_thought(prompt: str) -> str:
    """The opening mark of the thought that a prompt ends in, so that the model's turn continues with it; empty without
    one."""
    last = max(prompt.rfind(mark) for mark in MARKS)
    match = OPENING.match(prompt, last) if last >= 0 else None
    return match[0] if match is not None and MARKS[match[0]] not in prompt[last:] else ""


def opens_thought(prompt: str) -> bool:
    """Whether a prompt ends inside a thought."""
    return bool(open_thought(prompt))


def split_thought(text: str, *, in_thought: bool = False) -> tuple[str | None, str, bool]:
    """The thought, the text behind the last thought, and whether that thought is closed.

    For dialects whose calls cannot be distinguished from words, so that no call in front of a thought can be meant.
    """
    ends = [(text.rfind(mark) + len(mark), mark) for mark in PLAIN if mark in text]
    begun = None if ends else OPENING.match(text.lstrip())
    if begun is not None or (in_thought and not ends):
        return OPENING.sub("", text).strip() or None, "", False
    if not ends:
        return None, text, True
    end, mark = max(ends)
    return OPENING.sub("", text[: end - len(mark)]).strip() or None, text[end:], True
