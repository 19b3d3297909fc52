"""Votes: closed forms, what scipy finds, strengths that were planted, agreement by hand and at its ends."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from training.evaluation.comparisons import (
    PRIOR,
    Answer,
    Judged,
    Strength,
    Vote,
    agreement,
    bradley_terry,
    counts_of,
    ranked_as,
)


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


def test_a_model_that_never_lost_is_finite_and_without_votes_all_is_open() -> None:
    winner, loser = bradley_terry(votes_of(0, 1, {"first": 5}), 2)
    assert 0.5 < winner.chance < 1.0 and 0.0 < loser.chance < 0.5
    assert bradley_terry([], 2) == [Strength(0.5, 0.0, 1.0, 0)] * 2


KINDS: tuple[Answer, ...] = ("first", "second", "tie", "both_bad")


def _at_random(rng: np.random.Generator, contestants: int) -> list[Vote]:
    votes = []
    for task in range(40):
        a, b = map(int, rng.choice(contestants, 2, replace=False))
        votes.append(Vote("v", task, a, b, KINDS[rng.integers(4)], round(float(rng.uniform(0.2, 3)), 3)))
    return votes


def test_scores_are_what_scipy_finds() -> None:
    """The values are scipy's: ``optimize.minimize(method="BFGS")`` of the negative log-likelihood with the prior."""
    chances = [score.chance for score in bradley_terry(_at_random(np.random.default_rng(11), 4), 4)]
    assert chances == pytest.approx([0.42802497, 0.45817375, 0.44972511, 0.65912383], abs=1e-7)


@pytest.mark.parametrize("seed", range(20))
def test_no_other_scores_are_likelier(seed: int) -> None:
    """The likelihood is concave, so it is highest where each has as many wins as its chances promise."""
    rng = np.random.default_rng(seed)
    contestants = int(rng.integers(2, 8))
    votes = _at_random(rng, contestants)
    odds = np.array([score.chance / (1 - score.chance) for score in bradley_terry(votes, contestants)])
    assert np.prod(odds) == pytest.approx(1.0)
    wins, promised = np.zeros(contestants), np.zeros(contestants)
    prior = [Vote("", -1, a, b, "tie", PRIOR) for a, b in itertools.combinations(range(contestants), 2)]
    for vote in votes + prior:
        won = {"first": 1.0, "second": 0.0}.get(vote.answer, 0.5)
        chance = odds[vote.first] / (odds[vote.first] + odds[vote.second])
        wins[[vote.first, vote.second]] += np.array([won, 1 - won]) * vote.weight
        promised[[vote.first, vote.second]] += np.array([chance, 1 - chance]) * vote.weight
    assert promised == pytest.approx(wins, abs=1e-6)


def test_a_weight_is_as_many_votes() -> None:
    one = bradley_terry([Vote("v", 0, 0, 1, "first", 3.0), Vote("v", 1, 0, 1, "second")], 2)
    many = bradley_terry([Vote(n, 0, 0, 1, "first") for n in range(3)] + [Vote("v", 1, 0, 1, "second")], 2)
    assert [score.chance for score in one] == pytest.approx([score.chance for score in many])
    assert one[0].votes == 2


def test_votes_that_all_agree_do_not_seem_sure() -> None:
    """Nothing varies when twenty of twenty prefer one; Wilson's interval of 20 of 20 begins at 0.839."""
    winner, loser = bradley_terry(votes_of(0, 1, {"first": 20}), 2)
    ratio = (20 + PRIOR / 2) / (PRIOR / 2)
    around = 1.959964 * (1 / (20.5 * (20.25 / 20.5) * (0.25 / 20.5))) ** 0.5 / 2
    assert winner.low == pytest.approx(1 / (1 + np.exp(around - np.log(ratio) / 2)), abs=1e-6)
    assert loser.high < winner.low
    thrice = bradley_terry([vote._replace(voter=n) for vote in votes_of(0, 1, {"first": 20}) for n in range(3)], 2)
    assert thrice[0].low - winner.low < 0.06, "three who agree on the same tasks are no three times as many tasks"


def test_one_task_leaves_the_interval_open() -> None:
    assert bradley_terry([Vote("v", 0, 0, 1, "first")], 2)[0][1:3] == (0.0, 1.0)


@pytest.mark.parametrize(("tasks", "voters"), [(30, 1), (100, 1), (30, 3)])
def test_the_intervals_hold_what_was_planted(tasks: int, voters: int) -> None:
    """Of three contestants; voters look at a task on their own."""
    rng, strengths = np.random.default_rng(5), np.array([2.0, 1.0, 0.6])
    truth = strengths / (strengths + np.exp(np.log(strengths).mean()))
    held = []
    for _round in range(150):
        votes = []
        for task in range(tasks):
            a, b = map(int, rng.choice(3, 2, replace=False))
            for voter in range(voters):
                won = rng.random() < strengths[a] / (strengths[a] + strengths[b])
                votes.append(Vote(voter, task, a, b, "first" if won else "second"))
        held += [score.low <= value <= score.high for score, value in zip(bradley_terry(votes, 3), truth, strict=True)]
    assert 0.92 <= np.mean(held) <= 1.0


def test_counts_are_of_votes_as_given() -> None:
    votes = [
        Vote("v", 0, 0, 1, "first", 9.0),
        Vote("w", 0, 1, 0, "first"),
        Vote("w", 1, 1, 0, "second"),
        Vote("v", 2, 0, 2, "tie"),
        Vote("v", 3, 2, 1, "both_bad"),
    ]
    wins, ties, both_bad = counts_of(votes, 3)
    assert wins.tolist() == [[0, 2, 0], [1, 0, 0], [0, 0, 0]]
    assert ties.tolist() == [[0, 0, 1], [0, 0, 0], [1, 0, 0]]
    assert both_bad.tolist() == [[0, 0, 0], [0, 0, 1], [0, 1, 0]]


def test_a_figure_that_ranks_as_people_do() -> None:
    judged = [Judged(3, 0, 0.9, 0.1)] * 6 + [Judged(1, 2, 0.2, 0.4)] * 3 + [Judged(2, 1, -0.2, 0.4)]
    judged += [Judged(1, 1, 0.0, 1.0)] * 4 + [Judged(2, 0, 0.5, 0.5)] * 3 + [Judged(2, 0, None, 0.5)] * 2
    share, undecided, equal, unknown = ranked_as(judged)
    # scipy: stats.binomtest(9, 10).proportion_ci(method="wilson")
    assert share == pytest.approx((0.9, 0.5958499732047615, 0.9821237869049271, 10))
    assert (undecided, equal, unknown) == (4, 3, 2)
    assert ranked_as([]) == ((None, None, None, 0), 0, 0, 0)


def test_agreement_by_hand() -> None:
    """Krippendorff's nominal α of three questions with two answers each: one of three differs."""
    votes = [
        Vote("ana", 1, 0, 1, "first"),
        Vote("bob", 1, 1, 0, "second"),  # the same answer, shown the other way round
        Vote("ana", 2, 0, 1, "second"),
        Vote("bob", 2, 0, 1, "second"),
        Vote("ana", 3, 0, 1, "first"),
        Vote("bob", 3, 0, 1, "tie"),
        Vote("ana", 4, 0, 1, "first"),  # no one else answered this one
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
