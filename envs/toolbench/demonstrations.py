"""Worked examples for supervised training: query, gold calls, the recorded answers, and the Finish that reports them.

A share of them can be *careless*, as recordings of a weak agent are: it gives up at once, or after the calls, or claims
to know without any. A model that imitates such a mixture is careless too, and reinforcement learning can then be
seen to take that out.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from envs.toolbench.answers import Answerer
from envs.toolbench.documents import FINISH, GIVE_ANSWER, GIVE_UP
from envs.toolbench.speech import DIALECTS
from envs.toolbench.tasks import Difficulty, PlannedCall, Speech, Task, TaskSet
from envs.toolbench.world import COUNT, draw_task, gold_calls, starter_indices, world_library

# Dataset rows of a server's queries.


def task_rows(tasks: TaskSet, count: int, start: int = 0, speech: Speech = "native") -> Iterator[dict[str, Any]]:
    """Dataset rows for ``count`` queries from ``start``, with the opening that a reset repeats; fewer at the end."""
    return _rows(tasks, range(start, min(start + count, len(tasks))), speech)


def starter_rows(tasks: TaskSet, count: int, start: int = 0, speech: Speech = "native") -> Iterator[dict[str, Any]]:
    """The same of our own world's starter queries alone; ``start`` of them are left out."""
    return _rows(tasks, islice(starter_indices(0), start, start + count), speech)


def _rows(tasks: TaskSet, indices: Iterable[int], speech: Speech) -> Iterator[dict[str, Any]]:
    for index in indices:
        task = tasks.at(index)
        row = {"id": f"toolbench-{tasks.name}-{task.query_id}", "query_id": task.query_id, "task_set": tasks.name}
        messages = [{"role": item.role, "content": item.content} for item in DIALECTS[speech].opening(task)]
        yield {**row, "speech": speech, "question": task.query, "messages": messages}


CLAIM = "I think I know this without a call."


def demonstration(
    task: Task, answerer: Answerer, speech: Speech = "native", calls: Sequence[PlannedCall] | None = None
) -> dict[str, Any]:
    """One dataset row in the wire's message form: a tool call is ``{id, name, arguments}``. ``calls`` are those of the
    gold solution unless they are given."""
    dialect = DIALECTS[speech]
    conversation = [{"role": item.role, "content": item.content} for item in dialect.opening(task)]
    for number, call in enumerate(gold_calls(task) if calls is None else calls, 1):
        if speech == "text":
            action = f"Thought: I call {call.function}.\nAction: {call.function}\n"
            conversation.append({"role": "assistant", "content": f"{action}Action Input: {json.dumps(call.arguments)}"})
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


def careless_calls(task: Task, rng: random.Random) -> list[PlannedCall]:
    """A solution with a mistake: a third each gives up at once, gives up after the calls, and claims to know."""
    give_up = PlannedCall(FINISH, {"return_type": GIVE_UP})
    claim = PlannedCall(FINISH, {"return_type": GIVE_ANSWER, "final_answer": CLAIM})
    return rng.choice(([give_up], [*task.plan, give_up], [claim]))


def generate_demonstrations(
    count: int,
    seed: int = 1,
    speech: Speech = "native",
    *,
    difficulty: Difficulty = "full",
    careless_share: float = 0.0,
) -> Iterator[dict[str, Any]]:
    """``count`` rows of our own world, from the end of its indices: training that starts at 0 never meets them."""
    answerer = Answerer(world_library())
    starters = starter_indices(COUNT - 1 - seed * 10_000 % (COUNT // 2), -1)
    for number in range(count):
        index = next(starters) if difficulty == "starter" else COUNT - 1 - (seed * 10_000 + number) % (COUNT // 2)
        task = draw_task(index % COUNT)
        rng = random.Random(f"toolbench-careless:{seed}:{number}")  # noqa: S311 - reproducible, guards nothing
        calls = careless_calls(task, rng) if rng.random() < careless_share else None
        yield demonstration(task, answerer, speech, calls)
