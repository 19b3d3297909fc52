"""What a model may write to cost the trainer time: every component reads a text in time that grows with its length."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest

from envs.wire import Message, ToolCall
from tests.growth import assert_linear
from training.errors import TiltyardError
from training.rewards.base import Component, Episode
from training.rewards.lab.writing import behaviour_of
from training.rewards.scoring import COMPONENTS

COUNT = 32_000
PIECES = [
    "Thought:",
    "\nAction:",
    "Thought: a\nAction: b\nAction Input: ",
    "Action Input:",
    "Observation:",
    "<think>",
    "</think>",
    "<answer>",
    "<tool_call>",
    "search[",
    "click[x",
    "[f(",
    ")]",
    "{",
    "[",
    "\\boxed{",
    " ",
    "\n",
    "\t\n ",
    "\nAction:" + " " * 50,
    "####",
    "Step 1:",
    "1,111",
    "-",
    "1.",
    "好",
    "Final Answer:",
    "Your score (min 0.0, max 1.0) [SEP] ",
    '{"error": "',
    "```",
]


def hostile(piece: str, count: int) -> Episode:
    text = piece * count
    messages = [
        Message(role="user", content="What is 2 + 3?"),
        Message(role="assistant", content=text, tool_calls=[ToolCall(id="a", name="calculator", arguments={"x": "1"})]),
        Message(role="tool", content=text, tool_call_id="a"),
        Message(role="assistant", content=text),
        Message(role="user", content=text),
        Message(role="assistant", content=text),
    ]
    row: dict[str, Any] = {"answer": "5", "ground_truth": "5", "reward_model": {"ground_truth": "5"}}
    return Episode(messages, 1, row=row)


def scoring(score: Callable[[Episode], object], piece: str, count: int) -> Callable[[], None]:
    episode = hostile(piece, count)

    def work() -> None:
        with contextlib.suppress(TiltyardError):  # a component may refuse; here only its time counts
            score(episode)

    return work


def reader(component: Component) -> Callable[[Episode], object]:
    return lambda episode: component.score(episode, component.params())


READERS = {name: reader(component) for name, component in COMPONENTS.items() if not component.outside}
READERS["behaviour_of"] = behaviour_of


@pytest.mark.parametrize("name", sorted(READERS))
def test_no_text_costs_more_than_its_length(name: str) -> None:
    """``Thought:`` 8,192 times cost 5 CPU seconds, each doubling four times as much."""
    for piece in PIECES:
        most = min(COUNT, 256_000 // len(piece))
        assert_linear(lambda count, piece=piece: scoring(READERS[name], piece, count), most, limit_s=0.1)
