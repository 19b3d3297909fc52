"""The arithmetic of drawing by pass rate, by hand."""

from __future__ import annotations

import math
import random
from collections import Counter

import pytest

from training.algorithms.drawing import (
    HOPELESS,
    NONE,
    SOLVED,
    Evidence,
    added,
    chances,
    drawn,
    expected,
    faded,
    scaled,
    worth,
)

HALF = Evidence(4.0, 2.0, 2.0, 1)
SOLVED_4, FAILED_4 = Evidence(4.0, 4.0, 4.0, 1), Evidence(4.0, 0.0, 0.0, 1)


@pytest.mark.parametrize(
    ("evidence", "prior", "mean", "value"),
    [
        (NONE, 1.0, 0.5, 0.125),  # ½ · ½ / (1 · 2)
        (NONE, 2.0, 0.5, 1 / 6),  # 1 · 1 / (2 · 3)
        (HALF, 1.0, 0.5, 2.5 * 2.5 / 30),
        (SOLVED_4, 1.0, 0.9, 4.5 * 0.5 / 30),
        (FAILED_4, 1.0, 0.1, 0.5 * 4.5 / 30),
        (SOLVED_4, 2.0, 5 / 6, 5 * 1 / 42),
        (Evidence(4.0, 1.0, 1.0, 1), 1.0, 0.3, 1.5 * 3.5 / 30),
        # Outcomes between 0 and 1: N 5, S' 2.5, Q' 4 · ¼ + ½.
        (Evidence(4.0, 2.0, 1.0, 1), 1.0, 0.5, (5 * 1.5 - 2.5**2) / 30),
    ],
)
def test_what_a_task_is_worth(evidence: Evidence, prior: float, mean: float, value: float) -> None:
    assert expected(evidence, prior) == pytest.approx(mean, rel=1e-12)
    assert worth(evidence, prior) == pytest.approx(value, rel=1e-12)


def test_outcomes_of_0_and_1_are_worth_what_a_beta_posterior_says() -> None:
    """Against the mean of p(1 − p) over that posterior, drawn 200,000 times."""
    rng = random.Random(3)
    sample = [rng.betavariate(0.5 + 3, 0.5 + 5) for _ in range(200_000)]
    mean = sum(p * (1 - p) for p in sample) / len(sample)
    assert worth(Evidence(8.0, 3.0, 3.0, 1), 1.0) == pytest.approx(mean, rel=0.003)


def test_a_task_that_always_earns_the_same_is_worth_ever_less_whatever_it_earns() -> None:
    for value in (0.0, 0.5, 1.0):
        evidence, worths = NONE, []
        for sampling in range(1, 6):
            evidence = added(evidence, [value] * 8, sampling, 0)
            worths.append(worth(evidence, 1.0))
        assert worths == sorted(worths, reverse=True) and worths[-1] < 0.125 / 8 and worths[-1] > 0


def test_many_rollouts_leave_a_solved_task_something() -> None:
    assert 0 < worth(Evidence(1e6, 1e6, 1e6, 1), 0.01) < 1e-8


def test_evidence_counts_half_after_its_half_life() -> None:
    evidence = Evidence(8.0, 6.0, 5.0, 3)
    assert faded(evidence, 3, 10) == evidence
    assert faded(evidence, 13, 10) == Evidence(4.0, 3.0, 2.5, 13)
    assert faded(evidence, 23, 10) == Evidence(2.0, 1.5, 1.25, 23)
    assert faded(evidence, 8, 10).rollouts == pytest.approx(8 / math.sqrt(2))
    assert faded(evidence, 10_003, 0) == evidence._replace(sampling=10_003)


def test_new_outcomes_are_added_to_what_the_old_ones_count_now() -> None:
    found = added(Evidence(8.0, 6.0, 5.0, 3), [1.0, 0.0, 0.5], 13, 10)
    assert found == Evidence(4.0 + 3, 3.0 + 1.5, 2.5 + 1.25, 13)
    assert added(NONE, [1.0, 1.0], 7, 10) == Evidence(2.0, 2.0, 2.0, 7)


