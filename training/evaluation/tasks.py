"""Which tasks an evaluation plays: the same for every contestant."""

from __future__ import annotations

import random
from collections.abc import Sequence

from training.config import JobConfig
from training.data.schema import Row
from training.data.splitting import split_rows

DRAWN_TASKS = 100
"""Tasks of an evaluation for which neither a dataset nor an option says how many."""


def drawn_tasks(config: JobConfig, places: Sequence[int]) -> list[int]:
    """Those of ``places`` that are played, in order."""
    wanted = config.evaluate.tasks
    if not wanted or wanted >= len(places):
        return list(places)
    return sorted(random.Random(config.run.seed).sample(places, wanted))  # noqa: S311 - a draw, not a secret


def evaluated_places(config: JobConfig, rows: Sequence[Row]) -> list[int]:
    """Places of the rows that an evaluation may play: the held-out ones where a share is held out, else all."""
    return split_rows(rows, config.evaluate.share).held_out if config.evaluate.share else list(range(len(rows)))
