"""Which is better: tests against closed forms and against every sign flip, and the verdict on planted truths."""

from __future__ import annotations

import itertools
import math
import random

import numpy as np
import pytest

from training.evaluation.comparisons import FLIPS, holm, mcnemar, paired, paired_columns, sign_flip, tasks_needed


def binomial_two_sided(wins: int, losses: int) -> float:
    """The sum of all splits that are at most as likely, in whole numbers."""
    count = wins + losses
    chance = [math.comb(count, k) for k in range(count + 1)]
    return sum(each for each in chance if each <= chance[wins]) / 2**count


def test_mcnemar_equals_the_binomial_test_in_a_thousand_cases() -> None:
    draw = random.Random(3)
    for _case in range(1000):
        wins, losses = draw.randint(0, 150), draw.randint(0, 150)
        if wins + losses:
            assert mcnemar(wins, losses) == pytest.approx(binomial_two_sided(wins, losses), abs=1e-9)
    assert mcnemar(0, 0) == 1.0 and mcnemar(5, 0) == 2 / 32


def test_few_tasks_are_flipped_in_every_way() -> None:
    draw = random.Random(5)
    for count in range(1, 11):
        change = np.array([draw.choice([-0.75, -0.25, 0.25, 0.5, 1.0]) for _ in range(count)])
        seen = abs(change.sum())
        sums = [
            abs(sum(s * c for s, c in zip(signs, change, strict=True)))
            for signs in itertools.product((1, -1), repeat=count)
        ]
        assert sign_flip(change) == pytest.approx(sum(each >= seen - 1e-9 for each in sums) / len(sums))
    assert sign_flip(np.zeros(4)) == 1.0
    assert sign_flip(np.concatenate([np.zeros(500), np.full(6, 0.5)])) == 2 / 64  # equal tasks say nothing


def test_many_tasks_are_flipped_at_random_and_close_to_the_normal_form() -> None:
    rng = np.random.default_rng(1)
    change = rng.normal(0.02, 0.3, 400)
    z = abs(change.sum()) / math.sqrt((change**2).sum())
    expected = math.erfc(z / math.sqrt(2))
    assert sign_flip(change) == pytest.approx(expected, abs=4 * math.sqrt(expected / FLIPS) + 0.003)
    assert sign_flip(change) == sign_flip(change)  # the same evaluation always reads the same
    assert sign_flip(np.full(100, 0.5)) == 1 / (FLIPS + 1)


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03, None]) == [pytest.approx(0.03), pytest.approx(0.06), pytest.approx(0.06), None]
    assert holm([0.5, 0.9]) == [1.0, 1.0] and holm([]) == [] and holm([None]) == [None]
    assert holm([0.001]) == [0.001]


def test_how_many_tasks_it_would_take() -> None:
    change = np.array([1.0] * 12 + [-1.0] * 8 + [0.0] * 80)
    spread = change.std(ddof=1)
    assert tasks_needed(change) == math.ceil(((1.959963984540054 + 0.8416212335729143) * spread / 0.04) ** 2) == 984
    assert tasks_needed(np.array([1.0, -1.0])) is None and tasks_needed(np.array([1.0])) is None


def test_only_tasks_of_both_are_compared() -> None:
    a = np.array([1.0, 0.0, np.nan, 0.0, 1.0, 0.5])
    b = np.array([0.0, 1.0, 1.0, 1.0, np.nan, 0.75])
    found = paired(a, b)
    assert (found.tasks, found.wins, found.losses) == (4, 3, 1)
    assert found.difference.value == pytest.approx((-1 + 1 + 1 + 0.25) / 4)
    assert paired(np.array([np.nan]), np.array([1.0])).p_value is None


@pytest.mark.parametrize("tries", [1, pytest.param(4, marks=pytest.mark.slow)])
def test_equal_models_are_seldom_called_different_and_unequal_ones_often(tries: int) -> None:
    """Of 200 pairs of equal models at most 5% are called different; of a gain of 20 points over 100 tasks most are."""
    rng = np.random.default_rng(11)
    called = {0.0: 0, 0.2: 0}
    for gain in called:
        for pair in range(200):
            chance = rng.beta(1.2, 1.2, 100) * (1 - gain)
            a = rng.binomial(tries, chance) / tries
            b = rng.binomial(tries, chance + gain) / tries
            called[gain] += (paired(a, b, seed=pair).p_value or 0.0) <= 0.05
    assert called[0.0] <= 10
    assert called[0.2] >= (150 if tries == 1 else 195)


def test_pairs_of_eight_contestants_read_as_each_pair_alone() -> None:
    """Columns of whole and of graded tasks, of which some are missing; the intervals share their draw of tasks."""
    rng = np.random.default_rng(4)
    chance = rng.beta(1, 1, 120)
    columns = np.column_stack(
        [rng.binomial(tries, np.clip(chance + gain, 0, 1)) / tries for tries in (1, 4) for gain in (0, 0.05, 0.1, 0.3)]
    )
    columns[rng.random(columns.shape) < 0.1] = np.nan
    pairs = [(a, b) for a in range(8) for b in range(a)]
    for (a, b), found in zip(pairs, paired_columns(columns, pairs), strict=True):
        alone = paired(columns[:, a], columns[:, b])
        assert found[:3] == alone[:3] and found.needed == alone.needed
        assert found.difference == pytest.approx(alone.difference, abs=1e-12)
        assert found.p_value is not None and found.p_value == pytest.approx(alone.p_value, abs=0.01)
