"""A step whose rollouts are played from a list: every event and figure by value. No server, no model."""

from __future__ import annotations

import re
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from envs.wire import Message
from tests.training.helpers import events, job_config, of_type
from training.data import Row
from training.errors import (
    EnvironmentProtocolError,
    EnvironmentTimeout,
    RewardFault,
    StopRequested,
    StorageFull,
    TooManyFailures,
)
from training.journal import Journal
from training.rewards.base import Episode, Score
from training.rollout import holding
from training.rollout.collector import Collector
from training.rollout.rewinding import mix_seed
from training.rollout.trajectory import PlayedTurn, StepRollouts, Task, Trajectory


class Player:
    """Gives each rollout a trajectory by its group and index; ``tasks`` are those that were played."""

    def __init__(self, play: Any) -> None:
        self._play = play
        self.tasks: list[Task] = []
        self.engine = SimpleNamespace(figures=SimpleNamespace(busy_seconds=2.0))

    async def play(self, task: Task, on_turn: Any, trajectory: Trajectory) -> None:
        self.tasks.append(task)
        self.engine.figures.busy_seconds += 0.5
        on_turn(PlayedTurn(task.messages, seconds=0.125))
        on_turn(PlayedTurn([Message(role="assistant", content="5")], 3, 0.25, 7, "not JSON", "5 <tool_call>"))
        group, index = (int(part[1:]) for part in task.episode_id.split("-")[2:])
        vars(trajectory).update(vars(self._play(group, index)))


def played(group: int, index: int) -> Trajectory:
    """Group 0 has the rewards 1 and 0, group 1 has 3 twice."""
    reward = 3.0 if group else float(not index)
    return Trajectory(
        messages=[Message(role="user", content="2+3?"), Message(role="assistant", content="5")],
        mask=[1, 1, 0],
        turns=1,
        prompt_length=1,
        env_reward=reward,
        env_parts={"e": 2.0},
        parse_errors=1,
        latencies=[0.25],
        seconds=1.5,
    )


def own(episode: Episode) -> Score:
    assert episode.env_reward is not None
    return Score(parts={"task_success": episode.env_reward, "more": 0.5}, total=episode.env_reward)


class Step:
    """A collector over three rows, two prompts a step and two rollouts each."""

    def __init__(self, folder: Path, play: Any = played, scorer: Any = own, **groups: Any) -> None:
        groups["rollout"] = {"num_generations": 2} | groups.get("rollout", {})
        self.config, self.player = job_config(**{"data": {"train": "x"}} | groups), Player(play)
        self.stop, self.journal, self.path = threading.Event(), Journal(folder), folder
        rows = [
            Row(
                messages=[
                    Message(role="user", content=f"first {number}"),
                    Message(role="user", content="last " + "z" * 300),
                ],
                tools=[{"name": f"t{number}"}],
                raw={"n": number},
            )
            for number in range(3)
        ]
        shared: Any = (self.config, rows, self.player, scorer, self.journal, self.stop)
        self.collector = Collector(*shared, attempt=4, trained=lambda version: version - 5)

    def collect(self, step: int = 6, rows: tuple[int, ...] = (2, 2, 0, 0)) -> StepRollouts:
        return self.collector.collect(step, rows)

    def of(self, kind: str) -> list[Any]:
        return of_type(self.path, kind)


def test_a_rollouts_events_by_value(tmp_path: Path) -> None:
    step = Step(tmp_path)
    step.collect()
    first = [event for event in events(tmp_path) if getattr(event, "rollout", "") == "a4-s6-g0-i1"]
    assert [event.type for event in first] == ["rollout_started", "turn", "turn", "rollout_finished"]
    begin, prompt, turn, end = first
    assert (begin.step, begin.group, begin.index, begin.row, begin.policy, begin.again) == (6, 0, 1, 2, "", 0)
    assert begin.task == "last " + "z" * 195
    assert (prompt.turn, prompt.tokens, prompt.seconds, len(prompt.messages)) == (0, 0, 0.125, 2)
    assert (turn.turn, turn.tokens, turn.seconds, turn.messages[0].content) == (1, 3, 0.25, "5")
    assert (prompt.parse_error, turn.parse_error) == (None, "not JSON")
    assert (prompt.wrote, turn.wrote) == (None, "5 <tool_call>")
    assert (prompt.policy_step, turn.policy_step) == (None, 2)
    assert (end.status, end.reward, end.parts) == ("completed", 0.0, {"task_success": 0.0, "more": 0.5})
    assert (end.env_reward, end.env_parts, end.parse_errors, end.error) == (0.0, {"e": 2.0}, 1, None)
    assert (end.turns, end.tokens, end.seconds) == (1, 2, 1.5)
    names = sorted(event.rollout for event in step.of("rollout_started"))
    assert names == ["a4-s6-g0-i0", "a4-s6-g0-i1", "a4-s6-g1-i0", "a4-s6-g1-i1"]
    assert {event.row for event in step.of("rollout_started") if event.group} == {0}
    assert [(event.phase, event.step) for event in step.of("phase")] == [("generating", 6), ("scoring", 6)]
    types = [event.type for event in events(tmp_path)]
    assert types[0] == "phase" and "turn" not in types[types.index("phase", 1) :]  # scoring: all have played


