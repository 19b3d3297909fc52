"""A whole curve in 32 points, by value."""

from __future__ import annotations

import random

import pytest

from training.doctor.digest import Digest
from training.doctor.history import MOST, Course, History, Point


def course(count: int) -> Course:
    made = Course()
    for step in range(1, count + 1):
        made.add(step, float(step))
    return made


def test_points_hold_ever_more_steps_and_none_is_lost() -> None:
    assert course(MOST).stride == 1 and course(MOST + 1).stride == 2
    made = course(1000)
    assert made.stride == 32 and len(made.points) == 32 and made.values == 1000
    assert made.points[:2] == [Point(1, 16.5, 32), Point(33, 48.5, 32)] and made.points[-1] == Point(993, 996.5, 8)
    assert sum(point.mean * point.values for point in made.points) == sum(range(1, 1001))


def test_the_begin_is_the_first_tenth_and_ten_steps_at_least() -> None:
    assert course(19).begin() is None
    assert course(20).begin() == pytest.approx(5.5)
    assert course(320).begin() == pytest.approx(sum(range(1, 33)) / 32)  # two points of 16 steps hold 32


def test_stretches_hold_at_least_so_many_figures() -> None:
    assert [point.mean for point in course(5).stretches(3)] == [2.0, 3.0, 4.0]
    assert course(2).stretches(3) == []


def test_a_step_that_is_trained_again_voids_what_followed_it() -> None:
    made = course(10)
    made.add(8, 0.0)
    assert made.points[-2:] == [Point(7, 7.0, 1), Point(8, 0.0, 1)] and made.values == 8


def history(values: list[float]) -> History:
    made = History(5)
    for step, value in enumerate(values, start=1):
        made.add(Digest(step, {"reward": value}))
    return made


def test_a_trend_is_no_noise() -> None:
    assert history([step / 100 for step in range(300)]).noise("reward", 1) == pytest.approx(0.0, abs=1e-9)
    rough = history([0.1 * (step % 2) for step in range(30)]).noise("reward", 1)
    assert rough == pytest.approx(1.4826 * 0.2 / 6**0.5)
    assert history([0.1] * 6).noise("reward", 1) == float("inf")


def test_flat_is_a_level_that_surely_did_not_rise() -> None:
    flat = history([0.5] * 60).flat_since("reward", 0.01)
    assert flat is not None and flat.mean == pytest.approx(0.5) and flat.step == 41
    assert history([0.001 * step for step in range(60)]).flat_since("reward", 0.0099) is None  # a sixth rises by 0.01
    assert history([0.001 * step for step in range(60)]).flat_since("reward", 0.0101) is not None
    assert history([0.5] * 11).flat_since("reward", 1.0) is None


def test_time_is_lost_by_groups_without_spread_and_by_excluded_rollouts() -> None:
    made = History(5)
    made.add(Digest(1, {"timing/step": 100.0, "groups/zero_variance_share": 0.5, "rollouts/excluded_share": 0.2}))
    made.add(Digest(2, {"timing/step": 10.0, "flat": 1.0, "groups": 4.0}))
    made.add(Digest(3, {"timing/step": 10.0}))
    assert (made.spent_s, made.lost_s) == pytest.approx((120.0, 62.5))


def test_a_memory_of_an_older_version_is_gone_on_with() -> None:
    old = {"stage": 1, "digests": [[1, {"reward": 0.5}, {}]], "begin": {"entropy": [0.5]}, "best": {}}
    made = History.from_json(old, 5)
    made.add(Digest(2, {"reward": 0.7}))
    assert made.recent("reward") == [0.5, 0.7] and made.seen == 2 and made.course("reward") == [Point(2, 0.7, 1)]


@pytest.mark.parametrize(
    ("steps", "before"),
    [(9, []), (14, []), (19, []), (20, list(range(1, 6))), (35, list(range(1, 21))), (40, list(range(6, 26)))],
)
def test_what_came_before_ends_five_steps_off_the_window(steps: int, before: list[int]) -> None:
    """Of fewer than five steps there is nothing to compare with, and never those of the window itself."""
    made = History(10)
    for step in range(1, steps + 1):
        made.add(Digest(step, {"reward": float(step)}))
    assert made.before("reward") == before
    assert made.recent("reward") == list(range(max(1, steps - 9), steps + 1))
    assert made.trailing("reward") == (list(range(max(1, steps - 20), steps)) if steps > 5 else [])


def test_a_best_level_is_the_best_of_its_stage() -> None:
    made = History(2)
    for step, (reward, stage) in enumerate([(0.9, 1), (0.7, 1), (0.1, 1), (0.3, 2), (0.5, 2), (0.1, 2)], 1):
        made.add(Digest(step, {"reward": reward}), stage)
        if step == 3:
            assert made.best == {"reward": pytest.approx(0.8)}
        if step == 4:
            assert made.best == {} and made.recent("reward") == [0.3]
    assert made.best == {"reward": pytest.approx(0.4)}


def test_a_noisy_figure_is_flat_only_within_three_errors() -> None:
    """Its last sixth is below the one before, by chance; that alone does not show that nothing rises."""
    draw = random.Random(4)
    made = History(10)
    for step in range(1, 97):
        made.add(Digest(step, {"reward": draw.random()}))
    points = made.course("reward")
    half = len(points) // 6
    earlier, late = (sum(p.mean for p in points[-end:][:half]) / half for end in (2 * half, half))
    assert late < earlier
    assert made.flat_since("reward", 0.01) is None and made.flat_since("reward", 1.0) is not None


def test_a_mean_of_more_figures_than_a_point_holds_is_less_noisy() -> None:
    """And one of fewer is not distinguished from a point: nothing is known within it."""
    draw = random.Random(1)
    made = History(10)
    for step in range(1, 129):
        made.add(Digest(step, {"reward": draw.random()}))
    assert {point.values for point in made.course("reward")} == {4}
    point = made.noise("reward", 4)
    assert 0 < point < 0.5 and made.noise("reward", 1) == made.noise("reward", 2) == point
    assert made.noise("reward", 16) == pytest.approx(point / 2)


@pytest.mark.parametrize(("rising", "lowest"), [(True, 5.5), (False, 18.5)])
def test_the_lower_of_the_first_tenth_and_of_what_came_before(rising: bool, lowest: float) -> None:
    made = History(3)
    for step in range(1, 41):
        made.add(Digest(step, {"reward": float(step if rising else 41 - step)}))
    assert made.lowest("reward") == pytest.approx(lowest)
