"""Items of OpenAI's Responses API as chat messages: calls, their results and reasoning stand there apart from messages.

Calls in a row are one turn of the model, with the message and the reasoning before them.
"""

from __future__ import annotations

from typing import Any

from envs.wire import Message, ToolCall
from training.chat_reply import text_of
from training.imports.base import BadRow
from training.imports.turns import call_of, messages_of, shown_text
from training.words import _, sentence


class _Talk:
    """A conversation in the making."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self._open = False
        """Whether the last message is a turn of the model that may go on."""
        self._thought = ""
        self.names: dict[str, str] = {}
        """The tools of the calls, by the ids of those."""

    def said(self, text: str) -> None:
        """A text of the model."""
        if self._open and not self.messages[-1].tool_calls:
            last = self.messages[-1]
            last.content = "\n".join(part for part in (last.content, text) if part)
            return
        self._turn(text)

    def called(self, call: ToolCall) -> None:
        """A call of the model."""
        if not self._open:
            self._turn("")
        self.messages[-1].tool_calls = [*(self.messages[-1].tool_calls or []), call]
        self.names[call.id] = call.name

    def thought(self, text: str) -> None:
        """Reasoning of the turn that follows."""
        self._open = False
        self._thought = "\n".join(part for part in (self._thought, text) if part)

    def heard(self, message: Message) -> None:
        """What somebody else says."""
        self.messages.append(message)
        self._open = False

    def _turn(self, text: str) -> None:
        self.messages.append(Message(role="assistant", content=text, reasoning=self._thought or None))
        self._open, self._thought = True, ""


def conversation(items: Any) -> list[Message]:
    """The messages of a list of items, or of a text. Raises ``BadRow``."""
    if isinstance(items, str):
        return [Message(role="user", content=items)]
    if not isinstance(items, list):
        raise BadRow(_("it holds neither a text nor a list of messages"))
    talk = _Talk()
    for number, item in enumerate(items, 1):
        if not isinstance(item, dict):
            raise BadRow(sentence(_("message {number} has no role that is known"), number=number))
        _take(talk, item, number)
    return talk.messages


def _take(talk: _Talk, item: dict[str, Any], number: int) -> None:
    kind = str(item.get("type") or "message")
    if kind == "reasoning":
        talk.thought(text_of(item.get("content")) or text_of(item.get("summary")))
    elif kind == "function_call":
        talk.called(call_of(item, str(item.get("call_id") or f"call_{number}")))
    elif kind == "function_call_output":
        called = str(item.get("call_id") or "")
        name = talk.names.get(called)
        talk.heard(Message(role="tool", content=shown_text(item.get("output")), tool_call_id=called, name=name))
    elif kind == "message" and item.get("role") == "assistant":
        talk.said(shown_text(item.get("content")))
    elif kind == "message":
        talk.heard(messages_of([item], "user")[0])
    else:  # a search, a file: shown by its kind
        talk.said(f"[{kind[:40]}]")