def test_the_first_attempt_is_the_default(tmp_path: Path) -> None:
    step = Step(tmp_path)
    first = Collector(step.config, [], cast(Any, step.player), own, step.journal, step.stop)
    assert first.attempt == 1


def test_what_is_played_comes_from_the_row(tmp_path: Path) -> None:
    step = Step(tmp_path)
    step.collect()
    task = next(task for task in step.player.tasks if task.episode_id == "a4-s6-g1-i0")
    assert (task.row, task.task, task.tools, task.policy) == (0, {"n": 0}, [{"name": "t0"}], "")
    assert [message.content[:7] for message in task.messages] == ["first 0", "last zz"]


def test_seeds_differ_by_step_group_and_rollout_and_a_group_shares_its_episode(tmp_path: Path) -> None:
    step = Step(tmp_path)
    step.collect(6)
    step.collect(7)
    tasks = step.player.tasks
    assert len({task.sample_seed for task in tasks}) == 8
    assert len({task.episode_seed for task in tasks}) == 4
    by_group: dict[str, set[int]] = {}
    for task in tasks:
        by_group.setdefault(task.episode_id[:8], set()).add(task.episode_seed)
        assert 0 <= task.episode_seed < 2**31
    assert [len(seeds) for seeds in by_group.values()] == [1, 1, 1, 1]
    task = next(task for task in tasks if task.episode_id == "a4-s6-g1-i0")
    assert (task.episode_seed, task.sample_seed) == (mix_seed(7, 6, 1) % 2**31, mix_seed(7, 6, 1, 0))


def test_a_seed_is_the_same_on_every_machine() -> None:
    """blake2b of "7/6/1" in 7 bytes, written out: a run that is repeated elsewhere draws the same."""
    assert mix_seed(7, 6, 1) == 5231530197321503
    assert 0 <= mix_seed(1) < 2**56 and mix_seed(1, 12) != mix_seed(11, 2)


def test_groups_are_scored_with_their_advantages(tmp_path: Path) -> None:
    step = Step(tmp_path)
    result = step.collect()
    groups = {event.group: event for event in step.of("group_scored")}
    std = 0.5**0.5
    assert groups[0].rollouts == ["a4-s6-g0-i0", "a4-s6-g0-i1"] and groups[0].step == 6
    assert groups[0].advantages == pytest.approx([0.5 / (std + 1e-4), -0.5 / (std + 1e-4)])
    assert (groups[0].reward_mean, groups[0].reward_std, groups[0].zero_variance) == (0.5, pytest.approx(std), False)
    assert (groups[1].advantages, groups[1].reward_mean, groups[1].zero_variance) == ([0.0, 0.0], 3.0, True)
    assert [group.mean for group in result.groups] == [0.5, 3.0]
    assert [rollout.name for rollout in result.rollouts] == [f"a4-s6-g{g}-i{i}" for g in (0, 1) for i in (0, 1)]
    assert [(rollout.row, rollout.reward) for rollout in result.rollouts] == [(2, 1.0), (2, 0.0), (0, 3.0), (0, 3.0)]
    assert result.rollouts[0].parts == {"task_success": 1.0, "more": 0.5}


def test_a_batch_is_scaled_by_all_its_rewards(tmp_path: Path) -> None:
    step = Step(tmp_path, grpo={"scale_rewards": "batch"})
    step.collect()
    std = (sum((reward - 1.75) ** 2 for reward in (1, 0, 3, 3)) / 3) ** 0.5
    groups = step.of("group_scored")
    assert [event.group for event in groups] == [0, 1]
    assert groups[0].advantages == pytest.approx([0.5 / (std + 1e-4), -0.5 / (std + 1e-4)])
    assert events(tmp_path)[-1].type == "group_scored" and events(tmp_path)[-2].type == "group_scored"


