"""Comparing evaluations: intervals of one figure, paired differences of two, and the ranks of many."""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Hashable, Sequence
from functools import lru_cache
from statistics import NormalDist
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from training.shares import wilson

# 95% intervals of means over tasks, by the bootstrap.
#
# A task is what is drawn: its tries are averaged first and always drawn together (a bootstrap clustered by task). The
# interval is bias-corrected and accelerated (BCa; Efron 1987), because shares near 0 and 1 are skewed. Where every
# task's value is 0 or 1 it is Wilson's (1927): of so coarse values a bootstrap gives too wide an interval near the
# ends.

Values = NDArray[np.float64]
CONFIDENCE = 0.95
RESAMPLES = 2_000
_BLOCK_VALUES = 2_000_000  # drawn at once: memory does not grow with the tasks
_NORMAL = NormalDist()


class Interval(NamedTuple):
    """A mean over ``tasks`` tasks and where it lies with 95% confidence: ``None`` without a task, no ends with one."""

    value: float | None
    low: float | None
    high: float | None
    tasks: int


def mean_interval(values: Values, *, seed: int = 0) -> Interval:
    """The mean of one value a task (NaN: none) with its interval."""
    return mean_intervals(values[:, None], seed=seed)[0]


def mean_intervals(columns: Values, *, seed: int = 0, shares: Sequence[bool] | None = None) -> list[Interval]:
    """The same for several figures of the same tasks, as columns; the tasks are drawn once for all of them.

    ``shares`` says which columns lie between 0 and 1 by their nature (all, unless given): Wilson's interval is for
    those alone.
    """
    known = ~np.isnan(columns)
    filled = np.where(known, columns, 0.0)
    tasks = columns.shape[0]
    if not tasks:
        return [Interval(None, None, None, 0)] * columns.shape[1]
    rng, block = np.random.default_rng(seed), max(1, min(RESAMPLES, _BLOCK_VALUES // tasks))
    means = np.empty((RESAMPLES, columns.shape[1]))
    for start in range(0, RESAMPLES, block):
        size = min(block, RESAMPLES - start)
        drawn = rng.multinomial(tasks, np.full(tasks, 1 / tasks), size=size).astype(np.float64)
        with np.errstate(invalid="ignore"):
            means[start : start + size] = (drawn @ filled) / (drawn @ known.astype(np.float64))
    share = [True] * columns.shape[1] if shares is None else shares
    return [_interval(columns[known[:, k], k], means[:, k], share[k]) for k in range(columns.shape[1])]


def change_intervals(columns: Values, *, seed: int = 0) -> list[Interval]:
    """The same for differences of two contestants' values, which lie between -1 and 1.

    Where whole tasks changed in one direction alone, or none did, a bootstrap has nothing to vary; the interval is then
    that of Agresti and Min (2005) for paired shares: half a task is added to each of the four cells.
    """
    found = mean_intervals(columns, seed=seed, shares=[False] * columns.shape[1])
    for place in range(len(found)):
        values = columns[~np.isnan(columns[:, place]), place]
        one_sided = np.isin(values, (0.0, 1.0)).all() or np.isin(values, (0.0, -1.0)).all()
        if values.size > 1 and one_sided:
            found[place] = _one_sided(values)
    return found


def _one_sided(values: Values) -> Interval:
    count, mean = int(values.size), float(values.mean())
    wins, losses = float(np.sum(values > 0)) + 0.5, float(np.sum(values < 0)) + 0.5
    middle = (wins - losses) / (count + 2)
    half = _NORMAL.inv_cdf((1 + CONFIDENCE) / 2) * math.sqrt(wins + losses - (wins - losses) ** 2 / (count + 2))
    half /= count + 2
    return Interval(mean, min(mean, max(-1.0, middle - half)), max(mean, min(1.0, middle + half)), count)


def _interval(values: Values, resampled: Values, share: bool = True) -> Interval:
    count = int(values.size)
    if not count:
        return Interval(None, None, None, 0)
    mean = float(values.mean())
    if count == 1:
        return Interval(mean, None, None, 1)
    resampled = resampled[~np.isnan(resampled)]
    if share and np.isin(values, (0.0, 1.0)).all():
        return Interval(mean, *wilson(mean, count), count)
    if np.ptp(values) < 1e-12:  # all tasks alike: there is nothing to resample
        return Interval(mean, mean, mean, count)
    low, high = _bca(values, mean, resampled)
    return Interval(mean, low, high, count)


def _bca(values: Values, mean: float, resampled: Values) -> tuple[float, float]:
    below = float(np.mean(resampled < mean - 1e-12) + np.mean(np.abs(resampled - mean) <= 1e-12) / 2)
    bias = _NORMAL.inv_cdf(min(max(below, 1e-6), 1 - 1e-6))
    centred = values - mean
    acceleration = float((centred**3).sum() / (6 * ((centred**2).sum() ** 1.5)))
    ends = []
    for quantile in ((1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2):
        z = bias + _NORMAL.inv_cdf(quantile)
        ends.append(_NORMAL.cdf(bias + z / (1 - acceleration * z)))
    low, high = np.quantile(resampled, ends)
    return float(low), float(high)


# --- Estimators -----------------------------------------------------------------------------------------------------
# Chances estimated from n tries of a task, of which c succeeded.
#
# ``pass_at_k``: at least one of k tries succeeds (Chen et al. 2021, *Evaluating Large Language Models Trained on
# Code*). ``pass_all_k``: all of k tries succeed, written pass^k (Yao et al. 2024, *τ-bench*). Both are unbiased: they
# are the share of the subsets of k tries, drawn without replacement, in which it is so.


def pass_at_k(tries: int, solved: int, k: int) -> float:
    """Chance that one of ``k`` tries succeeds. Raises ``ValueError`` where there are fewer than ``k`` tries."""
    _check(tries, solved, k)
    return 1.0 - _share(tries - solved, tries, k)


def pass_all_k(tries: int, solved: int, k: int) -> float:
    """Chance that all of ``k`` tries succeed (pass^k). Raises ``ValueError`` where there are fewer than ``k`` tries."""
    _check(tries, solved, k)
    return _share(solved, tries, k)


def _share(some: int, tries: int, k: int) -> float:
    """The share of the subsets of ``k`` of ``tries`` that lie within ``some`` of them."""
    return math.comb(some, k) / math.comb(tries, k)


def _check(tries: int, solved: int, k: int) -> None:
    if not (1 <= k <= tries and 0 <= solved <= tries):
        raise ValueError(f"{solved} of {tries} tries say nothing about {k}")


# --- Exact ----------------------------------------------------------------------------------------------------------
# Whether two shares differ by more than chance: Fisher's exact test, and how often it would say so of equal ones.
#
# Fisher (1935), *The Logic of Inductive Inference*; two-sided as is usual: all tables of the same margins that are no
# likelier than the one that was seen are added up. Given the margins the number of successes on one side is
# hypergeometric, so the test's own size is known exactly; with few tries it is far below its level.

LEVEL = 0.05
_ALIKE = 1 + 1e-7
"""Tables whose probabilities differ by rounding alone are equally likely."""
_AT_ONCE = 2_000_000

Floats = NDArray[np.float64]
Longs = NDArray[np.int64]


class Changes(NamedTuple):
    """Of each pair of shares, shape (pairs,): the two-sided ``p``; how often two equal shares with as many successes in
    all would be found to have fallen (``fell``) and to have risen (``rose``) at the level."""

    p: Floats
    fell: Floats
    rose: Floats


def fisher(before: tuple[int, int], after: tuple[int, int]) -> float:
    """The two-sided p-value of two shares, each as (successes, tries); 1 where a side has no try."""
    return float(changes([before], [after]).p[0])


def changes(before: ArrayLike, after: ArrayLike, level: float = LEVEL) -> Changes:
    """Compare pairs of shares, each of shape (pairs, 2): successes and tries.

    Raises ``ValueError`` of more successes than tries.
    """
    first, second = (np.asarray(side, np.int64).reshape(-1, 2) for side in (before, after))
    if any((side[:, 0] < 0).any() or (side[:, 0] > side[:, 1]).any() for side in (first, second)):
        raise ValueError("there cannot be more successes than tries")
    width = int(second[:, 1].max(initial=0)) + 1
    block = max(1, _AT_ONCE // width**2)
    parts = [
        _changes(first[start : start + block], second[start : start + block], width, level)
        for start in range(0, len(first), block)
    ]
    return Changes(*(np.concatenate([np.zeros(0), *column]) for column in zip(*parts, strict=True))) if parts else _NONE


def _changes(before: Longs, after: Longs, width: int, level: float) -> Changes:
    tries, other = after[:, 1:], before[:, 1:]
    successes = before[:, :1] + after[:, :1]
    seen = np.arange(width)[None, :]  # successes of the second side, of each table of the same margins
    chance = _chance(seen, tries, other, successes)
    p = np.einsum("tj,tij->ti", chance, chance[:, None, :] <= chance[:, :, None] * _ALIKE)
    speaks = np.where(p <= level, chance, 0.0)
    expected = successes * tries / np.maximum(1, tries + other)
    fell, rose = ((speaks * side).sum(axis=1) for side in (seen < expected, seen > expected))
    return Changes(np.minimum(1.0, np.take_along_axis(p, after[:, :1], axis=1)[:, 0]), fell, rose)


def _chance(seen: Longs, tries: Longs, other: Longs, successes: Longs) -> Floats:
    """Shape (pairs, tables): the hypergeometric probability of each table; 0 of those that cannot be."""
    rest = successes - seen
    possible = (seen <= tries) & (rest >= 0) & (rest <= other)
    logs = _log_factorials(int((tries + other).max(initial=0)).bit_length())

    def ways(count: Longs, of: Longs) -> Floats:
        of = np.clip(of, 0, count)
        found: Floats = logs[count] - logs[of] - logs[count - of]
        return found

    found = np.exp(ways(tries, seen) + ways(other, rest) - ways(tries + other, successes))
    return np.where(possible, found, 0.0)


@lru_cache(maxsize=32)
def _log_factorials(bits: int) -> Floats:
    """Logarithms of the factorials of all numbers with so many binary digits."""
    return np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, 1 << bits, dtype=np.float64)))])


