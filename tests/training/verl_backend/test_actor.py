"""What a process that plays gives to verl: by value, with exclusion, lone survivors, and errors that end the run."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from envs.wire import Message
from tests.training.helpers import events, job_config, of_type
from training.data import Row
from training.errors import EnvironmentProtocolError, PolicyFault, RewardFault, SamplerDied, TiltyardError
from training.journal import ORDERS_NAME, Journal
from training.rewards.base import Episode, Score
from training.rollout.collector import Collector
from training.rollout.orders import Order
from training.rollout.trajectory import PlayedTurn, Task, Trajectory
from training.verl_backend.actor import Actor, Lesson
from training.verl_backend.folder import Plan

EOS = 99


class Player:
    """Gives each rollout a trajectory by its group and index."""

    def __init__(self, play: Any) -> None:
        self._play = play
        self.tasks: list[Task] = []
        self.engine = SimpleNamespace(figures=SimpleNamespace(busy_seconds=0.0))

    async def play(self, task: Task, on_turn: Any, trajectory: Trajectory) -> None:
        self.tasks.append(task)
        on_turn(PlayedTurn(task.messages))
        on_turn(PlayedTurn([Message(role="assistant", content="5")], 2, 0.25, 4))
        group, index = (int(part[1:]) for part in task.episode_id.split("-")[2:])
        await asyncio.sleep(0.001 * (3 - index))  # the first of a group ends last
        vars(trajectory).update(vars(self._play(group, index)))


def played(group: int, index: int) -> Trajectory:
    """Rewards 0, 1, 2 in every group; ids that say whose they are."""
    return Trajectory(
        prompt_ids=[1, 2],
        completion_ids=[10 + group, 20 + index, 30, EOS],
        mask=[1, 1, 0, 1],
        logprobs=[-0.5, -0.25, 0.0, -0.125],
        messages=[Message(role="user", content="2+3?"), Message(role="assistant", content="5")],
        turns=1,
        prompt_length=1,
        env_reward=float(index),
        env_parts={"task_success": float(index == 2)},
        latencies=[0.5],
    )


def failing(group: int, index: int) -> Trajectory:
    """Of group 0 one rollout is left, of group 1 two, of group 2 all three."""
    made = played(group, index)
    if index < 2 - group:
        made.exclude(EnvironmentProtocolError("a login page"))
    return made


def own(episode: Episode) -> Score:
    assert episode.env_reward is not None
    return Score(parts={"task_success": episode.env_reward}, total=episode.env_reward)


def actor(folder: Path, play: Any = played, scorer: Any = own, **groups: Any) -> Actor:
    """Three tasks a step, three rollouts each."""
    groups["rollout"] = {"prompts_per_step": 3, "num_generations": 3} | groups.get("rollout", {})
    config = job_config(**{"data": {"train": "x"}} | groups)
    rows = [Row(messages=[Message(role="user", content=f"row {number}")], raw={"n": number}) for number in range(4)]
    plan = Plan(attempt=2, order=[3, 2, 1, 0, 3, 2], rows=4, eos_id=EOS)
    player: Any = Player(play)
    return Actor(config, plan, rows, player, Journal(folder), folder, scorer)


def play(made: Actor, *groups: int, step: int = 1) -> list[list[Lesson]]:
    async def all_of(group: int) -> list[Lesson]:
        return list(await asyncio.gather(*(made.play(step, group, index) for index in range(3))))

    async def run() -> list[list[Lesson]]:
        return [await all_of(group) for group in groups]

    try:
        return asyncio.run(run())
    finally:
        made.close()


def test_rewards_and_waits_are_of_the_step_that_is_played(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[int] = []

    def scored(episode: Episode, components: Any, *, step: int) -> Score:
        steps.append(step)
        return own(episode)

    monkeypatch.setattr("training.verl_backend.actor.score_episode", scored)
    made = actor(tmp_path, scorer=None)
    play(made, 0, step=2)
    assert steps == [2, 2, 2] and made.ground_of(0).hold.step == 2


def test_the_rollouts_of_a_sampling_are_named_by_its_first_update(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """verl's second sampling of three updates each begins at step 4, with the weights of step 3 and the next rows."""
    steps: list[int] = []

    def scored(episode: Episode, components: Any, *, step: int) -> Score:
        steps.append(step)
        return own(episode)

    monkeypatch.setattr("training.verl_backend.actor.score_episode", scored)
    made = actor(tmp_path, scorer=None, grpo={"num_iterations": 3})
    ((first, *_others),) = play(made, 0, step=2)
    assert first.facts["name"] == "a2-s4-g0-i0" and first.facts["row"] == 0
    assert steps == [4, 4, 4] and made.ground_of(0).hold.step == 4
    (group,) = of_type(tmp_path, "group_scored")
    assert group.step == 4
    assert [made.trained_of(version) for version in (None, 0, 1)] == [None, 0, 3]