def test_terms_are_normalised_before_they_are_summed_where_that_is_chosen(tmp_path: Path) -> None:
    components = [{"name": "task_success", "weight": 2.0}]
    step = Step(tmp_path, rewards={"components": components, "aggregation": "normalize_then_sum"})
    result = step.collect()
    term = 2 * 0.5 / (0.5**0.5 + 1e-4)  # of group 0; group 1 is flat
    std = (2 * term**2 / 3) ** 0.5
    expected = [term / (std + 1e-4), -term / (std + 1e-4)]
    groups = step.of("group_scored")
    assert groups[0].advantages == pytest.approx(expected) and groups[1].advantages == [0.0, 0.0]
    assert result.groups[0].advantages == pytest.approx(expected)
    assert groups[0].reward_mean == 0.5


def test_times_of_a_step(tmp_path: Path) -> None:
    figures = Step(tmp_path).collect().figures
    assert figures["timing/generation"] < 1.0  # the engine says 2 s in a step that took less
    assert figures["timing/environment"] == 0.0 and 0 <= figures["timing/scoring"] < 5
    assert figures["rollouts/turns_mean"] == 1.0 and figures["env/latency_p50"] == 0.25


def test_a_rollout_that_fails_is_left_out_of_its_group(tmp_path: Path) -> None:
    def play(group: int, index: int) -> Trajectory:
        found = played(group, index)
        if (group, index) == (0, 1):
            found.exclude(EnvironmentProtocolError("odd answer"))
        return found

    def no_more(episode: Episode) -> Score:
        if episode.env_reward == 3.0:
            raise RewardFault("not that one")
        return own(episode)

    step = Step(tmp_path, play, no_more, rollout={"failure_pause_share": 1.0})
    result = step.collect()
    ends = {event.rollout[-5:]: event for event in step.of("rollout_finished")}
    assert ends["g0-i1"].status == "excluded" and ends["g0-i1"].error.message == "odd answer"
    assert (ends["g0-i1"].reward, ends["g0-i1"].parts) == (None, {})
    assert ends["g1-i0"].error.code == "reward_fault" and ends["g1-i0"].reward is None
    groups = {event.group: event for event in step.of("group_scored")}
    assert groups[0].advantages == [0.0, None] and groups[1].advantages == [None, None]
    assert [rollout.parts is None for rollout in result.rollouts] == [False, True, True, True]


def failing(group: int, index: int) -> Trajectory:
    found = played(group, index)
    found.exclude(EnvironmentProtocolError("odd answer", hint="Look at it."))
    return found


LIMITS = {"failure_pause_share": 0.5, "failure_pause_steps": 3}


def test_bad_steps_are_followed_by_a_wait_and_then_by_a_pause(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    step = Step(tmp_path, failing, rollout=LIMITS)
    waited: list[float] = []
    monkeypatch.setattr(step.stop, "wait", lambda seconds: bool(waited.append(seconds)))
    step.collect(1)
    step.collect(2)
    with pytest.raises(TooManyFailures) as caught:
        step.collect(3)
    assert caught.value.message == (
        "More than 50% of the rollouts failed in 3 steps in a row; 12 failures at the boundary 'environment'. "
        "One of the last: odd answer"
    )
    assert caught.value.info.hint == "Look at it." and caught.value.info.boundary == "environment"
    assert [19 < seconds <= 20 for seconds in waited] == [True, True]
    held = step.of("held")
    assert [(event.step, event.tries, event.patience_left_s) for event in held] == [
        (1, 1, 20.0),
        (1, 0, 0.0),
        (2, 2, 0.0),
        (2, 0, 0.0),
    ]
    assert [event.error.message if event.error else None for event in held] == ["odd answer", None] * 2
    assert [event.next_try_s for event in held[::2]] == waited


def test_a_failure_without_a_hint_gets_one(tmp_path: Path) -> None:
    def play(group: int, index: int) -> Trajectory:
        found = played(group, index)
        found.exclude(RewardFault("no"))
        return found

    with pytest.raises(TooManyFailures) as caught:
        Step(tmp_path, play, rollout=LIMITS | {"failure_pause_steps": 1}).collect()
    assert caught.value.info.hint == "Fix the reward, then resume the run." and caught.value.boundary == "reward"


def test_a_good_step_between_bad_ones_forgives_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holding, "BAD_STEP_S", 0.0)
    bad = {"on": True}
    step = Step(
        tmp_path, lambda g, i: (failing if bad["on"] else played)(g, i), rollout=LIMITS | {"failure_pause_steps": 2}
    )
    for number, on in enumerate([True, False, True, False, True]):
        bad["on"] = on
        step.collect(number)
    assert step.of("held") == []  # no wait where the step itself took long enough
    with pytest.raises(TooManyFailures):
        step.collect(9)