def test_a_task_that_was_given_up_is_tried_again() -> None:
    """After many half-lives it is worth what it was before it was ever played."""
    old = added(NONE, [0.0] * 64, 1, 5)
    assert worth(old, 1.0) < 0.01 and worth(faded(old, 101, 5), 1.0) == pytest.approx(0.125, rel=1e-4)


@pytest.mark.parametrize(
    ("value", "low", "high", "outcome"),
    [(2.0, 1.0, 5.0, 0.25), (1.0, 1.0, 5.0, 0.0), (5.0, 1.0, 5.0, 1.0), (-1.0, -1.0, -1.0, 0.0), (1.5, 0.0, 1.0, 1.0)],
)
def test_a_reward_as_an_outcome(value: float, low: float, high: float, outcome: float) -> None:
    assert scaled(value, low, high) == outcome
    assert scaled(-7.0, low, high) == 0.0


def test_a_share_of_the_chances_is_even() -> None:
    assert chances([0.3, 0.1], 0.0) == pytest.approx([0.75, 0.25])
    assert chances([0.3, 0.1], 0.2) == pytest.approx([0.8 * 0.75 + 0.1, 0.8 * 0.25 + 0.1])
    assert chances([0.3, 0.1], 1.0) == [0.5, 0.5]
    assert chances([0.125] * 4, 0.1) == pytest.approx([0.25] * 4)
    assert chances([0.07], 0.1) == pytest.approx([1.0])


def test_the_same_seed_draws_the_same_and_another_one_does_not() -> None:
    by = chances([0.1, 0.2] * 20, 0.1)
    assert drawn(by, 10, 5) == drawn(by, 10, 5) != drawn(by, 10, 6)


@pytest.mark.parametrize(("count", "most"), [(1, 1), (4, 1), (5, 2), (8, 2), (9, 3)])
def test_no_task_comes_again_before_all_have_come(count: int, most: int) -> None:
    for seed in range(20):
        times = Counter(drawn([0.7, 0.1, 0.1, 0.1], count, seed))
        assert sum(times.values()) == count and max(times.values()) == most
        assert set(times) == set(range(4)) or count < 4


def test_every_time_that_all_come_they_come_in_another_order() -> None:
    found = drawn([0.1] * 10, 20, 3)
    assert sorted(found[:10]) == sorted(found[10:]) == list(range(10)) and found[:10] != found[10:]


def test_one_task_is_drawn_as_often_as_is_asked() -> None:
    assert drawn([1.0], 3, 1) == [0, 0, 0]


def test_tasks_are_drawn_by_their_chances() -> None:
    """Without being put back: of 0.6, 0.3 and 0.1 the second is drawn among two with 0.3 + 0.6 · ¾ + 0.1 · ⅓."""
    by, rounds = [0.6, 0.3, 0.1], 4000
    first = Counter(drawn(by, 1, seed)[0] for seed in range(rounds))
    among = Counter(place for seed in range(rounds) for place in drawn(by, 2, seed))
    for place, share in enumerate(by):
        assert first[place] / rounds == pytest.approx(share, abs=4 * math.sqrt(share * (1 - share) / rounds))
    share = 0.3 + 0.6 * 0.75 + 0.1 / 3
    assert among[1] / rounds == pytest.approx(share, abs=4 * math.sqrt(share * (1 - share) / rounds))


def test_the_bounds_of_what_is_believed() -> None:
    """Four of four, with a prior of one rollout, are just enough either way."""
    assert expected(SOLVED_4, 1.0) >= SOLVED and expected(FAILED_4, 1.0) <= HOPELESS
    assert expected(Evidence(3.9, 3.9, 3.9, 1), 1.0) < SOLVED and expected(Evidence(3.9, 0.0, 0.0, 1), 1.0) > HOPELESS
