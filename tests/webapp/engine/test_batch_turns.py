"""What a rollout's row keeps of its turns: what they were paid, and their advantages."""

from __future__ import annotations

import math

import pytest

from tests.webapp.engine.test_batch import RUN, T, batch_of, finished, scored, started
from webapp.engine.batch import BadEvent, rollout_id


def test_rewards_so_far_are_kept_as_they_were_reported() -> None:
    key = rollout_id(RUN, 2, "a")
    assert batch_of(started(), finished()).rollouts[key].turn_rewards is None
    found = batch_of(started(), finished(turn_rewards=[None, 0.5, math.inf])).rollouts[key]
    assert found.turn_rewards == [None, 0.5, None]


def test_turns_have_advantages_where_a_run_credits_them() -> None:
    batch = batch_of(started("a"), started("b"), scored())
    assert [row.turn_advantages for row in batch.rollouts.values()] == [None, None]
    batch = batch_of(started("a"), started("b"), scored(turn_advantages=[[1.5, -0.25], None]))
    assert [row.turn_advantages for row in batch.rollouts.values()] == [[1.5, -0.25], None]
    with pytest.raises(BadEvent, match="advantages of their turns differ"):
        batch.add(scored(turn_advantages=[[1.0]], t=T))
