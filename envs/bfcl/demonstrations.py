"""Worked examples for supervised training: the gold calls of an entry, played here, with the answers they got.

A share of them can be *careless*: in each turn such an agent says that it is done without a call, or after the first of
several. A model that imitates both is careless at times, and reinforcement learning can be seen to take that out.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from typing import Any

from envs.bfcl.application import gold_steps
from envs.bfcl.server import BfclEnvironment
from envs.bfcl.speech import Speech
from envs.bfcl.tasks import read_row, resolve
from envs.wire import Message, StepRequest


def demonstration(name: str, speech: Speech = "native", careless: random.Random | None = None) -> dict[str, Any]:
    """One dataset row in the wire's message form: a tool call is ``{id, name, arguments}``. ``careless`` draws which
    turns are played with a mistake."""
    environment = BfclEnvironment()
    opened = environment.reset({"id": name, "speech": speech}, 0, "demonstration")
    conversation, tools = [*opened.messages], list(opened.tools or [])
    steps = gold_steps(resolve(read_row({"id": name}), 0))
    for step in steps if careless is None else _careless(steps, careless):
        request = _in_tags(step) if speech == "text" else step
        conversation.append(Message(role="assistant", content=request.message, tool_calls=request.tool_calls))
        answer = environment.step(request)
        conversation += answer.messages
        if answer.tools is not None:
            tools = answer.tools  # a function that was revealed: the row lists all that are known in the end
        if answer.done:
            break
    shown = [message.model_dump(mode="json", exclude_defaults=True) for message in conversation]
    row = {"id": name, "speech": speech, "conversation": [{"content": "", **message} for message in shown]}
    return row | ({"tools": tools} if tools else {})


def generate_demonstrations(
    ids: Sequence[str], speech: Speech = "native", *, copies: int = 1, careless_share: float = 0.0
) -> Iterator[dict[str, Any]]:
    """``copies`` rows for each entry, of which each is careless or not by itself."""
    for copy in range(copies):
        for name in ids:
            rng = random.Random(f"bfcl-careless:{copy}:{name}")  # noqa: S311 - reproducible, guards nothing
            yield demonstration(name, speech, rng if rng.random() < careless_share else None)


def _careless(steps: Sequence[StepRequest], rng: random.Random) -> Iterator[StepRequest]:
    """The steps, of which one with calls or more are left out or lose all calls but the first."""
    calling = [step for step in steps if step.tool_calls]
    spoiled = rng.sample(calling, rng.randint(1, len(calling)))
    for step in steps:
        if not any(step is other for other in spoiled):
            yield step
        elif len(step.tool_calls) > 1 and rng.random() < 0.5:
            yield step.model_copy(update={"tool_calls": step.tool_calls[:1]})


def _in_tags(step: StepRequest) -> StepRequest:
    """A gold step as EnvTuning's models write it."""
    if not step.tool_calls:
        return StepRequest(message=f"<think>The request is fulfilled.</think><answer>{step.message}</answer>")
    calls = [{"name": call.name, "arguments": call.arguments} for call in step.tool_calls]
    return StepRequest(message=f"<think>I call what is needed.</think><tool_call>{json.dumps(calls)}</tool_call>")
