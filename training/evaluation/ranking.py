"""A scale from blind votes: Bradley and Terry's model, with intervals, and how far voters agree."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Hashable, Sequence
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

Answer = Literal["first", "second", "tie", "both_bad"]
PRIOR = 0.5
"""Ties that every pair is given beforehand, so that a contestant who never lost has a finite score."""
RESAMPLES = 400
_ROUNDS, _TOLERANCE = 2_000, 1e-10


class Vote(NamedTuple):
    """One person's answer about one task: which of two contestants (their places) did better."""

    voter: Hashable
    task: Hashable
    first: int
    second: int
    answer: Answer


class Score(NamedTuple):
    """A contestant's strength: the chance to beat an average one, with its 95% interval, and on how many votes."""

    chance: float
    low: float
    high: float
    votes: int


class Agreement(NamedTuple):
    """``alpha``: Krippendorff's α for nominal answers (1 is full agreement, 0 what chance gives); ``None`` where no
    question has two answers or all answers are one. ``share``: of the pairs of answers to one question, those that are
    the same. ``questions``: with at least two answers."""

    alpha: float | None
    share: float | None
    questions: int


def bradley_terry(votes: Sequence[Vote], contestants: int, *, seed: int = 0) -> list[Score]:
    """Scores by Bradley and Terry's model (1952), fitted by Hunter's MM (2004); a tie or "both bad" is half a win each.

    The intervals are of 400 resamples of the tasks.
    """
    counts = _wins(votes, contestants)
    strength = _fit(counts)
    by_task: dict[Hashable, list[Vote]] = defaultdict(list)
    for vote in votes:
        by_task[vote.task].append(vote)
    tasks = [_wins(found, contestants) for found in by_task.values()]
    seen = np.array([sum(place in (vote.first, vote.second) for vote in votes) for place in range(contestants)])
    if not tasks:
        return [Score(0.5, 0.0, 1.0, 0) for _ in range(contestants)]
    stack, rng = np.stack(tasks), np.random.default_rng(seed)
    drawn = rng.multinomial(len(tasks), np.full(len(tasks), 1 / len(tasks)), size=RESAMPLES)
    chances = np.stack([_chance(_fit(np.tensordot(weights, stack, axes=1))) for weights in drawn])
    low, high = np.quantile(chances, (0.025, 0.975), axis=0)
    own = _chance(strength)
    return [
        Score(float(own[i]), float(min(low[i], own[i])), float(max(high[i], own[i])), int(seen[i]))
        for i in range(contestants)
    ]


def _wins(votes: Sequence[Vote], contestants: int) -> NDArray[np.float64]:
    """``wins[i, j]``: how often i was preferred to j."""
    counts = np.zeros((contestants, contestants))
    for vote in votes:
        half = vote.answer in ("tie", "both_bad")
        counts[vote.first, vote.second] += 0.5 if half else vote.answer == "first"
        counts[vote.second, vote.first] += 0.5 if half else vote.answer == "second"
    return counts


def _fit(wins: NDArray[np.float64]) -> NDArray[np.float64]:
    """Strengths with geometric mean 1."""
    size = len(wins)
    counts = wins + PRIOR / 2 * (1 - np.eye(size))
    games, total, strength = counts + counts.T, counts.sum(axis=1), np.ones(size)
    for _round in range(_ROUNDS):
        fresh = total / (games / (strength[:, None] + strength[None, :])).sum(axis=1)
        fresh /= np.exp(np.log(fresh).mean())
        done = np.max(np.abs(fresh - strength)) < _TOLERANCE
        strength = fresh
        if done:
            break
    return strength


def _chance(strength: NDArray[np.float64]) -> NDArray[np.float64]:
    return strength / (strength + 1.0)


def agreement(votes: Sequence[Vote]) -> Agreement:
    """How far different voters give the same answer to the same question (Krippendorff 2011, nominal data)."""
    questions: dict[Hashable, list[Hashable]] = defaultdict(list)
    for vote in votes:
        ordered = vote if vote.first <= vote.second else _turned(vote)
        key = (ordered.task, ordered.first, ordered.second)
        questions[key].append(ordered.answer)
    several = [answers for answers in questions.values() if len(answers) > 1]
    if not several:
        return Agreement(None, None, 0)
    pairs = [pair for answers in several for pair in itertools.combinations(answers, 2)]
    share = sum(one == other for one, other in pairs) / len(pairs)
    total: Counter[Hashable] = Counter()
    observed = 0.0
    for answers in several:
        found = Counter(answers)
        total += found
        unlike = sum(found[one] * (len(answers) - found[one]) for one in found)
        observed += unlike / (len(answers) - 1)
    count = total.total()
    expected = sum(total[one] * (count - total[one]) for one in total) / (count - 1)
    alpha = None if not expected else 1.0 - observed / expected
    return Agreement(alpha, share, len(several))


def _turned(vote: Vote) -> Vote:
    other: dict[Answer, Answer] = {"first": "second", "second": "first", "tie": "tie", "both_bad": "both_bad"}
    return Vote(vote.voter, vote.task, vote.second, vote.first, other[vote.answer])
