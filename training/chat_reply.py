"""The content of a chat completion, read once for judges, chats and endpoints that play.

The model's words are its own: text that is no text, half of a surrogate pair, nesting without end and numbers that are
none are passed on to the judge of the model. What is not of a completion's shape is the server's fault and raises.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from training.plain import REASONING, whole
from training.redaction import Pieces, without_all

UNREADABLE = (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError)
CUT = frozenset({"length", "max_tokens", "model_length"})
"""Reasons to end that mean the limit of tokens: OpenAI's, Anthropic's, Mistral's."""
FILTERED = "content_filter"
COUNTED = ("prompt_tokens", "completion_tokens")
MAX_TOKENS = 100_000_000
"""No model reads or writes so many at once: a larger count is none."""
_MAX_DIGITS = 4300


class Reply(NamedTuple):
    """An answer: the message as the endpoint wrote it, why it ended, and the tokens that it counted, 0 where it
    counted none. ``doubt`` names counts that are no numbers of tokens; ``problem`` explains to the model what is wrong
    with its message."""

    message: dict[str, Any]
    finish: str
    tokens: dict[str, int]
    doubt: str = ""
    problem: str = ""

    @property
    def text(self) -> str:
        """The text of its message."""
        return text_of(self.message.get("content"))

    @property
    def reasoning(self) -> str:
        """The model's thought before its answer, where the server keeps that apart."""
        return well_formed(thought(self.message))

    @property
    def refusal(self) -> str:
        """Why the model does not answer, where it says that apart."""
        return well_formed(refused(self.message))

    @property
    def ended(self) -> str | None:
        """``length`` or ``content_filter`` where the answer was cut off or held back, else ``None``."""
        return "length" if self.finish in CUT else FILTERED if self.finish == FILTERED else None


def read_reply(data: bytes) -> Reply:
    """A whole completion. Raises one of ``UNREADABLE`` for anything else."""
    text = decoded(data)
    try:
        value = json.loads(text, parse_int=_whole)
    except RecursionError:
        if '"choices"' not in text:
            raise
        return Reply({}, "", counted(None)[0], problem="The message is nested too deeply.")
    choice = value["choices"][0]
    tokens, doubt = counted(value.get("usage"))
    return Reply(dict(choice["message"]), str(choice.get("finish_reason") or ""), tokens, doubt)


def decoded(data: bytes) -> str:
    """The bytes as text; those that are no UTF-8 become the sign for that, as where a tokenizer decodes."""
    try:
        return data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return data.decode("utf-8", "replace")


def _whole(digits: str) -> int | float:
    """A whole number; one that Python does not read is taken as infinite, which is no argument either."""
    return int(digits) if len(digits) <= _MAX_DIGITS else math.inf


def counted(usage: Any) -> tuple[dict[str, int], str]:
    """The tokens that a server counted, 0 where it counted none, and which of its counts are no numbers of tokens."""
    found = usage if isinstance(usage, dict) else {}
    tokens = {name: _count(found.get(name)) for name in COUNTED}
    wrong = [f"{name}: {str(found[name])[:20]}" for name, count in tokens.items() if count is None]
    return {name: count or 0 for name, count in tokens.items()}, ", ".join(wrong)


def _count(value: Any) -> int | None:
    """A number of tokens, 0 for none given, ``None`` for what cannot be one."""
    return 0 if value is None else None if isinstance(value, str) else whole(value, MAX_TOKENS)


def well_formed(text: str) -> str:
    """The text with its pairs of surrogates joined, and half ones as the sign for what cannot be read."""
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def text_of(content: Any) -> str:
    """The text of a message's content: a string, nothing, or a list of parts."""
    return well_formed(spoken(content))


def spoken(content: Any) -> str:
    """As ``text_of``, of a piece of a message: half of a surrogate pair may be at its end."""
    if isinstance(content, list):
        return "".join(_words(part) for part in content if _kind(part) not in _APART)
    return content if isinstance(content, str) else ""


def thought(message: dict[str, Any]) -> str:
    """The reasoning of a message, or of a piece of one."""
    named = next(filter(None, (spoken(message.get(name)) for name in REASONING)), "")
    return named or _parts(message.get("content"), "thinking", "reasoning")


def refused(message: dict[str, Any]) -> str:
    """The refusal of a message, or of a piece of one."""
    return spoken(message.get("refusal")) or _parts(message.get("content"), "refusal")


_APART = frozenset({"thinking", "reasoning", "refusal"})
"""Kinds of parts that are no words of the answer."""


def _parts(content: Any, *kinds: str) -> str:
    return "".join(_words(part) for part in content if _kind(part) in kinds) if isinstance(content, list) else ""


def _kind(part: Any) -> str:
    return str(part.get("type")) if isinstance(part, dict) else "text"


def _words(part: Any) -> str:
    """The words of a part, which are under ``text`` or under its kind, there perhaps in parts again (Mistral's)."""
    if isinstance(part, dict):
        part = part.get("text") if part.get("text") is not None else part.get(_kind(part))
    if isinstance(part, list):
        part = "".join(str(each.get("text") or "") for each in part if isinstance(each, dict))
    return part if isinstance(part, str) else ""


# A chat completion that comes in pieces, as OpenAI-compatible servers stream it (server-sent events).
#
# Servers differ: some number their calls and some do not, some send arguments whole, some count tokens in a last piece
# and some nowhere, and some end without ``[DONE]``. What they agree on is read; the rest is ``ValueError``.

FIELD, DONE = b"data:", b"[DONE]"
MAX_CALLS = 64


class Refused(ValueError):
    """The server reported an error in the middle of its answer; the text is its own."""


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
        """Whether a listener has heard some of its text."""
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
