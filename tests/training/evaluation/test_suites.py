"""The score of several sets: its interval holds the truth, and equal contestants are seldom called different."""

from __future__ import annotations

import math

import numpy as np
import pytest

from training.evaluation.comparisons import Interval, mean_intervals
from training.evaluation.figures import better_by, joined

A = Interval(0.6, 0.5, 0.68, 100)
B = Interval(0.2, 0.1, 0.34, 40)


def test_one_set_keeps_its_own_interval() -> None:
    assert joined([A], [3.0]) == A


def test_two_sets_are_joined_by_their_weights() -> None:
    """MOVER by hand: shares 3/4 and 1/4."""
    found = joined([A, B], [3, 1])
    assert (found.value, found.tasks) == (pytest.approx(0.5), 140)
    assert found.low == pytest.approx(0.5 - math.hypot(0.75 * 0.1, 0.25 * 0.1))
    assert found.high == pytest.approx(0.5 + math.hypot(0.75 * 0.08, 0.25 * 0.14))


def test_a_set_without_a_value_leaves_no_score() -> None:
    missing = Interval(None, None, None, 0)
    assert joined([A, missing], [1, 1]) == Interval(None, None, None, 100)
    assert joined([A, missing], [1, 0]).value is None and joined([], []).value is None
    assert joined([A, B], [0, 0]).value is None


def test_a_set_of_one_task_leaves_the_score_without_ends() -> None:
    found = joined([A, Interval(1.0, None, None, 1)], [1, 1])
    assert (found.value, found.low, found.high) == (pytest.approx(0.8), None, None)
    assert joined([A, Interval(1.0, None, None, 1)], [1, 0]).low == pytest.approx(0.5)  # it weighs nothing


@pytest.mark.parametrize("tries", [1, 4])
def test_nineteen_of_twenty_scores_hold_the_truth(tries: int) -> None:
    """Between 93 and 97%. The tasks are drawn once for all rounds: the draws do not depend on what was measured."""
    rng, held, rounds = np.random.default_rng(5), 0, 2000
    means, sizes, weights = (0.85, 0.4, 0.1), (100, 150, 120), (2.0, 1.0, 1.0)
    truth = sum(w * m for w, m in zip(weights, means, strict=True)) / sum(weights)
    parts = [
        mean_intervals(rng.binomial(tries, m, size=(n, rounds)) / tries) for m, n in zip(means, sizes, strict=True)
    ]
    for each in zip(*parts, strict=True):
        found = joined(each, weights)
        assert found.low is not None and found.high is not None
        held += found.low <= truth <= found.high
    assert 0.93 <= held / rounds <= 0.97


def draws(rng: np.random.Generator, gain: float) -> list[tuple[np.ndarray, np.ndarray]]:
    """Two contestants on two sets; the second solves ``gain`` more of each."""
    made = []
    for size, base in ((150, 0.5), (60, 0.3)):
        hard = rng.beta(4 * base, 4 * (1 - base), size)
        made.append(
            (rng.binomial(4, hard) / 4, rng.binomial(4, np.clip(hard + gain, 0, 1)) / 4),
        )
    return made


@pytest.mark.slow
def test_equal_contestants_are_called_different_in_five_of_a_hundred() -> None:
    rng = np.random.default_rng(6)
    found = [better_by(draws(rng, 0.0), [1.0, 2.0]).p_value for _round in range(100)]
    assert sum(p is not None and p <= 0.05 for p in found) <= 9  # 5% of 100 are 5; beyond 9 has chance 0.03


def test_a_gain_of_twelve_points_is_found() -> None:
    rng = np.random.default_rng(7)
    scores = [better_by(draws(rng, 0.12), [1.0, 2.0]) for _round in range(20)]
    assert sum(score.p_value is not None and score.p_value <= 0.05 for score in scores) >= 18
    means = [score.difference.value for score in scores if score.difference.value is not None]
    assert np.mean(means) == pytest.approx(0.11, abs=0.02)  # a little is lost where tasks are solved anyway


def test_the_weights_decide_who_is_better() -> None:
    first = (np.zeros(40), np.ones(40)), (np.ones(40), np.zeros(40))
    assert better_by(first, [3.0, 1.0]).difference.value == pytest.approx(0.5)
    assert better_by(first, [1.0, 3.0]).difference.value == pytest.approx(-0.5)
    assert better_by(first, [1.0, 1.0]).p_value == pytest.approx(1.0, abs=0.02)


def test_a_difference_of_none_has_an_interval_for_both_directions() -> None:
    """A bootstrap of values that are all 0 has no width; 40 tasks do not tell so much."""
    same = (np.zeros(20), np.zeros(20)), (np.ones(20), np.ones(20))
    found = better_by(same, [1.0, 1.0]).difference
    assert found.value == 0.0 and found.low is not None and found.high is not None
    assert -0.1 < found.low < -0.03 and 0.03 < found.high < 0.1


def test_tasks_that_only_one_has_played_are_left_out() -> None:
    a, b = np.array([0.0, np.nan, 1.0]), np.array([1.0, 1.0, np.nan])
    assert better_by([(a, b), (np.zeros(2), np.zeros(2))], [1, 1]).difference.tasks == 3
    nothing = better_by([(np.array([np.nan]), np.array([1.0])), (np.zeros(2), np.ones(2))], [1, 1])
    assert (nothing.difference.value, nothing.p_value) == (None, None)
