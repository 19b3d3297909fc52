"""How much better one is than another that played other tasks."""

from __future__ import annotations

import numpy as np
import pytest

from training.evaluation import ALPHA, ahead_by, mean_interval
from training.shares import wilson


def shares(solved: int, of: int) -> np.ndarray:
    return np.array([1.0] * solved + [0.0] * (of - solved))


def test_the_interval_joins_those_of_the_two_means() -> None:
    found = ahead_by(shares(20, 50), shares(35, 50))
    (low_a, high_a), (low_b, high_b) = wilson(0.4, 50), wilson(0.7, 50)
    value, low, high, tasks = found.difference
    assert value == pytest.approx(0.3) and tasks == 100
    assert low == pytest.approx(0.3 - np.hypot(0.7 - low_b, high_a - 0.4))
    assert high == pytest.approx(0.3 + np.hypot(high_b - 0.7, 0.4 - low_a))


@pytest.mark.parametrize("second", [18, 20, 24, 28, 29, 30, 31, 35, 50])
def test_the_p_value_never_contradicts_the_interval(second: int) -> None:
    found = ahead_by(shares(20, 50), shares(second, 50))
    assert found.p_value is not None and found.difference.low is not None and found.difference.high is not None
    outside = found.difference.low > 0 or found.difference.high < 0
    assert (found.p_value <= ALPHA) == outside


def test_turned_round_it_is_the_same_difference_with_the_other_sign() -> None:
    one, other = ahead_by(shares(20, 50), shares(35, 40)), ahead_by(shares(35, 40), shares(20, 50))
    assert one.p_value == pytest.approx(other.p_value or 0)
    assert one.difference.value == pytest.approx(-(other.difference.value or 0))
    assert one.difference.low == pytest.approx(-(other.difference.high or 0))


def test_it_agrees_with_a_test_of_two_shares() -> None:
    """The score test of 40 of 100 and 55 of 100: z = 2.12, p = 0.034."""
    assert ahead_by(shares(40, 100), shares(55, 100)).p_value == pytest.approx(0.034, abs=0.003)


def test_equal_means_are_no_difference() -> None:
    found = ahead_by(shares(20, 50), shares(20, 50))
    assert found.difference.value == 0 and found.p_value == 1.0


def test_equal_ones_differ_about_as_often_as_the_level_says() -> None:
    """Groups of eight tries, 40 a side, of one chance of success."""
    rng = np.random.default_rng(7)
    draws = [rng.binomial(8, 0.6, size=(2, 40)) / 8 for _draw in range(300)]
    found = [ahead_by(first, second).p_value or 0 for first, second in draws]
    assert 0.02 <= np.mean([p <= ALPHA for p in found]) <= 0.09


def test_missing_values_are_left_out_and_nothing_is_not_0() -> None:
    some = np.array([1.0, np.nan, 0.0, 1.0])
    assert ahead_by(some, shares(3, 4)).difference.tasks == 7
    empty = ahead_by(np.array([np.nan]), shares(3, 4))
    assert empty.difference.value is None and empty.p_value is None
    one = ahead_by(np.array([1.0]), shares(3, 4))
    assert one.difference == (-0.25, None, None, 5) and one.p_value is None


def test_values_that_do_not_vary_claim_no_certainty() -> None:
    flat = np.array([0.5, 0.5, 0.5])
    assert mean_interval(flat).low == 0.5
    assert ahead_by(flat, np.array([0.75] * 3)).p_value is None