def test_a_step_that_is_over_is_forgotten(tmp_path: Path) -> None:
    made = actor(tmp_path)

    async def run() -> None:
        for step in (1, 2):
            await asyncio.gather(*(made.play(step, 0, index) for index in range(3)))

    asyncio.run(run())
    made.close()
    assert list(made._steps) == [2]


def test_a_group_by_value(tmp_path: Path) -> None:
    made = actor(tmp_path)
    (group,) = play(made, 1, step=2)
    low = -1 / (1 + 1e-4)  # rewards 0, 1, 2 have the mean 1 and the deviation 1
    assert [lesson.advantage for lesson in group] == pytest.approx([low, 0.0, -low], abs=1e-12)
    assert group[2].completion_ids == [11, 22, 30, EOS] and group[2].prompt_ids == [1, 2]
    assert group[2].mask == [1, 1, 0, 1] and group[2].logprobs == [-0.5, -0.25, 0.0, -0.125]
    facts = group[2].facts
    assert (facts["name"], facts["row"], facts["reward"], facts["parts"]) == (
        "a2-s2-g1-i2",
        3,
        2.0,
        {"task_success": 2.0},
    )
    assert (facts["turns"], facts["tokens"], facts["status"], facts["error"]) == (1, 3, "completed", None)
    (scored,) = of_type(tmp_path, "group_scored")
    assert (scored.step, scored.group, scored.rollouts) == (2, 1, [f"a2-s2-g1-i{index}" for index in range(3)])
    assert scored.advantages == [lesson.advantage for lesson in group]
    assert [event.row for event in of_type(tmp_path, "rollout_started")] == [3, 3, 3]
    assert {event.policy_step for event in of_type(tmp_path, "turn") if event.turn} == {4}
    assert {event.type for event in events(tmp_path)} == {"rollout_started", "turn", "rollout_finished", "group_scored"}


def test_names_and_seeds_are_those_of_a_run_on_one_device(tmp_path: Path) -> None:
    made = actor(tmp_path / "verl")
    play(made, 0, 2)
    alone: Any = Player(played)
    collector = Collector(made.config, made.rows, alone, own, Journal(tmp_path / "one"), threading.Event(), attempt=2)
    collector.collect(1, [row for row in (3, 2, 1) for _ in range(3)])
    collector.close()
    seeds = {task.episode_id: (task.row, task.episode_seed, task.sample_seed) for task in alone.tasks}
    mine: Any = made._ground.player
    assert len(mine.tasks) == 6
    assert all(seeds[task.episode_id] == (task.row, task.episode_seed, task.sample_seed) for task in mine.tasks)
    pairs = [
        {event.group: event.advantages for event in of_type(tmp_path / name, "group_scored")}
        for name in ("verl", "one")
    ]
    assert pairs[0] == {group: pairs[1][group] for group in (0, 2)}


