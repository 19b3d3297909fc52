"""The loop that all marked dialects share: thoughts, words and blocks of calls, one after the other.

A dialect is a few *forms*: how a block of calls begins, and a function that reads it. Nothing a model writes raises,
and a flood of broken blocks is read in linear time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from envs.wire import ToolCall
from training.dialects.base import MARKS, OPENING, Found, ParsedTurn, Tools, Unreadable, first_closing

MAX_CALLS = 16
MAX_TRIED = 64
"""Blocks that are read at most, broken ones included: each may cost a look at the whole rest of the text."""
UNCLOSED = "The thought is not closed with {mark}, so the calls in it were not made."
Read = Callable[[str, "re.Match[str]", "Tools | None"], "Block | None"]


@dataclass(frozen=True)
class Block:
    """Calls that were read, and where the rest of the text begins."""

    calls: list[Found]
    end: int


@dataclass(frozen=True)
class Form:
    """One way to write calls. ``read`` reads the block at a match of ``opening``: ``None`` if it is none after all;
    raises ``Unreadable``. ``closing`` ends a block that ``mark`` begins; one that closes nothing is an error."""

    opening: re.Pattern[str]
    read: Read
    closing: str = ""
    mark: str = ""


@dataclass
class Turn:
    """One turn while it is read."""

    text: str
    forms: Sequence[Form]
    tools: Tools | None
    words: list[str] = field(default_factory=list)
    thoughts: list[str] = field(default_factory=list)
    calls: list[Found] = field(default_factory=list)
    error: str | None = None
    tried: int = 0
    _next: dict[int, re.Match[str] | None] = field(default_factory=dict)

    def read(self, *, in_thought: bool) -> None:
        """Read all of it."""
        position = self._leading_thought(in_thought)
        while position < len(self.text):
            form, match = self._block_after(position)
            thought = self._search(-1, OPENING, position)
            if thought is not None and (match is None or thought.start() < match.start()):
                self.words.append(self.text[position : thought.start()])
                position = self._thought(thought)
            elif form is None or match is None or self.tried == MAX_TRIED:
                break
            else:
                self.words.append(self.text[position : match.start()])
                position = self._block(form, match)
        self.words.append(self.text[position:])
        if self.tried == MAX_TRIED and self._block_after(position)[1] is not None:
            self.error = self.error or f"More than {MAX_TRIED} tool calls in one turn."

    def _leading_thought(self, in_thought: bool) -> int:
        """Cut off a thought that the prompt began; where the rest begins."""
        closed = first_closing(self.text)
        if closed is None:
            return self._unclosed(0, "</think>") if in_thought and OPENING.match(self.text.lstrip()) is None else 0
        if not in_thought and self._inside_a_call(closed[0]):
            return 0
        self.thoughts.append(self.text[: closed[0]])
        return closed[1]

    def _inside_a_call(self, place: int) -> bool:
        """Whether a well-formed block reaches over a place: the mark there is part of an argument."""
        position, inside = 0, False
        for _ in range(MAX_TRIED):
            form, match = self._block_after(position)
            if form is None or match is None or match.start() > place or inside:
                break
            try:
                block = form.read(self.text, match, self.tools)
            except Unreadable:
                block = None
            position = block.end if block is not None else match.end()
            inside = block is not None and position > place
        self._next.clear()
        return inside

    def _thought(self, opening: re.Match[str]) -> int:
        closing = MARKS[opening[0]]
        end = self.text.find(closing, opening.end())
        if end < 0:
            return self._unclosed(opening.end(), closing)
        self.thoughts.append(self.text[opening.end() : end])
        return end + len(closing)

    def _unclosed(self, begin: int, mark: str) -> int:
        """The whole rest is a thought. Serving stacks make no call of such a turn either."""
        if self._block_after(begin)[1] is not None:
            self.error = self.error or UNCLOSED.format(mark=mark)
        self.thoughts.append(self.text[begin:])
        return len(self.text)

    def _block_after(self, position: int) -> tuple[Form | None, re.Match[str] | None]:
        """The first block that begins at ``position`` or later."""
        found = [(form, self._search(place, form.opening, position)) for place, form in enumerate(self.forms)]
        return min(
            ((form, match) for form, match in found if match is not None),
            key=lambda pair: pair[1].start(),
            default=(None, None),
        )

    def _search(self, key: int, pattern: re.Pattern[str], position: int) -> re.Match[str] | None:
        """``pattern.search`` from ``position`` on, which only grows: what was found ahead is kept."""
        known = self._next.get(key, ...)
        if known is ... or (known is not None and known.start() < position):
            self._next[key] = pattern.search(self.text, position)
        return self._next[key]

    def _block(self, form: Form, match: re.Match[str]) -> int:
        """Read one block; returns where the rest of the text begins."""
        self.tried += 1
        try:
            block = form.read(self.text, match, self.tools)
        except Unreadable as exc:
            self.error = self.error or str(exc)
            return exc.end if exc.end is not None else after_broken(self.text, match.end(), form.opening, form.closing)
        if block is None:
            self.words.append(match[0])
            return match.end()
        room = MAX_CALLS - len(self.calls)
        if len(block.calls) > room:
            self.error = self.error or f"More than {MAX_CALLS} tool calls in one turn."
        self.calls += block.calls[:room]
        return block.end


def after_broken(text: str, start: int, opening: re.Pattern[str], closing: str) -> int:
    """Skip a block that is broken at ``start``: past its closing mark, or to the next opening one, or to the end."""
    close = text.find(closing, start) if closing else -1
    nested = opening.search(text, start)
    if close >= 0 and (nested is None or close < nested.start()):
        return close + len(closing)
    return nested.start() if nested is not None else len(text)


def read_turn(
    text: str,
    call_prefix: str,
    forms: Sequence[Form],
    tools: Tools | None = None,
    *,
    in_thought: bool = False,
    noise: re.Pattern[str] | None = None,
) -> ParsedTurn:
    """Split a completion into thoughts, text and calls; the calls get ids ``<call_prefix>0``, ``<call_prefix>1``, …

    ``in_thought``: the prompt ended inside a thought. ``noise``: marks that frame a message and are none of its text.
    """
    turn = Turn(text, forms, tools)
    turn.read(in_thought=in_thought)
    rest = "".join(turn.words)
    rest = noise.sub("", rest) if noise is not None else rest
    error = turn.error
    for form in forms:
        if form.closing and form.closing in rest:
            error = error or f"{form.closing} without {form.mark or 'a tool call before it'}."
    calls = [ToolCall(id=f"{call_prefix}{n}", name=name, arguments=given) for n, (name, given) in enumerate(turn.calls)]
    return ParsedTurn(rest.strip(), calls, error, reasoning=thought_text(turn.thoughts))


def thought_text(thoughts: Sequence[str]) -> str | None:
    """Thoughts as one text; ``None`` where nothing was thought."""
    return "\n\n".join(part.strip() for part in thoughts if part.strip()) or None


@dataclass(frozen=True)
class Marked:
    """A dialect of forms. ``noise``: a pattern of marks that frame a message and are none of its text."""

    forms: tuple[Form, ...]
    noise: re.Pattern[str] | None = None

    def __call__(
        self, text: str, call_prefix: str, tools: Tools | None = None, *, in_thought: bool = False
    ) -> ParsedTurn:
        """Read a turn."""
        return read_turn(text, call_prefix, self.forms, tools, in_thought=in_thought, noise=self.noise)

    def opens(self, text: str) -> bool:
        """Whether a block of calls of this dialect begins in a text."""
        return any(form.opening.search(text) for form in self.forms)
