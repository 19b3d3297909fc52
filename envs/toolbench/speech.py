"""How the model speaks: native calls of the wire, or ToolBench's Thought, Action and Action Input in one text.

Both read a request into an ``Action`` and render its outcomes into messages. The sentences that answer an unreadable
text are those of the published training client, word for word.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from envs.toolbench.documents import FINISH
from envs.toolbench.tasks import Speech, Task
from envs.toolbench.values import MAX_TEXT_LENGTH, ValueFault, load_leading_json
from envs.wire import Message, StepRequest, ToolCall

MAX_NAME_LENGTH = 64
MAX_ERROR_LENGTH = 200
MAX_CALLS_PER_TURN = 8
MAX_ANSWERED_CALLS = 16

INVALID_ACTION = "\nMy previous action is invalid. Please check the Action and Action Input format.\n"
NO_ACTION = "\nMy previous action is invalid. Please provide Thought, Action, and Action Input.\n"
GAVE_UP = "\n\nI give up and restart.\n\n"
NO_CALL = "Nothing was called. Call a function, or Finish to end the task."
RULES = (
    "You answer the user's query with the functions of some web APIs. Their results can be wrong, empty or errors: "
    "look at each before you go on. "
)
NATIVE_PROMPT = (
    f"{RULES}Call functions until you have what the user wants, then call {FINISH} with an answer that holds all of "
    f"it. If the functions do not get you there, call {FINISH} and give up."
)
TEXT_PROMPT = (
    f"{RULES}Every reply has these three parts and nothing after them:\n"
    "Thought: what you know and what to do next\nAction: the name of one function\n"
    "Action Input: its arguments as one JSON object\n"
    "The result is the next message. Once you have what the user wants, the action is "
    f"{FINISH} with an answer that holds all of it; if the functions do not get you there, it is {FINISH} to give up.\n"
    "The functions:\n"
)


@dataclass(frozen=True, slots=True)
class Action:
    """The action of a turn. ``form`` is how well it was written: the seed's format score, from 0 to 1."""

    form: float
    calls: Sequence[ToolCall] = ()
    error: str | None = None


@dataclass(slots=True)
class Outcome:
    """The outcome of a call: the content for the model and the status of upstream's environment."""

    call: ToolCall
    content: str
    status: int
    source: str = "error"


class Dialect(ABC):
    """One way to speak."""

    @abstractmethod
    def opening(self, task: Task) -> list[Message]:
        """The system message and the query."""

    @abstractmethod
    def tools(self, task: Task) -> list[dict[str, Any]]:
        """The function schemas that go with the messages."""

    @abstractmethod
    def read(self, request: StepRequest) -> Action:
        """The model's action; a text that cannot be read becomes an error in the words for the model."""

    @abstractmethod
    def render(self, request: StepRequest, action: Action, outcomes: list[Outcome]) -> list[Message]:
        """The next messages."""


class NativeDialect(Dialect):
    """Calls are calls, and results are tool messages."""

    def opening(self, task: Task) -> list[Message]:
        return [Message(role="system", content=NATIVE_PROMPT), Message(role="user", content=task.query)]

    def tools(self, task: Task) -> list[dict[str, Any]]:
        return task.tools

    def read(self, request: StepRequest) -> Action:
        if request.parse_error is not None and not request.tool_calls:
            return Action(0.5, error=_unreadable(request.parse_error))
        if not request.tool_calls:
            partly = "Thought:" in request.message or "Action:" in request.message
            return Action(0.2 if partly else 0.0, error=NO_CALL)
        return Action(1.0 if request.parse_error is None else 0.5, request.tool_calls[:MAX_ANSWERED_CALLS])

    def render(self, request: StepRequest, action: Action, outcomes: list[Outcome]) -> list[Message]:
        if action.error is not None:
            return [Message(role="user" if request.parse_error is None else "tool", content=action.error)]
        messages = [
            Message(
                role="tool",
                content=outcome.content,
                tool_call_id=outcome.call.id[:MAX_NAME_LENGTH],
                name=outcome.call.name[:MAX_NAME_LENGTH],
            )
            for outcome in outcomes
        ]
        if request.parse_error is not None:
            messages.append(Message(role="tool", content=_unreadable(request.parse_error)))
        return messages


class TextDialect(Dialect):
    """ToolBench's own: everything is text, one action a turn, and the result is an Observation."""

    def opening(self, task: Task) -> list[Message]:
        functions = json.dumps([tool["function"] for tool in task.tools], ensure_ascii=False)
        system = Message(role="system", content=TEXT_PROMPT + functions)
        return [system, Message(role="user", content=task.query)]

    def tools(self, task: Task) -> list[dict[str, Any]]:
        return []

    def read(self, request: StepRequest) -> Action:
        if request.tool_calls:
            # A trainer's own dialect may have taken the action out of the text.
            return Action(1.0, request.tool_calls[:1])
        if request.parse_error is not None:
            return Action(0.5, error=INVALID_ACTION)
        return read_text(request.message)

    def render(self, request: StepRequest, action: Action, outcomes: list[Outcome]) -> list[Message]:
        if action.error is not None:
            return [Message(role="user", content=action.error)]
        return [Message(role="user", content=f"\n\nObservation: {outcome.content}\n\n") for outcome in outcomes]


def _unreadable(reason: str) -> str:
    shown = " ".join(reason.split())[:MAX_ERROR_LENGTH]
    return json.dumps({"error": f"The call could not be read: {shown}", "response": ""})


DIALECTS: dict[Speech, Dialect] = {"native": NativeDialect(), "text": TextDialect()}

_THOUGHT, _ACTION, _INPUT = "Thought:", "\nAction:", "\nAction Input:"
_TEXT_PAIR = re.compile(r'"(\w{1,64})":\s*"([^"]*)"')
_NUMBER_PAIR = re.compile(r'"(\w{1,64})":\s*(\d{1,15})')


def read_text(text: str) -> Action:
    """Read one Thought, Action and Action Input; what follows the input's closing brace is not read."""
    thought, name_at, input_at = text.find(_THOUGHT), text.find(_ACTION), text.find(_INPUT)
    if thought < 0 or name_at < 0 or input_at < name_at:
        return Action(0.2 if thought >= 0 or "Action:" in text else 0.0, error=NO_ACTION)
    name = text[name_at + len(_ACTION) : input_at].strip()
    arguments, form = _read_input(text[input_at + len(_INPUT) :].strip())
    if arguments is None or not name:
        return Action(0.5, error=INVALID_ACTION)
    return Action(form, (ToolCall(id="text", name=name, arguments=arguments),))


def _read_input(text: str) -> tuple[dict[str, Any] | None, float]:
    """The arguments and the form: an object, else the pairs of names and plain values that can be found."""
    if not text:
        return {}, 1.0
    try:
        value = load_leading_json(text[max(text.find("{"), 0) :][:MAX_TEXT_LENGTH])
        if isinstance(value, dict):
            return value, 1.0
    except ValueFault:
        pass
    start = text[:MAX_TEXT_LENGTH]
    pairs: dict[str, Any] = dict(_TEXT_PAIR.findall(start))
    pairs |= {name: int(number) for name, number in _NUMBER_PAIR.findall(start)}
    return pairs or None, 0.5
