"""Credit to turns, by hand: four rollouts of up to three turns."""

from __future__ import annotations

import math
from typing import Any

import pytest

from training.config import RewardComponent
from training.rewards.combining import SCALE_EPSILON, group_statistics
from training.rewards.turns import TurnCredit, gains_of, not_its_own, turn_credit

PAID = [RewardComponent(name="task_success", weight=1.0)]
SAID = {
    "a": [None, 1.0, 1.0, 2.0],
    "b": [None, 0.0, 1.0, 1.0],
    "c": [None, 0.0, None, 3.0],
    "d": [None, 1.0, 0.0],  # ends with its second turn
}
REWARDS = [2.0, 1.0, 3.0, 0.0]  # mean 1.5, variance 5 / 3
STD = math.sqrt(5 / 3)


def gains(paid: list[float | None], components: list[RewardComponent] = PAID, step: int = 0) -> list[float] | None:
    final = next((value for value in reversed(paid) if value is not None), 0.0)
    return gains_of(paid, len(paid) - 1, components, {"task_success": final, "shape": 1.0}, step)


ALL = [gains(paid) for paid in SAID.values()]


def credited(**given: object) -> list[list[float]]:
    """The advantages of the four rollouts' turns."""
    options = {"weight": 1.0, "discount": 1.0, "scale": "none", "batch_std": STD, **given}
    advantages = group_statistics(REWARDS, scale=options["scale"], batch_std=STD).advantages  # type: ignore[arg-type]
    found = turn_credit(REWARDS, advantages, ALL, **options)  # type: ignore[arg-type]
    return [row.of(value) for row, value in zip(found, advantages, strict=True) if row and value is not None]


def test_a_gain_is_a_difference_of_what_was_reported() -> None:
    assert ALL == [[1.0, 0.0], [0.0, 1.0], [0.0, 0.0], [1.0]]
    assert gains([0.5, 0.75, None, 0.25, 1.0]) == [0.25, 0.0, -0.5]
    assert gains([2.0, 2.0, 5.0]) == [0.0]


def test_a_reward_that_was_not_reported_is_not_zero() -> None:
    assert gains([None, None, None, 1.0]) is None and gains([0.0, None, None, 1.0]) is None
    assert gains_of([], 3, PAID, {"task_success": 0.0}, 0) is None  # marked as failed
    assert gains_of([None, None], 2, PAID, {"task_success": 0.0}, 0) is None  # cut off in its last turn
    assert gains_of([None, 0.5], 2, PAID, {"task_success": 0.5}, 0) == [0.5]
    assert gains([None, 1.0]) == [] and gains_of([0.0], 0, PAID, {}, 0) is None


def test_gains_are_in_units_of_the_reward() -> None:
    shaped = {"weight": 2.0, "clip": [0.0, 1.0], "scale": [0.0, 4.0], "schedule": {"end": 10, "last": 0.0}}
    item = RewardComponent(name="paid", function="task_success", **shaped)
    paid, parts = [None, 0.5, 3.0, 9.0], {"paid": 9.0}
    assert gains_of(paid, 3, [item], parts, 0) == [0.25, 0.25]  # 2 · 0.5 / 4, and up to the clip
    assert gains_of(paid, 3, [item], parts, 5) == [0.125, 0.125]  # half way through the schedule
    behind = RewardComponent.model_validate(item.model_dump() | {"gate": {"component": "shape", "above": 0.5}})
    assert gains_of(paid, 3, [behind], {**parts, "shape": 1.0}, 0) == [0.25, 0.25]
    assert gains_of(paid, 3, [behind], {**parts, "shape": 0.0}, 0) == [0.0, 0.0]
    other = RewardComponent(name="exact_match", weight=5.0)
    assert gains_of(paid, 3, [item, other], {**parts, "exact_match": 1.0}, 0) == [0.25, 0.25]
    assert gains_of(paid, 3, [item], {}, 0) == [0.0, 0.0]  # it does not count for the row


@pytest.mark.parametrize(
    ("discount", "wanted"),
    [(1.0, [[0, 1, 3, 7]]), (0.0, [[6, 5, 3, 7]]), (0.5, [[2 * 0.5 + 4 * 0.75, 1 + 4 * 0.5, 3, 7]])],
)
def test_what_is_not_a_turn_s_own(discount: float, wanted: list[list[float]]) -> None:
    """Gains 1, 2 and 4 of a rollout of four turns: those before it, and what it does not keep of later ones."""
    assert [not_its_own([1.0, 2.0, 4.0], discount)] == wanted
    assert not_its_own([], discount) == [0.0]


def test_what_was_paid_before_is_taken_off() -> None:
    first, second, third = zip(*([*row, math.nan][:3] for row in credited()), strict=True)
    assert first == (0.5, -0.5, 1.5, -1.5)
    # Paid before: 1, 0, 0 and 1. What is left, 1, 1, 3 and -1, has the mean 1.
    assert second == pytest.approx((0.0, 0.0, 2.0, -2.0))
    # Of the three that got so far 1, 1 and 0; what is left, 1, 0 and 3, has the mean 4 / 3.
    assert third[:3] == pytest.approx((-1 / 3, -4 / 3, 5 / 3)) and math.isnan(third[3])


