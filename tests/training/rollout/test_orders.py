"""Orders of people about rollouts in flight, obeyed by a collector: what is excluded, what counts, what is late."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from envs.wire import Message
from training.config import JobConfig, RewardComponent
from training.data import Row
from training.errors import RolloutEnded, StopRequested
from training.journal import ORDERS_NAME, GroupScored, Journal, LogLine, PhaseChanged, RolloutFinished, read_events
from training.rewards.base import Episode, Score
from training.rollout.collector import Collector
from training.rollout.orders import LOOK_S
from training.rollout.trajectory import PlayedTurn, Task, Trajectory

SIZE = 4


class Slow:
    """A player of which rollouts named in ``stuck`` never end by themselves."""

    def __init__(self, stuck: set[str], turns: int = 1) -> None:
        self.stuck, self.turns, self.cut = stuck, turns, []
        self.engine = SimpleNamespace(figures=SimpleNamespace(busy_seconds=0.0))

    async def play(self, task: Task, on_turn: Any, trajectory: Trajectory) -> Trajectory:
        on_turn(PlayedTurn(task.messages, seconds=0.1))
        trajectory.messages, trajectory.prompt_length = [Message(role="user", content="2+3?")], 1
        if self.turns:
            trajectory.messages.append(Message(role="assistant", content="5"))
            trajectory.completion_ids, trajectory.mask, trajectory.logprobs = [1, 2], [1, 1], [-0.5, -0.5]
            trajectory.turns = self.turns
        try:
            if task.episode_id in self.stuck:
                trajectory.env_reward = 1.0
                await asyncio.sleep(60)
        finally:
            if task.episode_id in self.stuck:
                self.cut.append(task.episode_id)
        trajectory.env_reward, trajectory.env_parts = 1.0, {"task_success": 1.0}
        return trajectory


def score(episode: Episode) -> Score:
    """``task_success`` as the environment says, and an answer that a component finds right whatever it says."""
    assert episode.env_reward is not None
    parts = {"task_success": episode.env_reward, "right": 1.0, "form": 0.5}
    return Score(parts=parts, total=0.5 * episode.env_reward + 0.3 + 0.1)


CONFIG = {
    "kind": "grpo",
    "rollout": {"prompts_per_step": 1, "num_generations": SIZE},
    "rewards": {
        "components": [
            {"name": "task_success", "weight": 0.5},
            {"name": "right", "function": "exact_match", "weight": 0.3},
            {"name": "form", "function": "tool_call", "weight": 0.2},
        ]
    },
}


class House:
    """A collector with its journal, and a person who gives orders while it plays."""

    def __init__(self, folder: Path, player: Slow, config: dict[str, Any] | None = None) -> None:
        self.folder, self.player = folder, player
        self.journal, self.stop = Journal(folder), threading.Event()
        rows = [Row(messages=[Message(role="user", content="2+3?")], raw={})]
        made = JobConfig.model_validate(config or CONFIG)
        self.collector = Collector(made, rows, cast(Any, player), score, self.journal, self.stop, attempt=1)

    def order(self, act: str, index: int, by: str = "bob", step: int = 1) -> None:
        line = json.dumps({"rollout": name(index, step), "act": act, "by": by}) + "\n"
        with open(self.folder / ORDERS_NAME, "a", encoding="utf-8") as file:
            file.write(line)

    def later(self, *orders: tuple[str, int], after_s: float = 0.3) -> threading.Thread:
        def give() -> None:
            time.sleep(after_s)
            for act, index in orders:
                self.order(act, index)

        thread = threading.Thread(target=give)
        thread.start()
        return thread

    def events_of(self, kind: type[Any]) -> list[Any]:
        return [event for _line, event in read_events(self.journal.path) if isinstance(event, kind)]

    def finished(self, index: int) -> RolloutFinished:
        return next(event for event in self.events_of(RolloutFinished) if event.rollout == name(index))


def name(index: int, step: int = 1) -> str:
    return f"a1-s{step}-g0-i{index}"


@pytest.fixture
def house(tmp_path: Path) -> Iterator[Any]:
    """``house(player)``: a collector that is closed in the end."""
    made: list[House] = []

    def make(player: Slow, config: dict[str, Any] | None = None) -> House:
        made.append(House(tmp_path, player, config))
        return made[-1]

    yield make
    for each in made:
        each.collector.close()
        each.journal.close()


def test_one_that_is_ended_is_excluded_and_the_step_continues(house: Any) -> None:
    at = house(Slow({name(2)}))
    at.later(("end", 2))
    began = time.monotonic()
    result = at.collector.collect(1, [0] * SIZE)
    assert time.monotonic() - began < 0.3 + 1.0, "the order is obeyed within a second"
    ended = at.finished(2)
    assert (ended.status, ended.reward, ended.parts) == ("excluded", None, {})
    assert ended.error is not None and ended.error.code == "rollout_ended"
    assert ended.error.message == "It was ended by bob." and ended.error.told is not None
    assert result.rollouts[2].parts is None and at.player.cut == [name(2)]
    group = at.events_of(GroupScored)[0]
    assert group.advantages[2] is None and group.reward_mean == pytest.approx(0.9)
    assert [event.status for event in at.events_of(RolloutFinished)].count("completed") == SIZE - 1
    assert [event.phase for event in at.events_of(PhaseChanged)] == ["generating", "scoring"], (
        "nothing is played any more"
    )
    assert at.events_of(LogLine) == []


def test_one_that_is_marked_as_failed_counts_as_failed(house: Any) -> None:
    """For any verdict of the environment, and any text that a component finds."""
    at = house(Slow({name(1)}))
    at.later(("fail", 1))
    result = at.collector.collect(1, [0] * SIZE)
    failed = at.finished(1)
    assert (failed.status, failed.error) == ("truncated", None)
    assert failed.env_reward == 0.0 and failed.env_parts == {"task_success": 0.0}
    assert failed.parts == {"task_success": 0.0, "right": 0.0, "form": 0.5}
    assert failed.reward == pytest.approx(0.2 * 0.5), "shaping stays what it is"
    group = at.events_of(GroupScored)[0]
    assert group.advantages[1] < 0 < group.advantages[0], "the policy is held responsible"
    assert result.rollouts[1].trajectory.completion_ids == [1, 2], "and learns from what it wrote"
    assert [line.message for line in at.events_of(LogLine)] == [f"{name(1)} was marked as failed by bob."]


def test_a_policy_that_wrote_nothing_cannot_have_failed(house: Any) -> None:
    at = house(Slow({name(0)}, turns=0))
    at.later(("fail", 0))
    at.collector.collect(1, [0] * SIZE)
    assert at.finished(0).status == "excluded" and at.finished(0).error.code == "rollout_ended"


def test_the_first_of_two_orders_counts_and_the_other_is_reported(house: Any) -> None:
    at = house(Slow({name(0), name(3)}))
    at.later(("end", 0), ("fail", 0), ("end", 3))
    at.collector.collect(1, [0] * SIZE)
    assert at.finished(0).status == "excluded" and len(at.events_of(RolloutFinished)) == SIZE
    late = f"{name(0)} was to be marked as failed by bob, but it had ended before."
    assert [line.message for line in at.events_of(LogLine)] == [late]


def test_an_order_for_one_that_has_ended_changes_nothing(house: Any) -> None:
    at = house(Slow({name(3)}))
    at.later(("fail", 0), ("end", 3), after_s=0.4)
    at.collector.collect(1, [0] * SIZE)
    assert at.finished(0).status == "completed" and at.finished(0).reward == pytest.approx(0.9)
    assert "to be marked as failed by bob, but it had ended before" in at.events_of(LogLine)[0].message


def test_lines_that_are_no_orders_and_orders_of_others_are_passed(house: Any) -> None:
    at = house(Slow({name(0), name(1)}))
    (at.folder / ORDERS_NAME).write_text('{"rollout": "x", "act": "shoot"}\nnonsense\n')
    with open(at.folder / ORDERS_NAME, "a") as file:
        file.write('{"rollout": "a1-e1-g0-i1", "act": "end"}\n')  # a held-out one: another collector's
        file.write(f'{{"rollout": "{name(0)}", "act": "end", "by": "torn')

    def whole() -> None:
        with open(at.folder / ORDERS_NAME, "a") as file:
            file.write('"}\n')
        at.order("end", 1)

    threading.Timer(2 * LOOK_S, whole).start()  # the half of it has been read
    at.collector.collect(1, [0] * SIZE)
    ends = [at.finished(index).error.message for index in (0, 1)]
    assert ends == ["It was ended by torn.", "It was ended by bob."], "a torn line counts once it is whole"
    assert at.events_of(LogLine) == []


def test_a_later_collector_does_not_hear_what_was_said_before_it(house: Any, tmp_path: Path) -> None:
    (tmp_path / ORDERS_NAME).write_text(json.dumps({"rollout": name(0), "act": "end", "by": "bob"}) + "\n")
    at = house(Slow(set()))
    at.collector.collect(1, [0] * SIZE)
    assert at.finished(0).status == "completed" and at.events_of(LogLine) == []


def test_a_stop_ends_what_waits_for_no_order(house: Any) -> None:
    at = house(Slow({name(0)}))
    threading.Timer(0.3, at.stop.set).start()
    with pytest.raises(StopRequested):
        at.collector.collect(1, [0] * SIZE)
    assert at.player.cut == [name(0)], "its session was let go"


def test_ended_rollouts_pause_no_run(house: Any) -> None:
    """A person's decision is no failure of an environment: the limit of failures does not count it."""
    at = house(Slow({name(index) for index in range(SIZE)}), {**CONFIG, "rollout": {
        **CONFIG["rollout"], "failure_pause_share": 0.01, "failure_pause_steps": 1,
    }})  # fmt: skip
    at.later(*(("end", index) for index in range(SIZE)))
    result = at.collector.collect(1, [0] * SIZE)
    assert all(isinstance(rollout.trajectory.error, RolloutEnded) for rollout in result.rollouts)


def test_scoring_begins_when_all_are_played(house: Any) -> None:
    """The phase was journalled when all were scored, and so took no time."""
    at = house(Slow(set()))
    at.collector.scoring._scorer = lambda episode: (time.sleep(0.2), score(episode))[1]
    result = at.collector.collect(1, [0] * SIZE)
    kinds = [
        event for _line, event in read_events(at.journal.path) if isinstance(event, PhaseChanged | RolloutFinished)
    ]
    assert [getattr(event, "phase", "finished") for event in kinds] == ["generating", "scoring", *["finished"] * SIZE]
    assert result.figures["timing/scoring"] >= 0.2


def test_the_components_of_the_test_are_those_that_judge() -> None:
    parts = [RewardComponent.model_validate(each) for each in CONFIG["rewards"]["components"]]  # type: ignore[index]
    assert [part.registered for part in parts] == ["task_success", "exact_match", "tool_call"]
