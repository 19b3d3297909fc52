"""Builders of small episodes."""

from __future__ import annotations

from typing import Any

from envs.wire import Message, ToolCall
from training.rewards.base import Episode, Params
from training.rewards.scoring import COMPONENTS


def user(text: str) -> Message:
    return Message(role="user", content=text)


def says(text: str = "", *calls: str) -> Message:
    """A model turn with a text and calls, named by their ids."""
    made = [ToolCall(id=name, name="calculator") for name in calls]
    return Message(role="assistant", content=text, tool_calls=made or None)


def tool(text: str, call_id: str | None = None) -> Message:
    return Message(role="tool", content=text, tool_call_id=call_id)


def episode(question: str, *after: Message, **over: Any) -> Episode:
    """An episode with one user message as its prompt."""
    return Episode(messages=[user(question), *after], prompt_length=1, **over)


def score(name: str, played: Episode, **params: Any) -> float | None:
    component = COMPONENTS[name]
    checked: Params = component.params.model_validate(params)
    return component.score(played, checked)


GOLD_ZH = episode(
    "帮我计算一下 25 * 37 + 128 等于多少？",
    says("我来计算一下。", "a"),
    tool("1053", "a"),
    says("帮我计算一下 25 * 37 + 128 等于多少？结果等于 1053。"),
)
GOLD_EN = episode(
    "Calculate 25 * 37 + 128 for me",
    says("Let me use the calculator.", "a"),
    tool("1053", "a"),
    says("For 25 * 37 + 128, I calculate a result of 1053 for you and me."),
)
