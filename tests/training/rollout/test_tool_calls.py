"""How many tool calls a trajectory has, and how many of them failed."""

from __future__ import annotations

from envs.wire import Message, ToolCall
from training.rollout.trajectory import Trajectory


def _calls(*names: str) -> Message:
    return Message(role="assistant", tool_calls=[ToolCall(id=name, name="f", arguments={}) for name in names])


def _answer(text: str, to: str) -> Message:
    return Message(role="tool", content=text, tool_call_id=to)


def test_calls_of_the_policy_are_counted_and_those_answered_by_an_error() -> None:
    """Calls in the prompt are not counted; a complaint about an unreadable call answers none; one without answer is no
    failure."""
    demonstration = [Message(role="user", content="?"), _calls("p"), _answer("Error: no", "p")]
    played = [
        _calls("a", "b"),
        _answer("Error: no", "b"),
        _answer("7", "a"),
        _answer("Error: unreadable", "x"),
        _calls("c"),
    ]
    trajectory = Trajectory(messages=demonstration + played, prompt_length=3)
    assert trajectory.tool_calls() == (3, 1)
    assert Trajectory().tool_calls() == (0, 0)
