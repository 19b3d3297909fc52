"""Fisher's exact test and its own size, by fractions."""

from __future__ import annotations

import random
from fractions import Fraction
from math import comb

import pytest

from training.evaluation.comparisons import LEVEL, changes, fisher

Share = tuple[int, int]


def tables(before: Share, after: Share) -> dict[int, Fraction]:
    """The probability of each number of successes of the second side, given the margins."""
    successes, tries = before[0] + after[0], before[1] + after[1]
    seen = range(max(0, successes - before[1]), min(after[1], successes) + 1)
    return {x: Fraction(comb(after[1], x) * comb(before[1], successes - x), comb(tries, successes)) for x in seen}


def exact(before: Share, after: Share) -> Fraction:
    found = tables(before, after)
    return sum((chance for chance in found.values() if chance <= found[after[0]]), Fraction(0))


@pytest.mark.parametrize(
    ("before", "after", "p"),
    [
        ((6, 8), (4, 8), 0.6084),  # 2 × (C(8,4)C(8,6) + C(8,3)C(8,7) + C(8,2)C(8,8)) / C(16,10) = 2 × 2436 / 8008
        ((1, 8), (7, 8), 2 * (8 * 8 + 1) / 12870),  # 65 tables on each side of C(16,8)
        ((0, 8), (8, 8), 2 / 12870),
        ((3, 4), (3, 4), 1.0),
        ((0, 0), (3, 4), 1.0),
        ((2, 2), (0, 0), 1.0),
    ],
)
def test_p_by_hand(before: Share, after: Share, p: float) -> None:
    assert fisher(before, after) == pytest.approx(p, abs=1e-4)


def test_p_and_sizes_equal_the_fractions() -> None:
    drawn = random.Random(3)
    for _case in range(300):
        n, m = drawn.randint(0, 30), drawn.randint(0, 30)
        before, after = (drawn.randint(0, n), n), (drawn.randint(0, m), m)
        found = changes([before], [after])
        assert found.p[0] == pytest.approx(float(exact(before, after)), abs=1e-9)
        successes, expected = before[0] + after[0], (before[0] + after[0]) * Fraction(m, max(1, n + m))
        size = {-1: Fraction(0), 0: Fraction(0), 1: Fraction(0)}
        for x, chance in tables(before, after).items():
            if exact((successes - x, n), (x, m)) <= LEVEL:
                size[(x > expected) - (x < expected)] += chance
        assert (found.fell[0], found.rose[0]) == pytest.approx((float(size[-1]), float(size[1])), abs=1e-9)
        assert found.fell[0] + found.rose[0] <= LEVEL + 1e-9


def test_many_pairs_are_what_each_is_alone() -> None:
    before, after = [(6, 8), (1, 8), (300, 400), (0, 0)], [(4, 8), (7, 8), (1, 8), (1, 2)]
    found = changes(before, after)
    assert list(found.p) == pytest.approx([fisher(*pair) for pair in zip(before, after, strict=True)])
    assert [len(column) for column in changes([], [])] == [0, 0, 0]
    # 10 of 2 × 8: only 2 and 8 of 8, 28 / 8008 each, are rarer than 5%; 3 and 7, 8 × 56 / 8008 more, are not
    assert (found.fell[0], found.rose[0]) == pytest.approx((28 / 8008, 28 / 8008))


def test_the_level_counts_on_its_own_side() -> None:
    p = fisher((1, 8), (7, 8))
    at, below = (changes([(1, 8)], [(7, 8)], level) for level in (p * (1 + 1e-9), p * (1 - 1e-9)))
    assert changes([(1, 8)], [(7, 8)], p).rose[0] == pytest.approx(65 / 12870), "at the level itself"
    assert at.rose[0] == pytest.approx(65 / 12870) and below.rose[0] == pytest.approx(1 / 12870)


@pytest.mark.parametrize(("before", "after"), [((3, 2), (0, 1)), ((-1, 2), (0, 1)), ((0, 1), (2, 1))])
def test_more_successes_than_tries_are_refused(before: Share, after: Share) -> None:
    with pytest.raises(ValueError, match="more successes"):
        fisher(before, after)
