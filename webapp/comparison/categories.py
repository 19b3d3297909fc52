"""What the tasks of a dataset say that they are."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from training.rewards.combining import CATEGORY_FIELDS
from training.rewards.facts import row_value
from webapp.comparison.contestants import Contestant

READ_BYTES = 256 << 20


def categories_of(contestant: Contestant, tasks: Sequence[int]) -> dict[int, str]:
    """What the dataset's rows say that they are, in the first field that one of them has. Empty where they say nothing.

    Reading ends after ``READ_BYTES`` of a dataset; later tasks have no category.
    """
    if contestant.config is None or not contestant.config.data.train or not tasks:
        return {}
    wanted, found = set(tasks), dict[int, str]()
    try:
        with Path(contestant.config.data.train).open("rb") as file:
            left = READ_BYTES
            for place, line in enumerate(islice(file, max(wanted) + 1)):
                left -= len(line)
                if left < 0:
                    break
                if place in wanted and (category := _category(line)):
                    found[place] = category
    except OSError:
        return {}
    return found


def _category(line: bytes) -> str:
    try:
        row: Any = json.loads(line)
    except (ValueError, RecursionError):
        return ""
    values = (row_value(row, field) for field in CATEGORY_FIELDS)
    return next((value[:80] for value in values if isinstance(value, str) and value), "")