def test_an_excluded_rollout_is_one_token_that_nothing_is_learned_from(tmp_path: Path) -> None:
    made = actor(tmp_path, failing)
    _lone, two, _all = play(made, 0, 1, 2)
    gone = two[0]
    assert (gone.prompt_ids, gone.completion_ids, gone.mask, gone.logprobs) == ([EOS], [EOS], [0], [0.0])
    assert gone.advantage == 0.0 and gone.facts["reward"] is None and gone.facts["parts"] is None
    assert gone.facts["error"]["code"] == "environment_protocol" and gone.facts["error"]["pauses"] is False
    spread = 0.5 / (0.5**0.5 + 1e-4)  # rewards 1 and 2
    assert [lesson.advantage for lesson in two[1:]] == pytest.approx([-spread, spread], abs=1e-12)
    assert [lesson.mask for lesson in two[1:]] == [[1, 1, 0, 1]] * 2


def test_a_lone_survivor_teaches_nothing_and_least_of_all_its_raw_reward(tmp_path: Path) -> None:
    lone, two, whole = play(actor(tmp_path, failing), 0, 1, 2)
    assert lone[2].facts["reward"] == 2.0 and lone[2].advantage == 0.0
    assert lone[2].completion_ids == [10, 22, 30, EOS] and lone[2].mask == [0, 0, 0, 0]
    assert [len(lesson.mask) == len(lesson.completion_ids) == len(lesson.logprobs) for lesson in lone] == [True] * 3
    assert not any(any(lesson.mask) for lesson in lone) and all(any(lesson.mask) for lesson in whole)
    assert sum(any(lesson.mask) for lesson in two) == 2


def test_a_group_that_is_not_learned_from_is_silent(tmp_path: Path) -> None:
    def equal(group: int, index: int) -> Trajectory:
        made = played(group, index)
        made.env_reward = 1.0
        return made

    (flat,) = play(actor(tmp_path / "all", equal), 0)
    assert [any(lesson.mask) for lesson in flat] == [True] * 3 and {lesson.advantage for lesson in flat} == {0.0}
    (silent,) = play(actor(tmp_path / "reward", equal, rewards={"signal": "reward"}), 0)
    assert [any(lesson.mask) for lesson in silent] == [False] * 3


@pytest.mark.parametrize("masks", [False, True])
def test_a_truncated_rollout_is_masked_where_that_is_asked_for(tmp_path: Path, masks: bool) -> None:
    def cut(group: int, index: int) -> Trajectory:
        made = played(group, index)
        made.status = "truncated" if index == 1 else "completed"
        return made

    (group,) = play(actor(tmp_path, cut, grpo={"mask_truncated": masks}), 0)
    assert [any(lesson.mask) for lesson in group] == [True, not masks, True]


def test_a_rollout_without_a_token_is_none_that_verl_would_refuse(tmp_path: Path) -> None:
    def empty(group: int, index: int) -> Trajectory:
        made = played(group, index)
        if index == 1:
            made.completion_ids, made.mask, made.logprobs = [], [], []
        return made

    (group,) = play(actor(tmp_path, empty), 0)
    assert (group[1].completion_ids, group[1].mask) == ([EOS], [0]) and group[1].facts["reward"] == 1.0


def test_a_scorer_that_fails_excludes(tmp_path: Path) -> None:
    def broken(episode: Episode) -> Score:
        if episode.env_reward == 1.0:
            raise RewardFault("no number")
        return own(episode)

    (group,) = play(actor(tmp_path, played, broken), 0)
    assert [lesson.facts["reward"] for lesson in group] == [0.0, None, 2.0] and group[1].mask == [0]


