"""What the tasks of a dataset say that they are."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from training.rewards.combining import CATEGORY_FIELDS
from training.rewards.facts import row_value
from webapp.comparison.contestants import Contestant

READ_BYTES = 256 << 20


def categories_of(contestant: Contestant, tasks: Sequence[int]) -> dict[int, str]:
    """What the dataset's rows say that they are, in the first field that one of them has; empty where they do not."""
    return texts_of_rows(contestant, tasks, _category)


def texts_of_rows(contestant: Contestant, tasks: Sequence[int], read: Callable[[Any], str]) -> dict[int, str]:
    """What ``read`` finds in the dataset's rows of these tasks; empty texts are left out.

    Reading ends after ``READ_BYTES`` of a dataset; later tasks have none.
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
                if place in wanted and (text := read(_row(line))):
                    found[place] = text
    except OSError:
        return {}
    return found


def _row(line: bytes) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _category(row: Any) -> str:
    values = (row_value(row, field) for field in CATEGORY_FIELDS)
    return next((value[:80] for value in values if isinstance(value, str) and value), "")
