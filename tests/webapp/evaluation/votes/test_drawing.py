"""Which tasks come onto the ballots: alike from every pile, connected, the same for a seed, weighed back."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from training.evaluation.comparisons import Vote, bradley_terry
from webapp.evaluation.votes.services import Candidate, draw, ring


def _piles(sizes: dict[str, int]) -> dict[str, list[Candidate]]:
    """Tasks numbered through, so that no two piles share one."""
    made, number = {}, 0
    for kind, size in sizes.items():
        made[kind] = [Candidate(number + place, 0) for place in range(size)]
        number += size
    return made


def test_every_kind_comes_equally_often_while_it_lasts() -> None:
    piles = {(0, 1): _piles({"first": 61, "second": 2, "both": 367, "neither": 50, "unknown": 0})}
    drawn = draw(piles, 2, 20, seed=3)
    assert Counter(item.kind for item in drawn) == {"first": 6, "second": 2, "both": 6, "neither": 6}
    assert len({item.task for item in drawn}) == 20
    assert draw(piles, 2, 20, seed=3) == drawn != draw(piles, 2, 20, seed=4)


def test_weights_give_every_pile_its_share_of_the_tasks() -> None:
    piles = {(0, 1): _piles({"first": 60, "second": 20, "both": 320})}
    drawn = draw(piles, 2, 12, seed=1)
    weights = {item.kind: item.weight for item in drawn}
    assert weights == pytest.approx({"first": 0.45, "second": 0.15, "both": 2.4})  # share of tasks over 4 of 12 ballots
    assert np.mean([item.weight for item in drawn]) == pytest.approx(1.0)


def test_few_tasks_are_all_drawn_and_none_are_none() -> None:
    drawn = draw({(0, 1): _piles({"first": 2, "both": 1})}, 2, 20, seed=1)
    assert sorted(item.task for item in drawn) == [0, 1, 2] and [item.weight for item in drawn] == [1.0] * 3
    assert draw({(0, 1): _piles({"first": 0})}, 2, 20, seed=1) == [] == draw({}, 2, 20, seed=1)


def test_as_many_ballots_as_contestants_connect_all_of_them() -> None:
    assert ring(4) == [(0, 1), (0, 3), (1, 2), (2, 3), (0, 2), (1, 3)]
    for contestants in range(2, 9):
        sizes = {"first": 9, "second": 9, "both": 9, "neither": 9}
        drawn = draw({pair: _piles(sizes) for pair in ring(contestants)}, contestants, contestants, seed=5)
        seen = Counter(place for item in drawn for place in item.pair)
        assert set(seen) == set(range(contestants))
        if contestants >= 4:
            assert len({item.kind for item in drawn}) == 4, "the pairs of one round all came from one pile"


def test_weighed_votes_find_the_strength_that_drawing_hid() -> None:
    """Of 400 tasks 90% are won by the first; equally drawn piles show it on half of the ballots only."""
    piles = {(0, 1): _piles({"first": 360, "second": 40})}
    drawn = draw(piles, 2, 80, seed=2)
    votes = [
        Vote("v", n, 0, 1, "first" if item.kind == "first" else "second", item.weight) for n, item in enumerate(drawn)
    ]
    chance = bradley_terry(votes, 2)[0].chance
    odds = chance / (1 - chance)
    assert odds**2 == pytest.approx((72 + 0.25) / (8 + 0.25))
    plain = bradley_terry([vote._replace(weight=1.0) for vote in votes], 2)[0].chance
    assert plain == pytest.approx(0.5)
