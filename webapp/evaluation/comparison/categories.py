"""The categories of a dataset's tasks."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from webapp.datasets.rows import categories_in_file
from webapp.evaluation.comparison.contestants import Contestant

READ_BYTES = 256 << 20


def categories_of(contestant: Contestant, tasks: Sequence[int]) -> dict[int, str]:
    """The categories of the dataset's rows; tasks without one are left out."""
    if contestant.config is None or not contestant.config.data.train or not tasks:
        return {}
    known = categories_in_file(Path(contestant.config.data.train))
    return {task: name for task in tasks if (name := known.of(task))}


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
                if place in wanted and (text := read(_parse_row(line))):
                    found[place] = text
    except OSError:
        return {}
    return found


def _parse_row(line: bytes) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None
