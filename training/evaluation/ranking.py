"""A scale from blind votes: Bradley and Terry's model, with intervals; how far voters agree, with each other and with
a figure such as the reward."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Hashable, Sequence
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from training.evaluation.intervals import Interval, mean_interval

Answer = Literal["first", "second", "tie", "both_bad"]
Matrix = NDArray[np.float64]
PRIOR = 0.5
"""Ties that every pair is given beforehand, so that a contestant who never lost has a finite score."""
RESAMPLES = 400
_ROUNDS, _TOLERANCE, _NORMAL_95, _SAME = 2_000, 1e-10, 1.959963984540054, 1e-9


class Vote(NamedTuple):
    """One person's answer about one task: which of two contestants (their places) did better. ``weight``: how many
    tasks the task stands for, where some kinds of tasks were asked about more often than they occur."""

    voter: Hashable
    task: Hashable
    first: int
    second: int
    answer: Answer
    weight: float = 1.0


class Score(NamedTuple):
    """A contestant's strength: the chance to beat an average one, with its 95% interval, and on how many votes."""

    chance: float
    low: float
    high: float
    votes: int


class Counts(NamedTuple):
    """Votes as they were given, (contestants, contestants): ``wins[i, j]`` preferred i to j; the others are alike in
    both directions."""

    wins: NDArray[np.int64]
    ties: NDArray[np.int64]
    both_bad: NDArray[np.int64]


class Agreement(NamedTuple):
    """``alpha``: Krippendorff's α for nominal answers (1 is full agreement, 0 what chance gives); ``None`` where no
    question has two answers or all answers are one. ``share``: of the pairs of answers to one question, those that are
    the same. ``questions``: with at least two answers."""

    alpha: float | None
    share: float | None
    questions: int


class Judged(NamedTuple):
    """A question as people answered it, votes for the first and for the second, and a figure of each; ``None`` where
    it has none."""

    first: int
    second: int
    first_figure: float | None
    second_figure: float | None


class RankedAs(NamedTuple):
    """``share``: of the questions in which more people preferred one and the figures differ, those in which the higher
    figure was preferred; its ``tasks`` are these questions. The others are counted by why they say nothing."""

    share: Interval
    undecided: int
    equal: int
    unknown: int


def bradley_terry(votes: Sequence[Vote], contestants: int, *, seed: int = 0) -> list[Score]:
    """Scores by Bradley and Terry's model (1952), fitted by Hunter's MM (2004); a tie or "both bad" is half a win each.

    The interval is the wider of two: of 400 resamples of the tasks, and of the normal approximation in which all votes
    on a task count as one. Few votes that all agree leave nothing to resample, and would seem sure without the second.
    Over fewer than two tasks it is open.
    """
    by_task: dict[Hashable, list[Vote]] = defaultdict(list)
    for vote in votes:
        by_task[vote.task].append(vote)
    seen = [sum(place in (vote.first, vote.second) for vote in votes) for place in range(contestants)]
    if not by_task:
        return [Score(0.5, 0.0, 1.0, 0) for _ in range(contestants)]
    stack = np.stack([_wins(found, contestants) for found in by_task.values()])
    own = _fit(stack.sum(axis=0))
    if len(stack) < 2:
        return [Score(float(_chance(own)[i]), 0.0, 1.0, seen[i]) for i in range(contestants)]
    drawn = np.random.default_rng(seed).multinomial(len(stack), np.full(len(stack), 1 / len(stack)), size=RESAMPLES)
    resampled = _chance(_fit(np.tensordot(drawn, stack, axes=1)))
    low, high = np.quantile(resampled, (0.025, 0.975), axis=0)
    per_task = stack / np.array([len(found) for found in by_task.values()])[:, None, None]
    around = _NORMAL_95 * _deviation(per_task, own)
    low = np.minimum(low, _chance(own * np.exp(-around)))
    high = np.maximum(high, _chance(own * np.exp(around)))
    return [Score(float(_chance(own)[i]), float(low[i]), float(high[i]), seen[i]) for i in range(contestants)]


def counts_of(votes: Sequence[Vote], contestants: int) -> Counts:
    """How often each was preferred to each, without weights."""
    wins, ties, both_bad = (np.zeros((contestants, contestants), dtype=np.int64) for _ in range(3))
    for vote in votes:
        if vote.answer in ("first", "second"):
            pair = (vote.first, vote.second) if vote.answer == "first" else (vote.second, vote.first)
            wins[pair] += 1
        else:
            table = ties if vote.answer == "tie" else both_bad
            table[vote.first, vote.second] += 1
            table[vote.second, vote.first] += 1
    return Counts(wins, ties, both_bad)


def _wins(votes: Sequence[Vote], contestants: int) -> Matrix:
    """``wins[i, j]``: the weight of the votes that preferred i to j."""
    counts = np.zeros((contestants, contestants))
    for vote in votes:
        half = vote.answer in ("tie", "both_bad")
        counts[vote.first, vote.second] += vote.weight * (0.5 if half else vote.answer == "first")
        counts[vote.second, vote.first] += vote.weight * (0.5 if half else vote.answer == "second")
    return counts


def _fit(wins: Matrix) -> Matrix:
    """Strengths (…, contestants) with geometric mean 1, of wins (…, contestants, contestants)."""
    counts = _with_prior(wins)
    games, total = counts + counts.swapaxes(-1, -2), counts.sum(axis=-1)
    strength = np.ones(total.shape)
    for _round in range(_ROUNDS):
        fresh = total / (games / (strength[..., :, None] + strength[..., None, :])).sum(axis=-1)
        fresh /= np.exp(np.log(fresh).mean(axis=-1, keepdims=True))
        done = np.max(np.abs(fresh - strength)) < _TOLERANCE
        strength = fresh
        if done:
            break
    return strength


def _with_prior(wins: Matrix) -> Matrix:
    return wins + PRIOR / 2 * (1 - np.eye(wins.shape[-1]))


def _deviation(per_task: Matrix, strength: Matrix) -> Matrix:
    """Standard deviations of the log-strengths from the curvature of the likelihood. ``per_task`` has the weight of one
    vote a task; unequal weights count as fewer tasks (Kish 1965)."""
    weights = per_task.sum(axis=(1, 2))
    counts = _with_prior(per_task.sum(axis=0) * (weights.sum() / (weights**2).sum()))
    chance = strength[:, None] / (strength[:, None] + strength[None, :])
    information = (counts + counts.T) * chance * (1 - chance)
    curvature = np.diag(information.sum(axis=1)) - information
    return np.asarray(np.sqrt(np.diag(np.linalg.pinv(curvature))))


def _chance(strength: Matrix) -> Matrix:
    return strength / (strength + 1.0)


def ranked_as(judged: Sequence[Judged]) -> RankedAs:
    """Whether a figure ranks as people do: how often most people preferred the contestant with the higher one."""
    undecided = equal = unknown = 0
    same = []
    for item in judged:
        if item.first_figure is None or item.second_figure is None:
            unknown += 1
        elif item.first == item.second:
            undecided += 1
        elif abs(item.first_figure - item.second_figure) <= _SAME:
            equal += 1
        else:
            same.append(float((item.first > item.second) == (item.first_figure > item.second_figure)))
    return RankedAs(mean_interval(np.array(same)), undecided, equal, unknown)


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
    return vote._replace(first=vote.second, second=vote.first, answer=other[vote.answer])
