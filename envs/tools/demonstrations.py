"""Worked examples for supervised training: question, calls, the tools' real answers, and a sentence with them.

A share of them can be *careless*, as recordings of a weak agent are: it claims to know without asking a tool, or throws
the tool's answer away. A model that imitates such a mixture is careless too, and reinforcement learning can then be
seen to take that out.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from envs.tools.tasks import Difficulty, LanguageChoice, PlannedCall, Task, draw_task
from envs.tools.tools import Context, run_tool, tool_schemas


def demonstration(task: Task) -> dict[str, Any]:
    """One dataset row in the wire's message form: a tool call is ``{id, name, arguments}``."""
    language = task.row["language"]
    context = Context(language, datetime.fromisoformat(task.row["clock"]))
    turns = [_turn(number, calls, context) for number, calls in enumerate(task.turns)]
    return {
        "conversation": [
            {"role": "user", "content": task.question},
            *(message for turn in turns for message in turn),
            {"role": "assistant", "content": task.final},
        ],
        "tools": tool_schemas(language),
        "language": language,
    }


def _turn(number: int, planned: list[PlannedCall], context: Context) -> list[dict[str, Any]]:
    """One assistant turn and the tools' answers."""
    named = [(f"call_{number}_{index}", call) for index, call in enumerate(planned, 1)]
    calls = [{"id": call_id, "name": call.name, "arguments": call.arguments} for call_id, call in named]
    results = [
        {
            "role": "tool",
            "content": run_tool(call.name, call.arguments, context).text,
            "tool_call_id": call_id,
            "name": call.name,
        }
        for call_id, call in named
    ]
    return [{"role": "assistant", "content": "", "tool_calls": calls}, *results]


def careless(row: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    """The row with a mistake in it: two thirds of them answer without a tool, one third ignores the result."""
    zh = row["language"] == "zh"
    question, *rest = row["conversation"]
    if rng.random() < 2 / 3:
        text = "这个问题我应该知道，不需要使用工具。" if zh else "I think I know this without a tool."
        return row | {"conversation": [question, {"role": "assistant", "content": text}]}
    text = "抱歉，这个问题我没有能够找到答案。" if zh else "I could not find an answer to this."
    return row | {"conversation": [question, *rest[:-1], {"role": "assistant", "content": text}]}


def generate_demonstrations(
    count: int,
    seed: int = 1,
    language: LanguageChoice = "en",
    difficulty: Difficulty = "easy",
    careless_share: float = 0.0,
) -> Iterator[dict[str, Any]]:
    """``count`` rows; choose a seed other than that of the tasks to train on."""
    for index in range(count):
        row = demonstration(draw_task(seed, language, difficulty, index))
        rng = random.Random(f"tools-careless:{seed}:{index}")  # noqa: S311 - reproducible, guards nothing
        yield careless(row, rng) if rng.random() < careless_share else row
