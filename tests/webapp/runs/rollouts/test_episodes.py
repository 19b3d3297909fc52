"""What the journal has of a rollout is enough to compute any reward of it later."""

from __future__ import annotations

from typing import Any

import pytest

from envs.wire import Message, ToolCall
from training import journal
from training.config import RewardComponent
from training.rewards.scoring import score_episode
from webapp.runs.rollouts.models import Rollout
from webapp.runs.rollouts.selectors import episodes_of

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_recorded_rollout_is_the_episode_that_was_scored(written: Any) -> None:
    w = written()
    call = ToolCall(id="1", name="calculator", arguments={"expression": "2+3"})
    w.write(
        journal.RolloutStarted(rollout="a", step=1, group=0, index=0, row=1, task="sum", policy="empty"),
        journal.TurnAdded(
            rollout="a", turn=0, messages=[Message(role="system", content="s"), Message(role="user", content="2+3?")]
        ),
        journal.TurnAdded(
            rollout="a", turn=1, messages=[Message(role="assistant", content="", tool_calls=[call])], tokens=4
        ),
        journal.TurnAdded(rollout="a", turn=2, messages=[Message(role="tool", content="5", tool_call_id="1")]),
        journal.TurnAdded(rollout="a", turn=3, messages=[Message(role="assistant", content="It is 5.")], tokens=5),
        journal.RolloutFinished(
            rollout="a",
            status="truncated",
            reward=0.5,
            parts={"task_success": 0.5},
            env_reward=0.5,
            env_parts={"answer": 0.25},
            parse_errors=2,
            turns=2,
            tokens=9,
        ),
        journal.RolloutStarted(rollout="b", step=1, group=0, index=1),
    )
    w.project()
    rollouts = list(Rollout.objects.filter(run=w.run).order_by("index"))
    ((rollout, episode),) = episodes_of(rollouts, {1: {"answer": "5"}})
    assert (rollout.policy, rollout.row) == ("empty", 1)
    assert (episode.prompt_length, len(episode.messages), episode.row) == (2, 5, {"answer": "5"})
    assert (episode.env_reward, episode.env_parts, episode.parse_errors) == (0.5, {"answer": 0.25}, 2)
    assert (episode.truncated, episode.tokens, episode.final_answer) == (True, 9, "It is 5.")
    again = score_episode(episode, [RewardComponent(name="task_success", weight=2)])
    assert again.parts == {"task_success": 0.5} and again.total == 1.0


def test_one_function_may_be_two_components(written: Any) -> None:
    parts = [
        RewardComponent(name="polite", function="regex_match", weight=1, params={"pattern": "please"}),
        RewardComponent(name="short", function="regex_match", weight=2, params={"pattern": "5"}),
    ]
    w = written()
    w.write(
        journal.RolloutStarted(rollout="a", step=1, group=0, index=0),
        journal.TurnAdded(rollout="a", turn=0, messages=[Message(role="user", content="2+3?")]),
        journal.TurnAdded(rollout="a", turn=1, messages=[Message(role="assistant", content="5")], tokens=1),
    )
    w.project()
    ((_rollout, episode),) = episodes_of(list(Rollout.objects.filter(run=w.run)), {})
    assert score_episode(episode, parts).parts == {"polite": 0.0, "short": 1.0}
    assert score_episode(episode, parts).total == 2.0