_NONE = Changes(*[np.zeros(0)] * 3)


# Which of two contestants is better, from the same tasks played by both.
#
# Tasks are the unit: tries of one task are averaged first, so that more tries of a task make it surer, not heavier. The
# p-value is exact where each task was tried once (McNemar 1947, the binomial form), else a sign-flip permutation test
# on the differences of the tasks' means (Fisher 1935; Good 2005, *Permutation, Parametric and Bootstrap Tests*).

ALPHA, POWER = 0.05, 0.8
EXACT_FLIPS = 14
"""Up to this many tasks that differ, all 2^n sign flips are counted."""
FLIPS = 20_000
FLOOR = 1 / (1 + FLIPS)
"""The smallest p-value that drawn sign flips can give: the true one is below it."""
_BLOCK = 2_000
Z_ALPHA, Z_POWER = 1.959963984540054, 0.8416212335729143
"""Quantiles of the normal distribution at 1 - ALPHA / 2 and at POWER."""


class Paired(NamedTuple):
    """What one contestant (``b``) does on the tasks that another one (``a``) plays too.

    ``tasks``: those with a value of both. ``wins``, ``losses``: tasks that b solves and a fails, and the reverse.
    ``difference``: mean of b less mean of a over these tasks, with its interval. ``p_value``: of no difference;
    ``None`` without tasks. ``needed``: tasks after which a difference as large as this one would be seen in four of
    five evaluations; ``None`` where no number of them would do. ``alone``: tasks that only one of them has a value of.
    """

    tasks: int
    wins: int
    losses: int
    difference: Interval
    p_value: float | None
    needed: int | None
    alone: int = 0


