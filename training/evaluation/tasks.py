"""Which tasks an evaluation plays: the same for every contestant."""

from __future__ import annotations

import random

from training.config import JobConfig

DRAWN_TASKS = 100
"""Tasks of an evaluation for which neither a dataset nor an option says how many."""


def drawn_tasks(config: JobConfig, count: int) -> list[int]:
    """Places of the tasks that are played, of ``count`` that there are, in order."""
    wanted = config.evaluate.tasks
    if not wanted or wanted >= count:
        return list(range(count))
    return sorted(random.Random(config.run.seed).sample(range(count), wanted))  # noqa: S311 - a draw, not a secret
