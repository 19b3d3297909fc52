"""Worked examples for supervised training: the gold calls of an entry, played here, with the answers they got."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from envs.bfcl.server import BfclEnvironment
from envs.bfcl.speech import Speech
from envs.bfcl.tasks import read_row, resolve
from envs.bfcl.validate import gold_steps
from envs.wire import Message, StepRequest


def demonstration(name: str, speech: Speech = "native") -> dict[str, Any]:
    """One dataset row in the wire's message form: a tool call is ``{id, name, arguments}``."""
    environment = BfclEnvironment()
    opened = environment.reset({"id": name, "speech": speech}, 0, "demonstration")
    conversation, tools = [*opened.messages], list(opened.tools or [])
    for step in gold_steps(resolve(read_row({"id": name}), 0)):
        said = _in_tags(step) if speech == "text" else step
        conversation.append(Message(role="assistant", content=said.message, tool_calls=said.tool_calls))
        answer = environment.step(said)
        conversation += answer.messages
        if answer.tools is not None:
            tools = answer.tools  # a function that was revealed: the row lists all that are known in the end
        if answer.done:
            break
    shown = [message.model_dump(mode="json", exclude_defaults=True) for message in conversation]
    row = {"id": name, "speech": speech, "conversation": [{"content": "", **message} for message in shown]}
    return row | ({"tools": tools} if tools else {})


def generate_demonstrations(ids: Sequence[str], speech: Speech = "native") -> Iterator[dict[str, Any]]:
    """A row for each entry."""
    return (demonstration(name, speech) for name in ids)


def _in_tags(step: StepRequest) -> StepRequest:
    """A gold step as EnvTuning's models write it."""
    if not step.tool_calls:
        return StepRequest(message=f"<think>The request is fulfilled.</think><answer>{step.message}</answer>")
    calls = [{"name": call.name, "arguments": call.arguments} for call in step.tool_calls]
    return StepRequest(message=f"<think>I call what is needed.</think><tool_call>{json.dumps(calls)}</tool_call>")