def paired(a: Values, b: Values, *, solved_from: float = 0.5, seed: int = 0) -> Paired:
    """Compare the tasks' means of two contestants: one value a task in the same order, NaN where there is none.

    A task is solved where its mean is above ``solved_from``.
    """
    return paired_columns(np.column_stack([a, b]), [(0, 1)], solved_from=solved_from, seed=seed)[0]


def paired_columns(
    columns: Values, pairs: Sequence[tuple[int, int]], *, solved_from: float = 0.5, seed: int = 0
) -> list[Paired]:
    """``paired`` for several pairs ``(a, b)`` of columns; tasks and signs are drawn once for all of them."""
    changes = np.column_stack([columns[:, b] - columns[:, a] for a, b in pairs])
    intervals = change_intervals(changes, seed=seed)
    p_values = _p_values(columns, changes, pairs, seed)
    found = []
    for place, (a, b) in enumerate(pairs):
        both = ~np.isnan(changes[:, place])
        solved_a, solved_b = columns[both, a] > solved_from, columns[both, b] > solved_from
        wins, losses = int(np.sum(solved_b & ~solved_a)), int(np.sum(solved_a & ~solved_b))
        needed = tasks_needed(changes[both, place])
        alone = int(np.sum(np.isnan(columns[:, a]) != np.isnan(columns[:, b])))
        found.append(Paired(int(both.sum()), wins, losses, intervals[place], p_values[place], needed, alone))
    return found


