"""Are the statistics of comparisons true? ``python benchmarks/intervals.py [--rounds 4000]``.

``gap``: the largest difference of pass@k, pass^k and McNemar's p from exact fractions, and of Wilson's ends from the
roots of the score equation, over 1,000 random cases each. ``coverage``: how often the 95% interval holds the planted
truth: of a success rate, of a skewed reward, of a difference between two contestants and of a suite's score, by tasks
and tries. ``called_better``: how often two equal contestants differ at 5%, and two that differ by a planted
gain over as many tasks as ``tasks_needed`` asks for (a power of 80%). Prints JSON.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from fractions import Fraction
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from training.evaluation.comparisons import (
    Interval,
    change_intervals,
    mcnemar,
    mean_interval,
    mean_intervals,
    paired_columns,
    pass_all_k,
    pass_at_k,
    tasks_needed,
)
from training.evaluation.figures import joined

CASES, LEVEL, GAIN = 1000, 0.05, 0.1
SIZES, TRIES = (100, 300), (1, 4)


def gaps(rng: np.random.Generator) -> dict[str, float]:
    """The largest error of each estimator."""
    found = dict.fromkeys(("pass_at_k", "pass_all_k", "mcnemar", "wilson"), 0.0)
    for _case in range(CASES):
        tries = int(rng.integers(1, 65))
        solved, k = int(rng.integers(0, tries + 1)), int(rng.integers(1, tries + 1))
        wins, losses = int(rng.integers(0, 200)), int(rng.integers(1, 200))
        held = mean_interval(np.array([1.0] * wins + [0.0] * losses))
        exact = {
            "pass_at_k": (pass_at_k(tries, solved, k), 1 - Fraction(math.comb(tries - solved, k), math.comb(tries, k))),
            "pass_all_k": (pass_all_k(tries, solved, k), Fraction(math.comb(solved, k), math.comb(tries, k))),
            "mcnemar": (mcnemar(wins, losses), binomial_p(wins, losses)),
        }
        for name, (ours, right) in exact.items():
            found[name] = max(found[name], abs(ours - float(right)))
        if held.low is not None and held.high is not None:
            ends = score_ends(wins, wins + losses)
            found["wilson"] = max(found["wilson"], abs(held.low - ends[0]), abs(held.high - ends[1]))
    return found


def binomial_p(wins: int, losses: int) -> Fraction:
    """Two-sided p of a fair coin, as a fraction."""
    count = wins + losses
    beyond = sum(math.comb(count, k) for k in range(count + 1) if abs(2 * k - count) >= abs(wins - losses))
    return Fraction(beyond, 2**count)


def score_ends(solved: int, count: int) -> tuple[float, float]:
    """Where (share - p)^2 = z^2 p (1 - p) / n, found by halving."""
    share, z = solved / count, NormalDist().inv_cdf(0.975)

    def root(low: float, high: float) -> float:
        outside = low < share  # which side of the interval ``low`` is on
        for _step in range(200):
            middle = (low + high) / 2
            beyond = (share - middle) ** 2 > z * z * middle * (1 - middle) / count
            low, high = (middle, high) if beyond == outside else (low, middle)
        return (low + high) / 2

    return (0.0 if not solved else root(0.0, share)), (1.0 if solved == count else root(share, 1.0))


def coverage(rng: np.random.Generator, rounds: int) -> dict[str, float]:
    """The share of intervals that hold the truth. The tasks are drawn once for all rounds."""
    found = {}
    for tasks in SIZES:
        for tries in TRIES:
            name = f"{tasks} tasks x {tries}"
            for share in (0.1, 0.5, 0.9):
                chances = rng.beta(2 * share, 2 * (1 - share), (tasks, rounds))
                rates = mean_intervals(rng.binomial(tries, chances) / tries)
                found[f"success {share}, {name}"] = _held(rates, share)
            rewards = rng.exponential(1.0, (tries, tasks, rounds)).mean(axis=0)
            found[f"skewed reward, {name}"] = _held(mean_intervals(rewards, shares=[False] * rounds), 1.0)
            chances = rng.beta(1.2, 1.2, (tasks, rounds)) * (1 - GAIN)
            change = (rng.binomial(tries, chances + GAIN) - rng.binomial(tries, chances)) / tries
            found[f"difference, {name}"] = _held(change_intervals(change), GAIN)
            parts = [
                mean_intervals(rng.binomial(tries, mean, size=(tasks, rounds)) / tries) for mean in (0.85, 0.4, 0.1)
            ]
            scores = [joined(each, (2.0, 1.0, 1.0)) for each in zip(*parts, strict=True)]
            found[f"suite, {name}"] = _held(scores, (2 * 0.85 + 0.4 + 0.1) / 4)
    return found


def _held(intervals: list[Interval], truth: float) -> float:
    return sum(item.low <= truth <= item.high for item in intervals) / len(intervals)  # type: ignore[operator]


def called_better(rng: np.random.Generator, pairs: int) -> dict[str, float]:
    """The share of pairs whose difference is called one, by the planted gain and the tries."""
    found = {}
    for tries in TRIES:
        chance = rng.beta(1.2, 1.2, 200_000) * (1 - GAIN)
        change = (rng.binomial(tries, chance + GAIN) - rng.binomial(tries, chance)) / tries
        needed = tasks_needed(change)
        for gain, tasks in ((0.0, 100), (0.0, 500), (GAIN, int(needed or 0))):
            called = 0
            for _pair in range(pairs):
                chance = rng.beta(1.2, 1.2, tasks) * (1 - GAIN)
                columns = np.column_stack([rng.binomial(tries, chance), rng.binomial(tries, chance + gain)]) / tries
                called += (paired_columns(columns, [(0, 1)])[0].p_value or 0.0) <= LEVEL
            found[f"gain {gain}, {tasks} tasks x {tries}"] = called / pairs
    return found


def main() -> None:
    """Everything, with one seed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=4000)
    rounds = parser.parse_args().rounds
    began, rng = time.monotonic(), np.random.default_rng(8)
    found: dict[str, Any] = {"gap": gaps(rng), "coverage": coverage(rng, rounds)}
    found["coverage_range"] = [min(found["coverage"].values()), max(found["coverage"].values())]
    found["called_better"] = called_better(rng, rounds // 4)
    found |= {"rounds": rounds, "seconds": time.monotonic() - began}
    print(json.dumps({"intervals": found}, indent=1))


if __name__ == "__main__":
    main()
