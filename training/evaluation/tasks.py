"""Which tasks an evaluation plays: the same for every contestant."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

from training.config import JobConfig
from training.data.schema import Row
from training.data.splitting import split_rows
from training.errors import CannotContinue
from training.rollout.past import read_past

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
