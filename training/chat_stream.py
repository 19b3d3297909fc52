"""A chat completion that comes in pieces, as OpenAI-compatible servers stream it (server-sent events).

Servers differ: some number their calls and some do not, some send arguments whole, some count tokens in a last piece
and some nowhere, and some end without ``[DONE]``. What they agree on is read; the rest is ``ValueError``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

from training.chat_reply import Reply, counted, refused, spoken, thought, well_formed
from training.redaction import Pieces, without_all

FIELD, DONE = b"data:", b"[DONE]"
MAX_CALLS = 64


class Refused(ValueError):
    """The server told of an error in the middle of its answer; the text is its own."""


class Streamed:
    """One completion while it comes. ``on_text`` hears each piece of its text; ``secrets`` are in none, not even over
    the border of two."""

    def __init__(self, on_text: Callable[[str], None], secrets: Iterable[str] = ()) -> None:
        self._on_text = on_text
        self._secrets = tuple(secrets)
        self._shown = Pieces(self._secrets)
        self._rest, self._looked = bytearray(), 0
        self._text: list[str] = []
        self._half = ""
        self._apart: dict[str, list[str]] = {}
        self._calls: list[dict[str, Any]] = []
        self._numbers: dict[int, dict[str, Any]] = {}
        self._done, self._problem = False, ""
        self.finish = ""
        self.tokens, self.doubt = counted(None)

    @property
    def whole(self) -> bool:
        """Whether the server has said that this was all."""
        return self._done or bool(self.finish)

    @property
    def message(self) -> dict[str, Any]:
        """The message so far, as a server writes it that does not stream."""
        calls = {"tool_calls": self._calls} if self._calls else {}
        apart = {name: "".join(pieces) for name, pieces in self._apart.items()}
        found = {"role": "assistant", "content": "".join(self._text) + well_formed(self._half), **apart, **calls}
        return without_all(found, self._secrets) if self._secrets else found

    @property
    def begun(self) -> bool:
        """Whether somebody has heard some of its text."""
        return bool(self._text)

    @property
    def reply(self) -> Reply:
        """The completion as one that came whole."""
        return Reply(self.message, self.finish, self.tokens, self.doubt, self._problem)

    def feed(self, data: bytes) -> None:
        """Take the next bytes. Raises ``Refused``, and ``ValueError`` where they are no pieces of a completion."""
        self._rest += data
        while (end := self._rest.find(b"\n", self._looked)) >= 0:
            line = bytes(self._rest[:end]).strip()
            del self._rest[: end + 1]
            self._looked = 0
            if line.startswith(FIELD):  # comments, names of events and empty lines say nothing
                self._event(line.removeprefix(FIELD).strip())
        self._looked = len(self._rest)

    def _event(self, data: bytes) -> None:
        if data == DONE:
            self._done = True
            return
        piece = json.loads(data)
        if not isinstance(piece, dict):
            raise ValueError("a piece is no object")
        if error := piece.get("error"):
            raise Refused(str(error.get("message", "") if isinstance(error, dict) else error))
        if usage := piece.get("usage"):
            tokens, self.doubt = counted(usage)
            self.tokens |= {name: count for name, count in tokens.items() if count}
        choices = piece.get("choices") or []
        if choices:
            self._choice(choices[0])

    def _choice(self, choice: dict[str, Any]) -> None:
        delta = choice.get("delta") or {}
        self._feed_text(spoken(delta.get("content")))
        for name, piece in (("reasoning_content", thought(delta)), ("refusal", refused(delta))):
            if piece:
                self._apart.setdefault(name, []).append(piece)
        calls = delta.get("tool_calls") or []
        if single := delta.get("function_call"):
            calls = [{"index": 0, "function": single}]
        for call in calls:
            self._call(call)
        self.finish = str(choice.get("finish_reason") or "") or self.finish

    def _feed_text(self, content: str) -> None:
        """A piece of its text; half of a surrogate pair at its end waits for the other half."""
        whole = self._half + content
        self._half = whole[-1:] if "\ud800" <= whole[-1:] <= "\udbff" else ""
        self._heard(self._shown.feed(well_formed(whole[: len(whole) - len(self._half)])))

    def end(self) -> None:
        """No more comes: say what waited for more."""
        self._heard(self._shown.rest())

    def _heard(self, text: str) -> None:
        if text:
            self._text.append(text)
            self._on_text(text)

    def _call(self, piece: dict[str, Any]) -> None:
        """A call, or a further piece of one: by its number, or else by whether it has a new id or name."""
        function = piece.get("function") or {}
        number, known = piece.get("index"), None
        if isinstance(number, int):
            known = self._numbers.get(number)
        elif self._calls and not piece.get("id") and not function.get("name"):
            known = self._calls[-1]
        if known is None:
            if len(self._calls) >= MAX_CALLS:
                self._problem = f"More than {MAX_CALLS} tool calls in one turn."
                return
            known = {"id": piece.get("id"), "type": "function", "function": {"name": "", "arguments": ""}}
            self._calls.append(known)
            if isinstance(number, int):
                self._numbers[number] = known
        written = known["function"]
        written["name"] = written["name"] or function.get("name") or ""
        arguments = function.get("arguments")
        if isinstance(arguments, dict):
            written["arguments"] = arguments
        elif isinstance(arguments, str) and isinstance(written["arguments"], str):
            written["arguments"] += arguments
