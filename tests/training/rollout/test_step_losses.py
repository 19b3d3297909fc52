"""Rollouts that lose their environment, are put together from odd rows, or end a step: by value, played from a list."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from envs.wire import Message
from tests.training.rollout.test_step_by_hand import LIMITS, Hold, Step, own, played
from training.chat_client import usage
from training.data import Row
from training.errors import EnvironmentTimeout, EnvironmentUnreachable, RewardFault, StopRequested, TooManyFailures
from training.rewards.base import Episode, Score
from training.rollout.trajectory import PlayedTurn, Task, Trajectory

FIRST = "a4-s6-g0-i0"
Play = Callable[[Task, Any], Any]


class Plays:
    """A player that a test scripts; ``busy_s`` is what the engine counts for each rollout."""

    def __init__(self, play: Play, busy_s: float = 0.0) -> None:
        self._play, self._busy_s = play, busy_s
        self.engine = cast(Any, type("Engine", (), {"figures": type("Figures", (), {"busy_seconds": 7.0})()}))

    async def play(self, task: Task, on_turn: Any, trajectory: Trajectory) -> None:
        vars(trajectory).update(vars(await self._play(task, on_turn)))
        self.engine.figures.busy_seconds += self._busy_s


def made(folder: Path, play: Play, **groups: Any) -> Step:
    step = Step(folder, **groups)
    step.collector.player = cast(Any, Plays(play, busy_s=0.125))
    return step


class Refusing(Hold):
    """An environment that is away five times and then refuses; ``asked`` are the failures that it was asked about."""

    def __init__(self, times: int) -> None:
        super().__init__(times)
        self.asked: list[str] = []

    async def away(self, error: Any) -> bool:
        self.asked.append(error.message)
        return len(self.asked) < 6

    async def wait(self, error: Any) -> None:
        assert error.message == self.asked[-1]


@pytest.mark.parametrize(("turns", "again"), [(0, [0]), (1, [0, 1, 2, 3]), (2, [0, 1, 2, 3])])
def test_only_an_episode_that_began_is_lost(tmp_path: Path, turns: int, again: list[int]) -> None:
    """With its prompt an episode has begun. One that was never begun is no loss, however often it is tried: here the
    environment refuses at the sixth try. (``losses += turns.count > 1`` passed every test.)"""
    tries = 0

    async def play(task: Task, on_turn: Any) -> Trajectory:
        nonlocal tries
        found = played(0, 0)
        if task.episode_id == FIRST:
            tries += 1
            for number in range(turns):
                on_turn(PlayedTurn([Message(role="user", content=str(number))]))
            found.exclude(EnvironmentUnreachable(f"try {tries}"))
        return found

    hold = Refusing(9)
    step = made(tmp_path, play)
    step.collector.hold = cast(Any, hold)
    result = step.collect()
    assert [event.again for event in step.of("rollout_started") if event.rollout == FIRST] == again
    assert tries == (4 if turns else 6) and hold.asked == [f"try {number}" for number in range(1, 4 if turns else 7)]
    assert result.rollouts[0].trajectory.error is not None


def _long_after(first: Callable[[], Trajectory], cut: list[str]) -> Play:
    """Play the first rollout by ``first``, the others for longer than a step lasts; ``cut`` are the ended ones."""

    async def play(task: Task, on_turn: Any) -> Trajectory:
        if task.episode_id == FIRST:
            await asyncio.sleep(0.02)  # the watcher has looked once, and sleeps
            return first()
        try:
            await asyncio.sleep(20)
        except asyncio.CancelledError:
            cut.append(task.episode_id)
            raise
        return played(0, 0)

    return play


def test_an_environment_that_stays_away_ends_the_rollouts_that_still_play(tmp_path: Path) -> None:
    def away() -> Trajectory:
        found = played(0, 0)
        found.exclude(EnvironmentTimeout("late"))
        return found

    cut: list[str] = []
    step, spent = made(tmp_path, _long_after(away, cut)), EnvironmentTimeout("patience is spent")
    step.collector.hold = cast(Any, Hold(1, spent))
    with pytest.raises(EnvironmentTimeout) as caught:
        step.collect()
    assert caught.value is spent and len(cut) == 3


def test_a_stop_ends_the_rollouts_that_still_play(tmp_path: Path) -> None:
    cut: list[str] = []

    def stopping() -> Trajectory:
        step.stop.set()
        return played(0, 0)

    step = made(tmp_path, _long_after(stopping, cut))
    with pytest.raises(StopRequested):
        step.collect()
    assert len(cut) == 3


def test_the_collectors_own_hold_knows_the_environment_and_writes_to_the_journal(tmp_path: Path) -> None:
    step = Step(tmp_path, environment={"patience_s": 0})
    hold = step.collector.hold
    with pytest.raises(EnvironmentUnreachable, match="and the patience is 0"):
        hold.pause(EnvironmentUnreachable("gone"))
    hold.answered()
    assert [event.tries for event in step.of("held")] == [0]


def test_the_time_of_a_step_is_divided_by_what_the_engine_was_busy(tmp_path: Path) -> None:
    async def play(task: Task, on_turn: Any) -> Trajectory:
        await asyncio.sleep(0.6)
        return played(0, 0)

    began = time.monotonic()
    figures = made(tmp_path, play).collect().figures
    took = time.monotonic() - began
    assert figures["timing/generation"] == 0.5
    assert 0.05 < figures["timing/environment"] < took - 0.5


def test_what_judges_were_asked_in_a_step_is_counted(tmp_path: Path) -> None:
    def judged(episode: Episode) -> Score:
        usage.add("a judge", requests=1)
        return own(episode)

    usage.add("a judge", requests=5)
    assert Step(tmp_path, scorer=judged).collect().figures["judge/requests"] == 4.0


def test_a_score_sees_its_row_and_has_the_configured_time(tmp_path: Path) -> None:
    rows: list[Any] = []

    def seen(episode: Episode) -> Score:
        rows.append(episode.row)
        if len(rows) == 1:
            time.sleep(0.6)
        return own(episode)

    step = Step(tmp_path, scorer=seen, rewards={"score_timeout_s": 0.3}, rollout={"failure_pause_share": 1.0})
    result = step.collect()
    assert [row["n"] for row in rows].count(2) == 2 and [row["n"] for row in rows].count(0) == 2
    errors = [found.trajectory.error for found in result.rollouts if found.trajectory.error is not None]
    assert [error.message for error in errors] == ["Scoring took longer than 0.3 s."]


def test_the_first_failure_of_a_step_is_the_example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def play(task: Task, on_turn: Any) -> Trajectory:
        found = played(0, 0)
        found.exclude(RewardFault(f"of {task.episode_id[-5:]}"))
        return found

    step = made(tmp_path, play, rollout=LIMITS | {"failure_pause_steps": 2})
    monkeypatch.setattr(step.stop, "wait", lambda seconds: False)
    step.collect(1)
    assert step.of("held")[0].error.message == "of g0-i0"
    with pytest.raises(TooManyFailures, match=r"One of the last: of g0-i0$"):
        step.collect(2)


def test_turns_are_numbered_on_and_the_task_is_the_last_thing_a_user_says(tmp_path: Path) -> None:
    async def play(task: Task, on_turn: Any) -> Trajectory:
        for message in task.messages:
            on_turn(PlayedTurn([message]))
        return played(0, 0)

    step = made(tmp_path, play)
    row = Row(messages=[Message(role="user", content=text) for text in "abc"], tools=None, raw={})
    step.collector.rows = [row] * 3
    step.collect()
    assert [event.turn for event in step.of("turn") if event.rollout == FIRST] == [0, 1, 2]
    assert {event.task for event in step.of("rollout_started")} == {"c"}


def test_a_task_that_the_environment_draws_has_no_row_and_may_have_no_text(tmp_path: Path) -> None:
    sample = {"policies": ["empty", "beg"]}
    step = Step(tmp_path, kind="sample", data={"train": ""}, sample=sample, model={"source": "scripted"})
    step.collector.rows = [Row(messages=[Message(role="system", content="Be brief.")], tools=None, raw={})] * 3
    assert step.collector.config.draws_tasks
    step.collect()
    assert {(event.row, event.task) for event in step.of("rollout_started")} == {(None, "")}


def test_normalised_terms_follow_their_schedule_and_leave_excluded_rollouts_out(tmp_path: Path) -> None:
    """At step 6 the first weight is at its last factor, 0, so that only the second counts."""
    components = [
        {"name": "task_success", "weight": 1.0, "schedule": {"begin": 0, "end": 5, "first": 1.0, "last": 0.0}},
        {"name": "place", "weight": 1.0},
    ]

    def score(episode: Episode) -> Score:
        if episode.row["n"] == 0:
            raise RewardFault("not that one")
        reward = cast(float, episode.env_reward)
        return Score(parts={"task_success": reward, "place": 1 - reward}, total=reward)

    rewards = {"components": components, "aggregation": "normalize_then_sum"}
    step = Step(tmp_path, scorer=score, rewards=rewards, rollout={"failure_pause_share": 1.0})
    step.collect()
    groups = step.of("group_scored")
    term = 0.5 / (0.5**0.5 + 1e-4)  # the second rollout has the place
    std = (2 * term**2) ** 0.5
    assert groups[0].advantages == pytest.approx([-term / (std + 1e-4), term / (std + 1e-4)])
    assert groups[1].advantages == [None, None]
