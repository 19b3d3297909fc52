"""One score of several sets of tasks, each with its weight, and who is better by it.

The score is the weighted mean of the sets' means. Its interval joins those of the sets by the method of variance
estimates recovery (MOVER; Zou & Donner 2008): with one set it is that set's own interval, whatever that was made by.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from training.config import JobConfig
from training.data.identity import split_rows
from training.data.schema import Row
from training.errors import CannotContinue
from training.evaluation.intervals import Interval, change_intervals
from training.evaluation.paired import paired, sign_flip
from training.rollout.past import read_past

Values = NDArray[np.float64]


class Score(NamedTuple):
    """The difference of two contestants over a suite, its interval, and the p-value of there being none."""

    difference: Interval
    p_value: float | None


def joined(intervals: Sequence[Interval], weights: Sequence[float]) -> Interval:
    """The weighted mean of several means with its interval. A set without a value leaves the whole without one: a score
    over fewer sets would be another score."""
    total = math.fsum(weights)
    tasks = sum(interval.tasks for interval in intervals)
    if not intervals or total <= 0 or any(interval.value is None for interval in intervals):
        return Interval(None, None, None, tasks)
    shares = [weight / total for weight in weights]
    value = math.fsum(share * (each.value or 0.0) for share, each in zip(shares, intervals, strict=True))
    if any(each.low is None or each.high is None for share, each in zip(shares, intervals, strict=True) if share):
        return Interval(value, None, None, tasks)
    below = _spread(shares, [(each.value or 0.0) - (each.low or 0.0) for each in intervals])
    above = _spread(shares, [(each.high or 0.0) - (each.value or 0.0) for each in intervals])
    return Interval(value, value - below, value + above, tasks)


def _spread(shares: Sequence[float], distances: Sequence[float]) -> float:
    return math.sqrt(math.fsum((share * distance) ** 2 for share, distance in zip(shares, distances, strict=True)))


def better_by(parts: Sequence[tuple[Values, Values]], weights: Sequence[float], *, seed: int = 0) -> Score:
    """How much better the second is than the first. Each part has one value a task of both, in the same order, NaN
    where there is none; tasks that only one of them has are left out."""
    if len(parts) == 1:
        found = paired(*parts[0], seed=seed)
        return Score(found.difference, found.p_value)
    changes = [second - first for first, second in parts]
    changes = [change[~np.isnan(change)] for change in changes]
    difference = joined([change_intervals(change[:, None], seed=seed)[0] for change in changes], weights)
    if difference.value is None:
        return Score(difference, None)
    # A task of a small set with a large weight moves the score more: its sign is flipped with all that it moves.
    moved = [weight * change / change.size for weight, change in zip(weights, changes, strict=True)]
    return Score(difference, sign_flip(np.concatenate(moved), seed=seed))


# --- Tasks ----------------------------------------------------------------------------------------------------------
# Which tasks an evaluation plays: the same for every contestant.

DRAWN_TASKS = 100
"""Tasks of an evaluation for which neither a dataset nor an option says how many."""


def drawn_tasks(config: JobConfig, places: Sequence[int]) -> list[int]:
    """Those of ``places`` that are played, in order."""
    wanted = config.evaluate.tasks
    if not wanted or wanted >= len(places):
        return list(places)
    return sorted(random.Random(config.run.seed).sample(places, wanted))  # noqa: S311 - a draw, not a secret


def evaluated_places(config: JobConfig, rows: Sequence[Row]) -> list[int]:
    """Places of the rows that an evaluation may play: the recorded one where it continues from a recorded rollout, the
    held-out ones where a share is held out, else all. Raises ``CannotContinue``."""
    if config.evaluate.continue_from:
        place = read_past(Path(config.evaluate.continue_from)).row
        if place >= len(rows):
            raise CannotContinue(f"The recorded rollout played row {place + 1} of a dataset that has {len(rows)} now.")
        return [place]
    return split_rows(rows, config.evaluate.share).held_out if config.evaluate.share else list(range(len(rows)))
