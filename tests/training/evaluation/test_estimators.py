"""pass@k and pass^k: against every subset, counted one by one, and against published cases."""

from __future__ import annotations

import itertools
import random

import pytest

from training.evaluation.comparisons import pass_all_k, pass_at_k


@pytest.mark.parametrize("tries", range(1, 9))
def test_they_are_the_shares_of_all_subsets(tries: int) -> None:
    for solved, k in itertools.product(range(tries + 1), range(1, tries + 1)):
        outcomes = [True] * solved + [False] * (tries - solved)
        subsets = list(itertools.combinations(outcomes, k))
        assert pass_at_k(tries, solved, k) == pytest.approx(sum(map(any, subsets)) / len(subsets), abs=1e-12)
        assert pass_all_k(tries, solved, k) == pytest.approx(sum(map(all, subsets)) / len(subsets), abs=1e-12)


def test_a_thousand_random_cases_equal_the_published_product() -> None:
    """Chen et al. 2021 write pass@k as 1 - prod(1 - k / i) for i from n - c + 1 to n."""
    draw = random.Random(7)
    for _case in range(1000):
        tries = draw.randint(1, 200)
        solved, k = draw.randint(0, tries), draw.randint(1, tries)
        product = 1.0
        for i in range(tries - solved + 1, tries + 1):
            product *= 1 - k / i
        expected = 1.0 if tries - solved < k else 1 - product
        assert pass_at_k(tries, solved, k) == pytest.approx(expected, abs=1e-9)
        assert pass_all_k(tries, solved, k) == pytest.approx(1 - pass_at_k(tries, tries - solved, k), abs=1e-12)


@pytest.mark.parametrize(("tries", "solved", "k"), [(4, 2, 5), (4, 2, 0), (4, 5, 1), (4, -1, 1), (0, 0, 1)])
def test_what_says_nothing_is_refused(tries: int, solved: int, k: int) -> None:
    for estimate in (pass_at_k, pass_all_k):
        with pytest.raises(ValueError, match="say nothing about"):
            estimate(tries, solved, k)
