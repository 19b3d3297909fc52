"""A comparison as tables for a spreadsheet."""

from __future__ import annotations

import math
from collections.abc import Iterator

from webapp.common.csv_text import csv_lines
from webapp.evaluation.comparison.rewards import Evaluations
from webapp.evaluation.comparison.tasks import texts_of


def figures_csv(read: Evaluations) -> Iterator[str]:
    """A line for each figure of each contestant, named as in the API; rewards only where they may be compared."""
    header = ["run", "contestant", "figure", "value", "low", "high", "tasks"]
    return csv_lines(
        header,
        (
            (item.run.name, item.who, name, found.value, found.low, found.high, found.tasks)
            for item, intervals in zip(read.playing, read.numbers.intervals, strict=True)
            for name, found in intervals.items()
            if read.rewards.comparable or name != "reward"
        ),
    )


def tasks_csv(read: Evaluations) -> Iterator[str]:
    """A line for each task: the share of tries that each contestant solves, empty where it has no counted try."""
    contestants, numbers, _rewards = read
    tasks = sorted({task for sheet in numbers.sheets for task in sheet.tasks})
    texts = texts_of(contestants, tasks)
    shares = [dict(zip(sheet.tasks, sheet.of("success"), strict=True)) for sheet in numbers.sheets]
    header = ["task", "category", "text", *(item.run.name for item in contestants)]
    return csv_lines(
        header,
        (
            (
                task,
                numbers.categories.get(task, ""),
                texts.get(task, ""),
                *(_finite_or_none(share.get(task)) for share in shares),
            )
            for task in tasks
        ),
    )


def _finite_or_none(value: float | None) -> float | None:
    return None if value is None or math.isnan(value) else float(value)
