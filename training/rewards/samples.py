"""Builders of the small episodes that components give as worked examples."""

from __future__ import annotations

from typing import Any

from envs.wire import Message, ToolCall
from training.rewards.base import Episode


def user(text: str) -> Message:
    """What the user, or an environment in the user's place, says."""
    return Message(role="user", content=text)


def says(text: str = "", *calls: str, **arguments: Any) -> Message:
    """A model turn with a text and calls of the named tools, all with the same arguments; ids are 0, 1, …"""
    made = [ToolCall(id=str(number), name=name, arguments=arguments) for number, name in enumerate(calls)]
    return Message(role="assistant", content=text, tool_calls=made or None)


def tool(text: str, call_id: str = "0") -> Message:
    """What a tool answered."""
    return Message(role="tool", content=text, tool_call_id=call_id)


def played(question: str, *after: Message, **over: Any) -> Episode:
    """An episode whose prompt is one question."""
    return Episode(messages=[user(question), *after], prompt_length=1, **over)
