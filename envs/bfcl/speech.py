"""How the model speaks with the environment: EnvTuning's tags in one text, or native calls of the wire.

Both read a request into an ``Action`` and render a ``Round`` into messages; the rules themselves are in
``envs.bfcl.turns``. Every sentence a trained EnvTuning policy has seen is upstream's word for word.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, Literal

from envs.bfcl.calls import MAX_NAME, Call, calls_from_json, tool_schemas
from envs.bfcl.tasks import Task, Turn
from envs.bfcl.turns import MAX_ATTEMPTS, Action, Round
from envs.wire import Message, StepRequest, ToolCall

# --- Tags -----------------------------------------------------------------------------------------------------------
# Pairs of tags in a text, found in linear time.
#
# What is found is what ``<tag>(.*?)</tag>`` finds, as upstream's parser has it: the first opening tag, up to the next
# closing one. That expression looks for the closing tag again from every opening one; a model that repeats ``<think>``
# without an end would hold the server for minutes.


def contents(text: str, tag: str) -> list[str]:
    """The texts between each pair of tags."""
    shift = len(tag) + 2
    return [text[start + shift : end - shift - 1] for start, end in _pairs(text, tag)]


def without(text: str, tag: str) -> str:
    """The text without the pairs and what is between them."""
    kept, position = [], 0
    for start, end in _pairs(text, tag):
        kept.append(text[position:start])
        position = end
    return "".join([*kept, text[position:]])


def _pairs(text: str, tag: str) -> Iterator[tuple[int, int]]:
    """Start and end of each pair, its tags included. Every character is looked at once."""
    opening, closing = f"<{tag}>", f"</{tag}>"
    start = text.find(opening)
    while start >= 0:
        end = text.find(closing, start + len(opening))
        if end < 0:
            return  # no later opening tag has a closing one either
        yield start, end + len(closing)
        start = text.find(opening, end + len(closing))


Speech = Literal["native", "text"]
MAX_ERROR = 200
WARNING = (
    "(SYSTEM WARNING: You should not call any function in this turn because certain function description(s) or "
    "parameter(s) is missing in this turn. Previous turn is forced quit. Current function(s) will not be executed.) "
    "Next turn question:\n"
)
RESULTS = (
    "Here are the function's execution results. Execution results:{results}\n"
    " If you believe you have already fulfilled the user's request, please first outline your thought process in a "
    "<think></think>pair, and then give a brief summary of the result in an <answer></answer> pair. Otherwise, you "
    "should continue to call until fulfilling user's request."
)
NATIVE_PROMPT = (
    "You help a user over several turns with the functions you are given. Call functions until the request of the "
    "turn is fulfilled, then answer with a short summary and no call. If a function or a parameter that you need is "
    "missing, call nothing and say what is missing."
)
TEXT_PROMPT = (
    "You help a user over several turns with functions that you can call. Start every reply with your reasoning in "
    "one <think></think> pair. After it write exactly one of these, and no text outside the tags:\n"
    '1. <tool_call></tool_call> around a JSON object {{"name": <function-name>, "arguments": <args-json-object>}}, '
    "or around a JSON list of such objects; their results are the next message.\n"
    "2. <answer></answer> around a short summary, once the request of the turn is fulfilled, or when a function or a "
    "parameter that you need is missing; the next request of the user follows.\n"
    "Here is a list of functions in JSON format that you can invoke.\n{documents}"
)
NOT_SHOWN = f"The turn is over: at most {MAX_ATTEMPTS} attempts a turn are answered."
NOT_RUN = "Not executed."


class Dialect(ABC):
    """One way to speak."""

    @abstractmethod
    def opening(self, task: Task) -> tuple[list[Message], list[dict[str, Any]]]:
        """The first messages, and the tools that go with them."""

    @abstractmethod
    def read(self, request: StepRequest) -> Action:
        """The model's action; a text that cannot be read becomes an error in the model's words."""

    @abstractmethod
    def render(self, request: StepRequest, played: Round, following: Turn | None) -> list[Message]:
        """The answer: results or an error, and the next turn's question where one begins."""


