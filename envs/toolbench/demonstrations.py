"""Worked examples for supervised training: query, gold calls, the recorded answers, and the Finish that tells them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from envs.toolbench.answers import Answerer
from envs.toolbench.schemas import FINISH
from envs.toolbench.speech import DIALECTS
from envs.toolbench.tasks import Speech, Task
from envs.toolbench.world import world_library
from envs.toolbench.world_tasks import COUNT, draw_task, gold_calls


def demonstration(task: Task, answerer: Answerer, speech: Speech = "native") -> dict[str, Any]:
    """One dataset row in the wire's message form: a tool call is ``{id, name, arguments}``."""
    dialect = DIALECTS[speech]
    conversation = [{"role": item.role, "content": item.content} for item in dialect.opening(task)]
    for number, call in enumerate(gold_calls(task), 1):
        if speech == "text":
            said = f"Thought: I call {call.function}.\nAction: {call.function}\n"
            conversation.append({"role": "assistant", "content": f"{said}Action Input: {json.dumps(call.arguments)}"})
        else:
            made = {"id": f"call_{number}", "name": call.function, "arguments": call.arguments}
            conversation.append({"role": "assistant", "content": "", "tool_calls": [made]})  # type: ignore[dict-item]
        if call.function == FINISH:
            break
        api = task.by_function[call.function]
        answer = answerer.quick(api.name, api, call.arguments)
        body = json.dumps(answer.body if answer is not None else None)
        if speech == "text":
            conversation.append({"role": "user", "content": f"\n\nObservation: {body}\n\n"})
        else:
            result = {"role": "tool", "content": body, "tool_call_id": f"call_{number}", "name": call.function}
            conversation.append(result)
    return {"conversation": conversation, "tools": dialect.tools(task), "speech": speech}


def generate_demonstrations(count: int, seed: int = 1, speech: Speech = "native") -> Iterator[dict[str, Any]]:
    """``count`` rows of our own world, from the end of its indices: training that starts at 0 never meets them."""
    answerer = Answerer(world_library())
    for number in range(count):
        yield demonstration(draw_task(COUNT - 1 - (seed * 10_000 + number) % (COUNT // 2)), answerer, speech)
