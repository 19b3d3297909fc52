"""Parts of a mix in one step: each row is played, scored and waited for by the part that it is of."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any, cast

import pytest

from tests.training.helpers import ScriptedEngine, echo_behaviour, job_config, of_type, scripted_server
from tests.training.rollout.bench import Clock, free_port, verdict
from tests.training.rollout.test_refill import FLAT, SPREAD, members
from tests.training.rollout.test_step_by_hand import Player as Played
from training.config import JobConfig
from training.data import Row
from training.errors import EnvironmentUnreachable, RewardFault
from training.journal import Journal
from training.rewards.base import Episode, Score
from training.rollout.collector import Collector
from training.rollout.figures import part_figures
from training.rollout.players import Part, make_player, make_players
from training.rollout.step import Refill
from training.rollout.tokens import ChatTemplate
from training.rollout.trajectory import Rollout, Trajectory


def task(number: int) -> Row:
    return Row.model_validate({"messages": [{"role": "user", "content": f"task {number}"}], "raw": {"n": number}})


class Two:
    """Rows 0 to 2 are of part one, row 3 and 4 of part two; each has a player and a scorer of its own."""

    def __init__(self, folder: Path, **groups: Any) -> None:
        groups["rollout"] = {"num_generations": 2} | groups.get("rollout", {})
        self.config = job_config(data={"train": "x"}, **groups)
        self.players = [Played(lambda group, index: ended(1.0 - index)), Played(lambda group, index: ended(10.0))]
        self.stop, self.journal, self.path = threading.Event(), Journal(folder), folder
        parts = [
            Part(name, begin, self.config, cast(Any, player), scorer)
            for name, begin, player, scorer in zip(
                ("one", "two"), (0, 3), self.players, (scored("a"), scored("b")), strict=True
            )
        ]
        first: Any = self.players[0]
        rows = [task(number) for number in range(5)]
        self.collector = Collector(self.config, rows, first, scored("none"), self.journal, self.stop, parts=parts)


def ended(reward: float) -> Trajectory:
    return Trajectory(mask=[1], turns=1, env_reward=reward, env_parts={"task_success": reward / 10})


def scored(name: str) -> Any:
    def score(episode: Episode) -> Score:
        if episode.env_reward is None:
            raise RewardFault("none")
        return Score(parts={name: episode.env_reward}, total=episode.env_reward)

    return score


def test_each_row_is_played_and_scored_by_its_part_and_numbered_within_it(tmp_path: Path) -> None:
    two = Two(tmp_path)
    result = two.collector.collect(1, [2, 2, 3, 3, 4, 4])
    assert [{each.row for each in player.tasks} for player in two.players] == [{2}, {3, 4}]
    started = {(e.group, e.part, e.row) for e in of_type(tmp_path, "rollout_started")}
    assert started == {(0, "one", 2), (1, "two", 0), (2, "two", 1)}
    assert [list(rollout.parts or {}) for rollout in result.rollouts] == [["a"]] * 2 + [["b"]] * 4
    assert {name: result.figures[name] for name in result.figures if name.startswith("parts/")} == {
        "parts/one/share": 2 / 6,
        "parts/one/reward": 0.5,
        "parts/one/success": 0.05,
        "parts/two/share": 4 / 6,
        "parts/two/reward": 10.0,
        "parts/two/success": 1.0,
    }
    assert [group.mean for group in result.groups] == [0.5, 10.0, 10.0]


def test_a_job_without_a_mix_has_no_figures_of_parts_and_names_none(tmp_path: Path) -> None:
    two = Two(tmp_path)
    plain = Collector(two.config, [task(0)], cast(Any, two.players[0]), scored("a"), two.journal, two.stop)
    figures = plain.collect(1, [0, 0]).figures
    assert not [name for name in figures if name.startswith("parts/")]
    assert {(event.part, event.row) for event in of_type(tmp_path, "rollout_started")} == {("", 0)}


def rollout(row: int, reward: float | None, success: float | None = None) -> Rollout:
    parts = {} if success is None else {"task_success": success}
    return Rollout("r", row, Trajectory(env_parts=parts), None if reward is None else {"a": reward}, reward)


def test_shares_are_of_what_is_learned_from_and_success_of_all_that_was_played() -> None:
    def part_of(row: int) -> str:
        return "one" if row < 3 else "two"

    batch = [rollout(0, 1.0, 1.0), rollout(0, None, 1.0), rollout(3, 4.0), rollout(4, 2.0)]
    found = part_figures(["one", "two", "three"], part_of, batch, [*batch, rollout(1, 0.0, 0.0)])
    assert found == {
        "parts/one/share": 1 / 3, "parts/one/reward": 1.0, "parts/one/success": 0.5,
        "parts/two/share": 2 / 3, "parts/two/reward": 3.0, "parts/three/share": 0.0,
    }  # fmt: skip
    assert part_figures(["one"], part_of, [rollout(0, None)], [rollout(0, None, 1.0)]) == {}


def test_a_place_is_refilled_with_tasks_of_its_own_part() -> None:
    rollout = {"num_generations": 2, "prompts_per_step": 4, "refill_rounds": 3}
    rows = [row for row in (0, 10, 1, 11) for _ in range(2)]
    refill = Refill(job_config(rollout=rollout), 3, rows, [*range(5), *range(10, 13)], None, lambda row: str(row // 10))
    played = members(FLAT, FLAT, SPREAD, FLAT)
    first = refill.next(played)
    assert first[0] in {2, 3, 4} and first[1:] == [12, refill._used[6]] and refill._used[6] in {10, 11, 12}
    played += members(FLAT, FLAT, SPREAD)  # the second task of part 1 has spread: it takes that part's first open place
    second = refill.next(played)
    assert refill.kept == [0, 6, 2, 3]
    assert len(second) == 2 and second[0] in {2, 3, 4} and second[1] >= 10
    played += members(SPREAD, FLAT)
    third = refill.next(played)
    assert refill.kept == [7, 6, 2, 3] and len(third) == 1 and third[0] >= 10


def test_a_mix_refills_within_its_parts(tmp_path: Path) -> None:
    """Part two is always flat: its place is offered to its other task alone, and stays its own."""
    two = Two(tmp_path, rollout={"refill_rounds": 1, "prompts_per_step": 2})
    result = two.collector.collect(1, [0, 0, 3, 3])
    started = {(e.group, e.part, e.row) for e in of_type(tmp_path, "rollout_started")}
    assert started == {(0, "one", 0), (1, "two", 0), (2, "two", 1)}
    assert [rollout.row for rollout in result.rollouts] == [0, 0, 3, 3]


def test_a_part_whose_environment_is_away_holds_the_run_and_is_named(
    tmp_path: Path, tokenizer: Any, clock: Clock
) -> None:
    """The other part's rollouts are played to their end meanwhile; nothing is excluded."""
    with scripted_server(echo_behaviour) as url:
        config = JobConfig.model_validate(
            {
                "data": {"train": "x"},
                "rollout": {"prompts_per_step": 2, "num_generations": 2},
                "mix": {
                    "parts": [
                        {"name": "here", "environment": {"url": url}},
                        {"name": "gone", "environment": {"url": f"http://127.0.0.1:{free_port()}", "patience_s": 60}},
                    ]
                },
            }
        )
        engine, template = ScriptedEngine(tokenizer, ["It is 42."]), ChatTemplate(tokenizer)
        jobs = config.named_courses
        players = make_players(list(jobs.values()), engine, template)
        parts = [
            Part(name, place, job, player, verdict)
            for place, ((name, job), player) in enumerate(zip(jobs.items(), players, strict=True))
        ]
        journal = Journal(tmp_path)
        collector = Collector(config, [task(0), task(1)], players[0], verdict, journal, threading.Event(), parts=parts)
        with pytest.raises(EnvironmentUnreachable, match=r"The environment of part gone could not be reached for 60 s"):
            collector.collect(5, [0, 0, 1, 1])
        collector.close()
    held = of_type(tmp_path, "held")
    assert held and {(event.part, event.step) for event in held} == {("gone", 5)}
    assert all(event.error.message.startswith("Part gone: ") for event in held)
    part_of = {event.rollout: event.part for event in of_type(tmp_path, "rollout_started")}
    ends = of_type(tmp_path, "rollout_finished")
    assert [part_of[event.rollout] for event in ends] == ["here", "here"]
    assert {event.status for event in ends} == {"completed"}


def test_parts_with_one_environment_share_its_servers(tokenizer: Any) -> None:
    engine, template = ScriptedEngine(tokenizer, ["hi"]), ChatTemplate(tokenizer)
    jobs = [job_config(environment={"url": url}) for url in ("http://a", "http://a", "http://b")]
    one, same, other = (cast(Any, player.open_session).__self__ for player in make_players(jobs, engine, template))
    assert one is same and one is not other
    assert make_player(job_config(), engine, template).open_session is None
