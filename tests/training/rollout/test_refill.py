"""Groups with zero variance give their place to groups of other tasks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.training.helpers import job_config, of_type
from tests.training.rollout.test_signal import group
from tests.training.rollout.test_step_by_hand import Step
from training.rewards.base import Episode, Score
from training.rollout.step import Refill
from training.rollout.trajectory import Rollout, Trajectory

SPREAD: list[float | None] = [1.0, 0.0]
FLAT: list[float | None] = [0.5, 0.5]


def members(*rewards: list[float | None]) -> list[Rollout]:
    return [rollout for found in rewards for rollout in group(found, [None] * len(found))]


def refill(rounds: int, rows: list[int], spare: range = range(10), **groups: Any) -> Refill:
    rollout = {"num_generations": 2, "prompts_per_step": len(rows), "refill_rounds": rounds}
    config = job_config(**groups | {"rollout": rollout})
    return Refill(config, 3, [row for row in rows for _ in range(2)], spare)


def test_each_flat_group_gives_its_place_until_all_have_spread() -> None:
    found = refill(4, [0, 1, 2])
    played = members(SPREAD, FLAT, FLAT)
    first = found.next(played)
    assert len(first) == 2 and not {0, 1, 2} & set(first) and len(set(first)) == 2
    played += members(FLAT, SPREAD)
    second = found.next(played)
    assert len(second) == 1 and not {0, 1, 2, *first} & set(second) and found.kept == [0, 4, 2]
    played += members(SPREAD)
    assert found.next(played) == [] and found.kept == [0, 4, 5]
    assert found.figures == {"groups/refilled": 2.0, "rollouts/extra": 6.0}


def test_places_that_stay_flat_keep_their_first_group_when_the_rounds_are_over() -> None:
    found = refill(1, [0, 1])
    played = members(FLAT, FLAT)
    assert len(found.next(played)) == 2
    assert found.next([*played, *members(FLAT, SPREAD)]) == []
    assert found.kept == [3, 1] and found.figures == {"groups/refilled": 1.0, "rollouts/extra": 4.0}


def test_a_step_that_is_played_again_draws_the_same_tasks_and_another_step_others() -> None:
    drawn = [refill(2, [0, 1, 2, 3], range(100)).next(members(*[FLAT] * 4)) for _ in range(2)]
    assert drawn[0] == drawn[1]
    other = refill(2, [0, 1, 2, 3], range(100))
    other._step = 4
    assert other.next(members(*[FLAT] * 4)) != drawn[0]


def test_where_tasks_are_few_they_come_again_with_other_seeds() -> None:
    found = refill(1, [0, 1, 2], range(3))
    assert set(found.next(members(FLAT, FLAT, FLAT))) <= {0, 1, 2}


def test_rows_that_were_drawn_come_in_their_order() -> None:
    config = job_config(rollout={"num_generations": 2, "prompts_per_step": 3, "refill_rounds": 3})
    found = Refill(config, 3, [0, 0, 1, 1, 2, 2], range(10), [7, 0, 7, 5, 1, 3, 9])
    played = members(FLAT, FLAT, FLAT)
    assert found.next(played) == [7, 5, 3]  # none that the step has, and none twice
    played += members(FLAT, SPREAD, FLAT)
    assert found.next(played) == [9, 7]
    played += members(FLAT, FLAT)
    assert found.next(played) == [7, 0] and found.kept == [4, 1, 2]


def test_where_nothing_was_drawn_the_spare_rows_come() -> None:
    config = job_config(rollout={"num_generations": 2, "prompts_per_step": 2, "refill_rounds": 1})
    assert Refill(config, 3, [0, 0, 1, 1], range(4), []).next(members(FLAT, FLAT)) == [2, 3]


def test_each_round_draws_again_where_tasks_are_few() -> None:
    found = refill(3, [0, 1, 2, 3], range(4))
    played, rounds = members(*[FLAT] * 4), []
    for _ in range(3):
        rounds.append(tuple(found.next(played)))
        played += members(*[FLAT] * 4)
    assert len(set(rounds)) == 3 and all(len(rows) == 4 for rows in rounds)


@pytest.mark.parametrize(
    ("rounds", "groups"), [(0, {}), (3, {"kind": "sample", "data": {"train": "x"}})], ids=["off", "nothing is learned"]
)
def test_nothing_is_refilled_where_that_is_off(rounds: int, groups: dict[str, Any]) -> None:
    found = refill(rounds, [0, 1], **groups)
    assert found.next(members(FLAT, FLAT)) == [] and found.kept == [0, 1] and found.figures == {}


def test_with_the_outcome_as_signal_a_group_of_failures_is_flat() -> None:
    found = refill(1, [0], rewards={"signal": "outcome"})
    assert len(found.next(group([0.1, 0.4], [0.0, 0.0]))) == 1
    found = refill(1, [0], rewards={"signal": "outcome"})
    assert found.next(group([0.4, 0.4], [0.0, 1.0])) == []


def by_task(rewards: Callable[[int, int], float]) -> tuple[Any, Any]:
    """What is played and how it is scored: the reward is of the group's number and the rollout's index."""

    def play(place: int, index: int) -> Trajectory:
        return Trajectory([1, 2], [3, 4], [1, 1], [-1.0, -1.0], env_reward=rewards(place, index), turns=1)

    def score(episode: Episode) -> Score:
        assert episode.env_reward is not None
        return Score(parts={"task_success": episode.env_reward}, total=episode.env_reward)

    return play, score


@pytest.mark.parametrize("scale", ["group", "batch"])
def test_the_batch_is_made_of_the_groups_that_were_kept(tmp_path: Path, scale: str) -> None:
    # Group 0 is flat, as is its first replacement (2); group 3 has spread. Group 1 has spread from the first.
    play, score = by_task(lambda place, index: float(index) * (place in {1, 3}) * place)
    groups = {"rollout": {"refill_rounds": 5}, "grpo": {"scale_rewards": scale}}
    step = Step(tmp_path, play, score, **groups)
    result = step.collect(6, (2, 2, 0, 0))
    assert [rollout.name for rollout in result.rollouts] == [f"a4-s6-g{g}-i{i}" for g in (3, 1) for i in (0, 1)]
    assert [rollout.reward for rollout in result.rollouts] == [0.0, 3.0, 0.0, 1.0]
    assert len(result.groups) == 2 and len(result.played) == 8
    assert result.figures["groups/refilled"] == 1.0 and result.figures["rollouts/extra"] == 4.0
    assert result.figures["groups/zero_variance_share"] == 0.5  # of all that were played
    scored = {event.group: event for event in of_type(tmp_path, "group_scored")}
    assert sorted(scored) == [0, 1, 2, 3]
    assert scored[0].advantages == [0.0, 0.0] and scored[2].zero_variance
    # The batch's deviation is of 0, 3, 0, 1; that of each group of its own two.
    std = 1.4142135623730951 if scale == "batch" else 3 / 2**0.5
    assert scored[3].advantages == pytest.approx([-1.5 / (std + 1e-4), 1.5 / (std + 1e-4)])
    phases = [event.phase for event in step.of("phase")]
    assert phases == ["generating", "scoring"] * 3


def test_a_component_wise_baseline_is_of_the_kept_groups_too(tmp_path: Path) -> None:
    play, score = by_task(lambda place, index: float(index) * (place in {1, 3}) * place)
    rewards = {"aggregation": "normalize_then_sum", "components": [{"name": "task_success", "weight": 1.0}]}
    step = Step(tmp_path, play, score, rollout={"refill_rounds": 5}, rewards=rewards)
    step.collect(6, (2, 2, 0, 0))
    scored = {event.group: event for event in of_type(tmp_path, "group_scored")}
    assert scored[0].advantages == scored[2].advantages == [0.0, 0.0]
    assert scored[3].advantages[1] > 0.5 and scored[3].advantages[0] == -scored[3].advantages[1]


def test_what_refilled_rollouts_failed_of_counts_among_the_failures(tmp_path: Path) -> None:
    play, score = by_task(lambda place, index: 0.5)
    step = Step(tmp_path, play, score, rollout={"refill_rounds": 1})
    result = step.collect(6, (2, 2, 0, 0))
    assert len(result.played) == 8 and [rollout.name[6:8] for rollout in result.rollouts] == ["g0", "g0", "g1", "g1"]
    assert result.figures["groups/refilled"] == 0.0 and result.figures["rollouts/extra"] == 4.0