def _p_values(columns: Values, changes: Values, pairs: Sequence[tuple[int, int]], seed: int) -> list[float | None]:
    """Of no difference, from two sides: exact where every value is 0 or 1, else by sign flips."""
    found: list[float | None] = [None] * len(pairs)
    flipped = []
    for place, (a, b) in enumerate(pairs):
        change = changes[:, place]
        both = ~np.isnan(change)
        if np.isin(columns[both][:, [a, b]], (0.0, 1.0)).all():
            found[place] = mcnemar(int(np.sum(change > 0)), int(np.sum(change < 0))) if both.any() else None
        else:
            flipped.append(place)
    if flipped:
        for place, value in zip(flipped, sign_flips(np.nan_to_num(changes[:, flipped]), seed=seed), strict=True):
            found[place] = value
    return found


def mcnemar(wins: int, losses: int) -> float:
    """Exact two-sided p-value of as uneven a split of the tasks that only one of the two solved."""
    count, less = wins + losses, min(wins, losses)
    if not count:
        return 1.0
    tail = sum(math.comb(count, k) for k in range(less + 1))
    return min(1.0, 2 * tail / 2**count)


def sign_flip(change: Values, *, seed: int = 0) -> float:
    """Two-sided p-value of a mean as far from 0 when each difference might as well have the other sign."""
    return sign_flips(change[:, None], seed=seed)[0]


