"""Which rows of a sampling each of its updates learns from, the same for TRL and verl."""

from __future__ import annotations

import random
from collections.abc import Sequence

from training.rollout.rewinding import mix_seed


def rows_by_update(teaches: Sequence[bool], updates: int, seed: int, step: int) -> list[list[int]]:
    """Places of a sampling's rows, a list for each of ``updates`` mini batches: those that teach, dealt evenly.

    ``seed`` is the run's and ``step`` that of the first update: the order depends on nothing else, so every trainer,
    and a run that continues, deals the same rows to the same update.
    """
    order = list(range(len(teaches)))
    random.Random(mix_seed(seed, step)).shuffle(order)  # noqa: S311 - an order, not a secret
    kept = [place for place in order if teaches[place]]
    return [kept[number::updates] for number in range(updates)]