@pytest.mark.parametrize(("share", "pauses"), [(0.5, False), (0.49, True)])
def test_a_share_at_its_limit_is_not_above_it(tmp_path: Path, share: float, pauses: bool) -> None:
    def play(group: int, index: int) -> Trajectory:
        return (failing if group else played)(group, index)

    step = Step(tmp_path, play, rollout={"failure_pause_share": share, "failure_pause_steps": 1})
    if pauses:
        with pytest.raises(TooManyFailures):
            step.collect()
    else:
        assert step.collect().figures["rollouts/excluded_share"] == 0.5


def test_a_stop_in_the_wait_after_a_bad_step_ends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    step = Step(tmp_path, failing, rollout=LIMITS)
    monkeypatch.setattr(step.stop, "wait", lambda seconds: True)
    with pytest.raises(StopRequested, match=r"^The run was asked to stop\.$"):
        step.collect()
    assert len(step.of("held")) == 1


def test_a_stop_that_was_asked_for_before_ends_the_step(tmp_path: Path) -> None:
    step = Step(tmp_path)
    step.stop.set()
    with pytest.raises(StopRequested, match=r"^The run was asked to stop\.$"):
        step.collect()


def test_a_defect_of_the_collector_is_not_a_rollouts_failure(tmp_path: Path) -> None:
    def play(group: int, index: int) -> Trajectory:
        raise ZeroDivisionError("a defect")

    with pytest.raises(ZeroDivisionError, match="a defect"):
        Step(tmp_path, play).collect()


def test_a_full_disk_ends_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    step = Step(tmp_path)
    write = step.journal.write

    def full(event: Any) -> None:
        if event.type == "turn":
            raise OSError(28, "No space left on device")
        write(event)

    monkeypatch.setattr(step.journal, "write", full)
    with pytest.raises(StorageFull) as caught:
        step.collect()
    assert re.fullmatch(r"The disk /\S* is full \(.+ free\)\.", caught.value.message)
    assert re.fullmatch(r"Free space on /\S*, so that the run can go on\.", caught.value.info.hint)


class Hold:
    """An environment that is away for as long as ``times`` says."""

    def __init__(self, times: int, spent: Exception | None = None) -> None:
        self.times, self.spent, self.waits, self.began, self.step = times, spent, 0, 0, 0

    async def away(self, error: Any) -> bool:
        return True

    async def wait(self, error: Any) -> None:
        self.waits += 1
        if self.spent is not None:
            raise self.spent

    def begun(self) -> None:
        self.began += 1

    async def learned(self) -> None:
        pass


def test_a_rollout_that_loses_its_environment_begins_again_three_times(tmp_path: Path) -> None:
    """Each loss is reported, and what the lost tries cost is counted with the last one."""

    def play(group: int, index: int) -> Trajectory:
        found = played(group, index)
        found.env_errors = 1
        if (group, index) == (0, 0):
            found.exclude(EnvironmentTimeout("late"))
        return found

    step = Step(tmp_path, play)
    hold = Hold(9)
    step.collector.hold = cast(Any, hold)
    result = step.collect()
    again = [event.again for event in step.of("rollout_started") if event.rollout == "a4-s6-g0-i0"]
    assert again == [0, 1, 2, 3] and hold.waits == 3
    first = result.rollouts[0].trajectory
    assert (first.status, first.env_errors, first.latencies) == ("excluded", 4, [0.25] * 4)
    assert hold.began == 4 + 3 and hold.step == 6  # the first turn of each try


def test_an_environment_that_stays_away_ends_the_step(tmp_path: Path) -> None:
    def play(group: int, index: int) -> Trajectory:
        found = played(group, index)
        found.exclude(EnvironmentTimeout("late"))
        return found

    step = Step(tmp_path, play)
    spent = EnvironmentTimeout("patience is spent")
    step.collector.hold = cast(Any, Hold(1, spent))
    with pytest.raises(EnvironmentTimeout) as caught:
        step.collect()
    assert caught.value is spent


def test_scripted_policies_play_one_rollout_each(tmp_path: Path) -> None:
    step = Step(tmp_path, kind="sample", sample={"policies": ["empty", "beg"]}, model={"source": "scripted"})
    step.collect()
    assert [event.policy for event in step.of("rollout_started")][:2] == ["empty", "beg"]
    assert {(task.episode_id[-2:], task.policy) for task in step.player.tasks} == {("i0", "empty"), ("i1", "beg")}
