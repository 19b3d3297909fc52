"""Whatever family a text is of: for endpoints, whose chat templates are not known here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from training.dialects.bare_json import names_of
from training.dialects.base import Parse, ParsedTurn, Tools
from training.dialects.reading import Marked


class Anyone:
    """Reads a turn by the first dialect that finds calls in it; without any, by the first that finds a broken one.

    ``unmarked`` dialects have no marks: an answer may look like them, so only calls of offered tools count.
    """

    def __init__(self, marked: Sequence[Marked], unmarked: Sequence[Parse], plain: Parse) -> None:
        self._marked, self._unmarked, self._plain = marked, unmarked, plain

    def __call__(
        self, text: str, call_prefix: str, tools: Tools | None = None, *, in_thought: bool = False
    ) -> ParsedTurn:
        """Read a turn."""
        broken: ParsedTurn | None = None
        for turn in self._readings(text, call_prefix, tools, in_thought):
            if turn.tool_calls:
                return turn
            broken = broken or (turn if turn.parse_error else None)
        return broken or self._plain(text, call_prefix, tools, in_thought=in_thought)

    def _readings(self, text: str, call_prefix: str, tools: Tools | None, in_thought: bool) -> Iterator[ParsedTurn]:
        for marked in self._marked:
            if marked.opens(text):
                yield marked(text, call_prefix, tools, in_thought=in_thought)
        offered = names_of(tools)
        for parse in self._unmarked:
            turn = parse(text, call_prefix, tools, in_thought=in_thought)
            if {call.name for call in turn.tool_calls} <= offered and turn.tool_calls:
                yield turn