def test_a_turn_is_divided_by_the_spread_of_what_it_answers_for() -> None:
    rows = credited(scale="group")
    assert [row[0] for row in rows] == pytest.approx([v / (STD + SCALE_EPSILON) for v in (0.5, -0.5, 1.5, -1.5)])
    spread = math.sqrt(8 / 3) + SCALE_EPSILON  # of 1, 1, 3 and -1
    assert [row[1] for row in rows] == pytest.approx([0.0, 0.0, 2 / spread, -2 / spread])
    spread = math.sqrt(7 / 3) + SCALE_EPSILON  # of 1, 0 and 3
    assert [row[2] for row in rows[:3]] == pytest.approx([v / 3 / spread for v in (-1, -4, 5)])


def test_a_batch_s_spread_divides_all_turns() -> None:
    plain = credited()
    for row, whole in zip(credited(scale="batch"), plain, strict=True):
        assert row == pytest.approx([value / (STD + SCALE_EPSILON) for value in whole])
    zeros: list[float | None] = [0.0] * 4
    unknown = turn_credit(REWARDS, zeros, ALL, weight=1.0, discount=1.0, scale="batch", batch_std=None)
    assert all(row is not None and row.of(0.0) == [0.0] * len(row.less) for row in unknown)


def test_each_is_compared_with_the_others_in_rloo() -> None:
    found = credited(scale="leave_one_out")
    assert [row[0] for row in found] == pytest.approx([4 / 3 * value for value in (0.5, -0.5, 1.5, -1.5)])
    assert [row[1] for row in found] == pytest.approx([1 - 1, 1 - 1, 3 - 1 / 3, -1 - 5 / 3])
    assert [row[2] for row in found[:3]] == pytest.approx([1 - 3 / 2, 0 - 2, 3 - 1 / 2])


def test_weight_and_discount() -> None:
    assert [row[1] for row in credited(weight=0.5)] == pytest.approx([0.25, -0.25, 1.75, -1.75])
    assert [row[0] for row in credited(discount=0.5)] == pytest.approx([0.625, -0.875, 1.625, -1.375])
    assert [row[0] for row in credited(discount=0.0)] == pytest.approx([0.75, -1.25, 1.75, -1.25])
    assert [row[2] for row in credited(discount=0.0)[:3]] == pytest.approx([-1 / 3, -4 / 3, 5 / 3])


def test_a_reward_at_the_end_alone_is_the_rollout_s() -> None:
    """Exactly, not nearly; and so is one of which all were paid the same before."""
    silent: list[list[float | None]] = [[None, None, 1.0], [None, None, None, 0.0], [0.0, None, 0.7], [None, 0.3]]
    zeros: list[list[float | None]] = [[None, 0.0, 0.0, 1.0], [None, 0.0, 0.0], [0.5, 0.5, 0.7], [None, 0.3]]
    equal: list[list[float | None]] = [[None, 0.5, 1.0], [None, 0.5, 0.0], [0.0, 0.5, 0.7], [None, 0.5, 0.3]]
    rewards: list[float | None] = [1.0, 0.0, 0.7, 0.3]
    for rewarded in (silent, zeros, equal):
        for scale in ("group", "batch", "none", "leave_one_out"):
            advantages = group_statistics(rewards, scale=scale, batch_std=0.4).advantages
            found = turn_credit(
                rewards,
                advantages,
                [gains(row) for row in rewarded],
                weight=1.0,
                discount=1.0,
                scale=scale,
                batch_std=0.4,
            )
            for row, value in zip(found, advantages, strict=True):
                assert value is not None and (row is None or row.of(value) == [value] * len(row.less))


def test_the_silent_and_the_excluded_have_no_part() -> None:
    options: dict[str, Any] = {"weight": 1.0, "discount": 1.0, "scale": "none"}
    plain = turn_credit(REWARDS, REWARDS, ALL, **options)
    more = turn_credit([*REWARDS, 9.0, None], [*REWARDS, 9.0, None], [*ALL, None, [4.0]], **options)
    assert more[:5] == [*plain, None] and more[5] == TurnCredit([0.0, 0.0])


def test_a_turn_that_one_rollout_reached_is_the_rollout_s() -> None:
    options: dict[str, Any] = {"weight": 1.0, "discount": 1.0, "scale": "group"}
    found = turn_credit([6.0, 4.0], [0.7, -0.7], [[1.0, 5.0], [3.0]], **options)
    assert found[0] is not None and found[0].less[2] == 0.0
    half = 2.0 / (math.sqrt(8) + SCALE_EPSILON)  # of 5 and 1
    assert found[0].of(0.7)[1] == pytest.approx(half)
    alone = turn_credit([6.0, 4.0], [1.0, -1.0], [[1.0, 5.0], None], **options | {"scale": "leave_one_out"})
    assert alone == [TurnCredit([0.0] * 3), None]


def test_equal_rewards_that_were_earned_at_different_turns() -> None:
    """Both end at 1: it is the turn that differs. Where nothing is left to differ, the advantage is 0."""
    options: dict[str, Any] = {"weight": 1.0, "discount": 1.0, "scale": "group"}
    found = turn_credit([1.0, 1.0], [0.0, 0.0], [[1.0], [0.0]], **options)
    half = 0.5 / (math.sqrt(0.5) + SCALE_EPSILON)
    assert [row.of(0.0) for row in found if row] == [[0.0, pytest.approx(-half)], [0.0, pytest.approx(half)]]
    done = turn_credit([1.0, 0.0], [0.7, -0.7], [[1.0], [0.0]], **options)
    assert [row.of(value) for row, value in zip(done, (0.7, -0.7), strict=True) if row] == [[0.7, 0.0], [-0.7, 0.0]]
