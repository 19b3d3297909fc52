"""Intervals: closed forms by hand, what is missing, and how often they hold the truth."""

from __future__ import annotations

import math

import numpy as np
import pytest

from training.evaluation.comparisons import (
    RESAMPLES,
    Interval,
    _interval,
    change_intervals,
    mean_interval,
    mean_intervals,
)

Z = 1.959963984540054


@pytest.mark.parametrize(("solved", "count"), [(0, 20), (20, 20), (7, 20), (1, 100), (450, 500)])
def test_shares_of_whole_tasks_have_wilsons_interval(solved: int, count: int) -> None:
    """The ends are the shares p at which the test of "the share is p" just holds: (k/n - p)² = z² p (1 - p) / n."""
    values = np.array([1.0] * solved + [0.0] * (count - solved))
    found = mean_interval(values)
    assert found.value == solved / count and found.tasks == count
    assert found.low is not None and found.high is not None
    for end in (found.low, found.high):
        if 0 < end < 1:
            assert (found.value - end) ** 2 == pytest.approx(Z**2 * end * (1 - end) / count, rel=1e-6)
    assert found.low <= found.value <= found.high


def test_a_symmetric_sample_has_nearly_the_normal_interval() -> None:
    values = np.random.default_rng(4).normal(0.4, 0.2, 800)
    found = mean_interval(values)
    half = Z * values.std(ddof=1) / math.sqrt(800)
    assert found.value == pytest.approx(values.mean(), abs=1e-12)
    assert found.low == pytest.approx(values.mean() - half, abs=0.08 * half)
    assert found.high == pytest.approx(values.mean() + half, abs=0.08 * half)
    assert mean_interval(values) == found  # the same evaluation always reads the same


def test_a_skewed_sample_has_a_skewed_interval() -> None:
    """BCa reaches farther into the long tail than the bare quantiles of the resamples, which are nearly even."""
    values = np.random.default_rng(4).exponential(1.0, 60)
    found = mean_interval(values)
    assert found.value is not None and found.low is not None and found.high is not None
    assert found.high - found.value > 1.15 * (found.value - found.low)


def test_what_is_missing_is_left_out_column_by_column() -> None:
    columns = np.array([[0.5, np.nan, np.nan], [0.25, 0.75, np.nan], [1.0, np.nan, np.nan]])
    first, second, third = mean_intervals(columns)
    assert first.value == pytest.approx(1.75 / 3) and first.tasks == 3
    assert second == Interval(0.75, None, None, 1) and third == Interval(None, None, None, 0)
    assert mean_intervals(np.empty((0, 2))) == [Interval(None, None, None, 0)] * 2
    assert mean_interval(np.full(5, 0.25)) == Interval(0.25, 0.25, 0.25, 5)


@pytest.mark.parametrize("tasks", [100, 300])
@pytest.mark.parametrize("tries", [1, 4])
@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_nineteen_of_twenty_intervals_hold_the_truth(tasks: int, tries: int, share: float) -> None:
    """Between 93 and 97%, with tasks of mixed difficulty. The resamples are drawn once, because they do not depend on
    what was measured."""
    rng = np.random.default_rng(8)
    drawn = np.random.default_rng(0).multinomial(tasks, np.full(tasks, 1 / tasks), size=RESAMPLES)
    rounds, held = 4000, 0
    chances = rng.beta(2 * share, 2 * (1 - share), (rounds, tasks))
    values = rng.binomial(tries, chances) / tries
    resampled = drawn.astype(float) @ values.T / tasks
    for number in range(rounds):
        found = _interval(values[number], resampled[:, number])
        assert found.low is not None and found.high is not None
        held += found.low <= share <= found.high
    assert 0.93 <= held / rounds <= 0.97


def test_a_mean_of_ones_is_a_share_only_where_it_is_one() -> None:
    ones = np.ones((7, 2))
    share, turns = mean_intervals(ones, shares=[True, False])
    assert share.low == pytest.approx(0.6457, abs=1e-4)
    assert tuple(turns) == (1.0, 1.0, 1.0, 7)


@pytest.mark.parametrize(
    ("wins", "losses", "low", "high"),
    # Agresti and Min: half a task in each cell, n + 2; by hand for 7 of 7: 7/9 -+ 1.96 sqrt(8 - 49/9) / 9.
    [(0, 0, -0.2178, 0.2178), (7, 0, 0.4297, 1.0), (0, 7, -1.0, -0.4297), (1, 0, -0.1882, 0.4104)],
)
def test_tasks_that_change_in_one_direction_leave_room_for_the_other(
    wins: int, losses: int, low: float, high: float
) -> None:
    change = np.array([1.0] * wins + [-1.0] * losses + [0.0] * (7 - wins - losses))
    found = change_intervals(change[:, None])[0]
    assert (found.low, found.high) == pytest.approx((low, high), abs=1e-3)
    assert found.value == pytest.approx((wins - losses) / 7)
    mirrored = change_intervals(-change[:, None])[0]
    assert (mirrored.low, mirrored.high) == pytest.approx((-high, -low), abs=1e-3)