class TextDialect(Dialect):
    """EnvTuning's: everything is text between tags, and results come as a user message."""

    def opening(self, task: Task) -> tuple[list[Message], list[dict[str, Any]]]:
        system = TEXT_PROMPT.format(documents=json.dumps(task.documents(0)))
        return [Message(role="system", content=system), Message(role="user", content=task.turns[0].text)], []

    def read(self, request: StepRequest) -> Action:
        # A dialect took the thought out of the text; this speech wants one in each reply.
        text = f"<think>{request.reasoning}</think>{request.message}" if request.reasoning else request.message
        if request.parse_error is not None:
            # A dialect took the calls out of the text and could not read one: the tags count, the JSON is broken.
            probe = parse_text(f"{text}<tool_call>[]</tool_call>")
            return probe if probe.error else Action.of_error(_json_error(request.parse_error[:MAX_ERROR]))
        if request.tool_calls:
            calls = [{"name": call.name, "arguments": call.arguments} for call in request.tool_calls]
            text += f"<tool_call>{json.dumps(calls)}</tool_call>"
        return parse_text(text)

    def render(self, request: StepRequest, played: Round, following: Turn | None) -> list[Message]:
        if played.error is not None:
            return [Message(role="user", content=played.error)]
        if played.results is not None:
            results = json.dumps(played.results, ensure_ascii=False)
            return [Message(role="user", content=RESULTS.format(results=results))]
        content = (WARNING if played.warned else "") + (following.text if following else "")
        return [Message(role="user", content=content)] if content else []


class NativeDialect(Dialect):
    """The wire's: calls are calls, results are tool messages, and a message without a call ends the turn."""

    def opening(self, task: Task) -> tuple[list[Message], list[dict[str, Any]]]:
        messages = [Message(role="system", content=NATIVE_PROMPT), Message(role="user", content=task.turns[0].text)]
        return messages, tool_schemas(task.documents(0))

    def read(self, request: StepRequest) -> Action:
        if request.parse_error is not None:
            reason = " ".join(request.parse_error.split())[:MAX_ERROR]
            return Action.of_error(f"Error: the tool call could not be read: {reason}")
        if request.tool_calls:
            return Action(kind="call", calls=[Call(call.name, call.arguments) for call in request.tool_calls])
        if not without(request.message, "think").strip():
            return Action.of_error("Error: Response must contain either a tool call or an answer")
        return Action(kind="answer")

    def render(self, request: StepRequest, played: Round, following: Turn | None) -> list[Message]:
        if played.results is not None:
            return [_tool(call, text) for call, text in zip(request.tool_calls, played.results, strict=False)]
        if played.error is not None:
            left_out = [_tool(call, NOT_RUN) for call in request.tool_calls]
            return [*left_out, Message(role="tool" if request.parse_error else "user", content=played.error)]
        note = NOT_RUN if played.warned or request.parse_error else NOT_SHOWN
        messages = [_tool(call, note) for call in request.tool_calls]
        text = following.native_text if following else ""
        if played.warned or text:
            messages.append(Message(role="user", content=(WARNING if played.warned else "") + text))
        return messages


DIALECTS: dict[Speech, Dialect] = {"native": NativeDialect(), "text": TextDialect()}

_TAGS = ("think", "tool_call", "answer")


def parse_text(text: str) -> Action:
    """Read a reply in tags: one thought, then calls or an answer. The checks run in upstream's order."""
    found = {tag: contents(text, tag) for tag in _TAGS}
    problem = _problem(found)
    if problem is None and _outside(text, "tool_call" if found["tool_call"] else "answer"):
        problem = "Response must not contain text outside the required XML tags"
    if problem is not None:
        return Action.of_error(f"Error: {problem}")
    if found["answer"]:
        return Action(kind="answer")
    try:
        return Action(kind="call", calls=calls_from_json(found["tool_call"][0].strip()))
    except json.JSONDecodeError as error:
        return Action.of_error(_json_error(str(error)))


def _problem(found: dict[str, list[str]]) -> str | None:
    if not found["think"]:
        return "Missing <think></think> tags"
    for tag, pairs in found.items():
        if len(pairs) > 1:
            return f"Multiple <{tag}></{tag}> tag pairs found. Only one pair is allowed."
    if found["tool_call"] and found["answer"]:
        return "Response cannot contain both <tool_call> and <answer> tags"
    if not found["tool_call"] and not found["answer"]:
        return "Response must contain either <tool_call> or <answer> tags"
    return None


def _outside(text: str, tag: str) -> str:
    """The text without the thought and then without the other pair; the order decides about nested tags."""
    return without(without(text, "think"), tag).strip()


def _json_error(reason: str) -> str:
    return f"Error: Invalid JSON inside <tool_call>: {reason}"


def _tool(call: ToolCall, text: str) -> Message:
    return Message(role="tool", content=text, tool_call_id=call.id[:MAX_NAME], name=call.name[:MAX_NAME])
