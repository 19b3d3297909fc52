"""Votes: a closed form for two, an order that was planted for four, agreement by hand and at its ends."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from training.evaluation.ranking import PRIOR, Answer, Score, Vote, agreement, bradley_terry


def votes_of(first: int, second: int, answers: dict[Answer, int]) -> list[Vote]:
    number = itertools.count()
    return [Vote("v", next(number), first, second, answer) for answer, count in answers.items() for _ in range(count)]


def test_two_contestants_have_the_share_of_their_wins() -> None:
    """With two, the fit is closed: (wins + half the ties + half the prior) over all."""
    votes = votes_of(0, 1, {"first": 30, "second": 10, "tie": 8, "both_bad": 2})
    one, two = bradley_terry(votes, 2)
    share = (30 + 5 + PRIOR / 2) / (50 + PRIOR)
    strength = (share / (1 - share)) ** 0.5  # geometric mean 1
    assert one.chance == pytest.approx(strength / (1 + strength), abs=1e-6)
    assert one.chance + two.chance == pytest.approx(1.0) and one.votes == two.votes == 50
    assert one.low < one.chance < one.high and one.low > two.high


def test_a_planted_order_is_found() -> None:
    rng, strengths = np.random.default_rng(2), [4.0, 2.0, 1.0, 0.5]
    votes = []
    for task in range(300):
        first, second = rng.choice(4, 2, replace=False)
        wins = rng.random() < strengths[first] / (strengths[first] + strengths[second])
        votes.append(Vote("v", task, int(first), int(second), "first" if wins else "second"))
    scores = bradley_terry(votes, 4)
    chances = [score.chance for score in scores]
    assert chances == sorted(chances, reverse=True)
    middle = np.exp(np.mean(np.log(strengths)))
    for score, strength in zip(scores, strengths, strict=True):
        assert score.low <= strength / (strength + middle) <= score.high
    assert bradley_terry(votes, 4) == scores


def test_who_never_lost_is_not_infinite_and_nobody_asked_is_open() -> None:
    winner, loser = bradley_terry(votes_of(0, 1, {"first": 5}), 2)
    assert 0.5 < winner.chance < 1.0 and 0.0 < loser.chance < 0.5
    assert bradley_terry([], 2) == [Score(0.5, 0.0, 1.0, 0)] * 2


def test_agreement_by_hand() -> None:
    """Krippendorff's nominal α of three questions with two answers each: one of three differs."""
    votes = [
        Vote("ana", 1, 0, 1, "first"),
        Vote("bob", 1, 1, 0, "second"),  # the same answer, shown the other way round
        Vote("ana", 2, 0, 1, "second"),
        Vote("bob", 2, 0, 1, "second"),
        Vote("ana", 3, 0, 1, "first"),
        Vote("bob", 3, 0, 1, "tie"),
        Vote("ana", 4, 0, 1, "first"),  # nobody else answered this one
    ]
    found = agreement(votes)
    observed, expected = 2 / 6, (3 * 3 + 2 * 4 + 1 * 5) / (6 * 5)
    assert found.alpha == pytest.approx(1 - observed / expected)
    assert found.share == pytest.approx(2 / 3) and found.questions == 3


def test_agreement_at_its_ends() -> None:
    same = [Vote(voter, task, 0, 1, "first" if task % 2 else "second") for voter in "ab" for task in range(10)]
    assert agreement(same).alpha == 1.0
    assert agreement(same[:10]) == (None, None, 0)
    alike = [Vote(voter, task, 0, 1, "first") for voter in "ab" for task in range(4)]
    assert agreement(alike) == (None, 1.0, 4)  # answers that never vary say nothing beyond chance
    rng = np.random.default_rng(3)
    kinds: list[Answer] = ["first", "second", "tie"]
    chance = [Vote(voter, task, 0, 1, kinds[rng.integers(3)]) for voter in "ab" for task in range(3000)]
    found = agreement(chance)
    assert found.alpha is not None and abs(found.alpha) < 0.05