def test_an_error_that_ends_the_run_ends_the_wait_of_all(tmp_path: Path) -> None:
    def dead(group: int, index: int) -> Trajectory:
        made = played(group, index)
        if index == 2:
            made.exclude(SamplerDied("it is gone"))
        return made

    made = actor(tmp_path, dead)

    async def run() -> list[Any]:
        return await asyncio.gather(*(made.play(1, 0, index) for index in range(3)), return_exceptions=True)

    found = asyncio.run(asyncio.wait_for(run(), 5))
    assert [type(error) for error in found] == [SamplerDied] * 3
    made.close()


def test_a_defect_in_one_rollout_does_not_let_the_others_wait(tmp_path: Path) -> None:
    def defect(group: int, index: int) -> Trajectory:
        if index == 1:
            raise ZeroDivisionError("ours")
        return played(group, index)

    made = actor(tmp_path, defect)

    async def run() -> list[Any]:
        return await asyncio.gather(*(made.play(1, 0, index) for index in range(3)), return_exceptions=True)

    found = asyncio.run(asyncio.wait_for(run(), 5))
    assert [type(error) for error in found] == [ZeroDivisionError] * 3
    made.close()


def test_a_journal_that_cannot_be_written_ends_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = actor(tmp_path)

    def full(_event: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(made._journal, "write", full)
    with pytest.raises(TiltyardError) as found:
        play(made, 0)
    assert found.value.code == "storage_full" and found.value.pauses


def test_no_policy_fault_is_made_of_it(tmp_path: Path) -> None:
    """A turn that the sampler gives up excludes its rollout alone."""

    def given_up(group: int, index: int) -> Trajectory:
        made = played(group, index)
        if index == 0:
            made.exclude(PolicyFault("The sampler gave up the turn."))
        return made

    (group,) = play(actor(tmp_path, given_up), 0)
    assert [any(lesson.mask) for lesson in group] == [False, True, True]


def write(path: Path, orders: Sequence[Order]) -> None:
    path.write_text("".join(f"{order.model_dump_json()}\n" for order in orders))


def ordered(made: Actor, run_dir: Path, *orders: Order, after: int = 1) -> tuple[list[Any], list[Any]]:
    """Play group 1 while the supervisor writes orders, after so many rollouts have begun; lessons and what was logged.

    The first rollout waits until it is ended.
    """
    endless = asyncio.Event()

    async def slow(task: Task, on_turn: Any, trajectory: Trajectory) -> None:
        if task.episode_id.endswith("-i0"):
            await endless.wait()
        await plain(task, on_turn, trajectory)

    async def run() -> list[Any]:
        playing = [asyncio.create_task(made.play(1, 1, index)) for index in range(3)]
        while len(of_type(run_dir, "rollout_finished")) < after:  # noqa: ASYNC110 - the journal is a file
            await asyncio.sleep(0.01)
        write(run_dir / ORDERS_NAME, orders)
        async with asyncio.timeout(20):
            lessons = await asyncio.gather(*playing)
            assert made._watching is not None
            await made._watching
        return list(lessons)

    player: Any = made._ground.player
    plain, player.play = player.play, slow
    try:
        return asyncio.run(run()), [event.message for event in of_type(run_dir, "log")]
    finally:
        made.close()


def test_people_end_a_rollout_in_flight_and_hear_where_they_came_too_late(tmp_path: Path) -> None:
    """The order file is the run's: what another process plays is for that one to answer."""
    name = "a2-s1-g1-i{}".format
    orders = [
        Order(rollout=name(1), act="fail", by="bob"),
        Order(rollout="a2-s1-g2-i0", act="end", by="bob"),
        Order(rollout=name(0), act="end", by="rita"),
    ]
    made = actor(tmp_path)
    lessons, said = ordered(made, tmp_path, *orders, after=2)
    assert lessons[0].facts["reward"] is None and lessons[0].facts["error"]["code"] == "rollout_ended"
    assert [lesson.facts["reward"] for lesson in lessons[1:]] == [1.0, 2.0]
    assert said == [f"{name(1)} was to be marked as failed by bob, but it had ended before."]