def sign_flips(changes: Values, *, seed: int = 0) -> list[float]:
    """The same for several columns of the same tasks, 0 where a column has no difference."""
    changes = np.where(np.abs(changes) > 1e-12, changes, 0.0)
    # Sums that differ by rounding alone are equal.
    seen = np.abs(changes.sum(axis=0)) - 1e-12 * np.abs(changes).sum(axis=0)
    moved = np.count_nonzero(changes, axis=0)
    found = [
        _exact_flips(changes[changes[:, k] != 0, k], seen[k]) if moved[k] <= EXACT_FLIPS else 0.0
        for k in range(len(seen))
    ]
    many = np.flatnonzero(moved > EXACT_FLIPS)
    if many.size:
        rng, beyond = np.random.default_rng(seed), np.zeros(many.size)
        for _block in range(FLIPS // _BLOCK):
            signs = rng.integers(0, 2, size=(_BLOCK, changes.shape[0]), dtype=np.int8) * np.int8(2) - np.int8(1)
            beyond += np.sum(np.abs(signs.astype(np.float64) @ changes[:, many]) >= seen[many], axis=0)
        for place, count in zip(many, beyond, strict=True):
            found[place] = float((1 + count) / (1 + FLIPS))
    return found


def _exact_flips(moved: Values, seen: float) -> float:
    """All 2^n sign flips counted; 1 where nothing differs."""
    sums = np.zeros(1)
    for value in moved:
        sums = np.concatenate([sums + value, sums - value])
    return float(np.mean(np.abs(sums) >= seen))


def tasks_needed(change: Values) -> int | None:
    """Tasks for a test of level ``ALPHA`` to find a mean difference as large as the one seen with chance ``POWER``."""
    if change.size < 2:
        return None
    mean, spread = float(change.mean()), float(change.std(ddof=1))
    if abs(mean) < 1e-12:
        return None
    return max(2, math.ceil(((Z_ALPHA + Z_POWER) * spread / mean) ** 2))


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """p-values corrected for all of these comparisons having been made (Holm 1979); ``None`` stays uncounted."""
    order = sorted((value, place) for place, value in enumerate(p_values) if value is not None)
    corrected: list[float | None] = [None] * len(p_values)
    largest = 0.0
    for rank, (value, place) in enumerate(order):
        largest = max(largest, min(1.0, (len(order) - rank) * value))
        corrected[place] = largest
    return corrected


# A scale from blind votes: Bradley and Terry's model, with intervals; how far voters agree, with each other and with
# a figure such as the reward.

Answer = Literal["first", "second", "tie", "both_bad"]
Matrix = NDArray[np.float64]
PRIOR = 0.5
"""Ties that every pair is given beforehand, so that a contestant who never lost has a finite score."""
RANKING_RESAMPLES = 400
_ROUNDS, _TOLERANCE, _NORMAL_95, _SAME = 2_000, 1e-10, 1.959963984540054, 1e-9


class Vote(NamedTuple):
    """One person's answer about one task: which of two contestants (their places) did better. ``weight``: how many
    tasks the task represents, where some kinds of tasks were asked about more often than they occur."""

    voter: Hashable
    task: Hashable
    first: int
    second: int
    answer: Answer
    weight: float = 1.0


class Strength(NamedTuple):
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


def bradley_terry(votes: Sequence[Vote], contestants: int, *, seed: int = 0) -> list[Strength]:
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
        return [Strength(0.5, 0.0, 1.0, 0) for _ in range(contestants)]
    stack = np.stack([_wins(found, contestants) for found in by_task.values()])
    own = _fit(stack.sum(axis=0))
    if len(stack) < 2:
        return [Strength(float(_chance_ahead(own)[i]), 0.0, 1.0, seen[i]) for i in range(contestants)]
    drawn = np.random.default_rng(seed).multinomial(
        len(stack), np.full(len(stack), 1 / len(stack)), size=RANKING_RESAMPLES
    )
    resampled = _chance_ahead(_fit(np.tensordot(drawn, stack, axes=1)))
    low, high = np.quantile(resampled, (0.025, 0.975), axis=0)
    per_task = stack / np.array([len(found) for found in by_task.values()])[:, None, None]
    around = _NORMAL_95 * _deviation(per_task, own)
    low = np.minimum(low, _chance_ahead(own * np.exp(-around)))
    high = np.maximum(high, _chance_ahead(own * np.exp(around)))
    return [Strength(float(_chance_ahead(own)[i]), float(low[i]), float(high[i]), seen[i]) for i in range(contestants)]


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


def _chance_ahead(strength: Matrix) -> Matrix:
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
