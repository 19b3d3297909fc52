"""Figures of a step that need no play, by value."""

from __future__ import annotations

from envs.wire import Message, ToolCall
from training.rewards.combining import group_statistics
from training.rollout.figures import step_figures
from training.rollout.trajectory import Rollout, Trajectory

TOOLS = [{"type": "function", "function": {"name": "find"}}]


def rollout(calls: int, *, offered: bool) -> Rollout:
    made = [ToolCall(id=str(number), name="find", arguments={}) for number in range(calls)]
    message = Message(role="assistant", content="", tool_calls=made or None)
    trajectory = Trajectory(messages=[message], tools=TOOLS if offered else None)
    return Rollout("a", 0, trajectory, {"task_success": 0.0}, 0.0)


def test_calls_are_counted_only_where_tools_were_offered() -> None:
    groups = [group_statistics([0.0, 0.0])]
    mixed = [rollout(3, offered=True), rollout(0, offered=True), rollout(0, offered=False)]
    assert step_figures(mixed, groups)["rollouts/calls_mean"] == 1.5
    assert step_figures([rollout(0, offered=True)], groups)["rollouts/calls_mean"] == 0.0
    assert "rollouts/calls_mean" not in step_figures([rollout(0, offered=False)], groups)
