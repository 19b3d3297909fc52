"""The task map of a run: tasks (or their categories) against steps, each cell coloured by the share that solved it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from webapp.datasets.rows import Categories, categories_in_file
from webapp.reading.courses import Courses, courses_of, dataset_at
from webapp.reading.visits import (
    KINDS,
    Cell,
    Kind,
    Sort,
    Task,
    by_category,
    cells_of,
    steps_of,
    tasks_of,
    texts_of,
)
from webapp.runs.models import Run

COLUMNS = 60
PER_PAGE = 40
SHADES = 6
"""Colours of a share, ``reward-0`` to ``reward-5`` of the style sheet."""
CATEGORIES_SHOWN = 40


class Box(NamedTuple):
    """One cell as it is drawn: the share from 0 to 1 (``None`` without a verdict), its shade, and where it leads."""

    share: float | None
    shade: int | None
    solved: int
    counted: int
    step: int | None
    group: int | None


class Line(NamedTuple):
    """A line of the map; no box where the steps of a column did not play it. ``task`` is ``None`` of a category."""

    task: Task | None
    text: str
    category: str
    boxes: list[Box | None]


class TaskMap(NamedTuple):
    """A page of the map. ``columns`` are the first and last step of each; ``counts`` has tasks by kind, ``by_chance``
    how many of two kinds there would be if no task had changed."""

    lines: list[Line]
    columns: list[tuple[int, int]]
    counts: dict[Kind, int]
    total: int
    by_chance: dict[Kind, float] = {}


def shade_of(share: float | None) -> int | None:
    """The shade of a share: 0 only where nothing solved it, the last one only where all did."""
    if share is None:
        return None
    if share in (0.0, 1.0):
        return 0 if share == 0.0 else SHADES - 1
    return min(SHADES - 2, 1 + int(share * (SHADES - 2)))


def columns_of(first: int, last: int) -> tuple[list[tuple[int, int]], int]:
    """The steps of each column, ``COLUMNS`` at most, and how many steps one has."""
    width = -(-(last - first + 1) // COLUMNS)
    return [(step, min(step + width - 1, last)) for step in range(first, last + 1, width)], width


def task_map(run: Run, *, kind: Kind | None = None, sort: Sort = "row", page: int = 1) -> TaskMap:
    """A page of the run's tasks, those of one kind or all of them, in an order; empty where it played none."""
    span, courses = steps_of(run), courses_of(run)
    if span is None:
        return TaskMap([], [], dict.fromkeys(KINDS, 0), 0)
    columns, width = columns_of(*span)
    found = tasks_of(run, courses, kind=kind, sort=sort, offset=(page - 1) * PER_PAGE, limit=PER_PAGE)
    cells = cells_of(run, courses, found.tasks, span[0], width)
    texts = texts_of(run, cells)
    known = _categories_by_dataset(run, courses)
    boxes: dict[tuple[int, int], list[Box | None]] = {}
    for cell in cells:
        line = boxes.setdefault((cell.dataset, cell.row), [None] * len(columns))
        line[cell.column] = _box_of(cell.solved, cell.counted, cell)
    lines = [
        Line(
            task,
            texts.get((task.dataset, task.row), ""),
            known[task.dataset].of(task.row) if task.dataset in known else "",
            boxes.get((task.dataset, task.row), [None] * len(columns)),
        )
        for task in found.tasks
    ]
    total = sum(found.counts.values()) if kind is None else found.counts[kind]
    return TaskMap(lines, columns, found.counts, total, found.by_chance)


def category_map(run: Run) -> TaskMap:
    """The same by category, the largest first; no line where no row says what it is."""
    span, courses = steps_of(run), courses_of(run)
    known = _categories_by_dataset(run, courses)
    names = sorted({name for found in known.values() for name in found.names})
    if span is None or not names:
        return TaskMap([], [], dict.fromkeys(KINDS, 0), 0)
    columns, width = columns_of(*span)
    place = {name: at for at, name in enumerate(names)}
    given = {
        number: [place[found.names[at]] if at >= 0 else -1 for at in found.of_row] for number, found in known.items()
    }
    boxes: dict[int, list[Box | None]] = {}
    for at, column, solved, counted in by_category(run, courses, given, span[0], width):
        if at >= 0:
            boxes.setdefault(at, [None] * len(columns))[column] = _box_of(solved, counted, None)
    lines = [Line(None, names[at], names[at], line) for at, line in boxes.items()]
    lines.sort(key=lambda line: -sum(box.counted for box in line.boxes if box))
    return TaskMap(lines[:CATEGORIES_SHOWN], columns, dict.fromkeys(KINDS, 0), len(lines))


def _box_of(solved: int, counted: int, cell: Cell | None) -> Box:
    share = solved / counted if counted else None
    return Box(share, shade_of(share), solved, counted, cell.step if cell else None, cell.group if cell else None)


def _categories_by_dataset(run: Run, courses: Courses) -> dict[int, Categories]:
    """The categories of the run's datasets, by the number of the dataset."""
    found = {}
    for number in range(len(courses.paths)):
        dataset = dataset_at(run, courses, number)
        if dataset is not None:
            found[number] = categories_in_file(dataset.rows_path)
    return found


def map_view(found: TaskMap, page: int) -> dict[str, Any]:
    """The answer of the API."""
    return {
        "columns": [{"first": first, "last": last} for first, last in found.columns],
        "counts": found.counts,
        "by_chance": found.by_chance,
        "items": [_line_view(line) for line in found.lines],
        "page": page,
        "pages": max(1, -(-found.total // PER_PAGE)),
        "total": found.total,
    }


def _line_view(line: Line) -> dict[str, Any]:
    task = line.task
    return {
        "row": task.row if task else None,
        "text": line.text,
        "category": line.category,
        "kind": task.kind if task else None,
        "visits": task.visits if task else None,
        "first": [task.first_hits, task.first_tries] if task else None,
        "last": [task.last_hits, task.last_tries] if task else None,
        "p": task.p if task else None,
        "changes": task.changes if task else None,
        "first_solved": task.first_solved if task else None,
        "last_solved": task.last_solved if task else None,
        "cells": [_cell_view(box, at) for at, box in enumerate(line.boxes) if box is not None],
    }


def _cell_view(box: Box, column: int) -> dict[str, Any]:
    return {
        "column": column,
        "solved": box.solved,
        "counted": box.counted,
        "share": box.share,
        "step": box.step,
        "group": box.group,
    }


# --- Drawing --------------------------------------------------------------------------------------------------------
# Small drawings: signed shares as a stack on both sides of a line, shares over steps as a curve. Numbers only.

WIDTH, HEIGHT = 200, 14
SPARK_WIDTH, SPARK_HEIGHT = 240, 36


class Piece(NamedTuple):
    """One share in a stack, in units of the drawing."""

    curve: int | None
    x: float
    width: float


class Stack(NamedTuple):
    """The shares of one advantage; ``middle`` is the place of 0, ``total`` where they add up to."""

    pieces: list[Piece]
    middle: float
    total: float


class Spark(NamedTuple):
    """A curve with its points; ``here`` is the point of the step that is shown."""

    points: str
    dots: list[tuple[float, float]]
    here: tuple[float, float] | None


def extent_of(rows: Sequence[Sequence[float]]) -> float:
    """The longest side that a stack of any of these has."""
    sides = [abs(sum(value for value in row if (value > 0) is up)) for row in rows for up in (True, False)]
    return max(sides, default=0.0)


def stack_of(shares: Sequence[tuple[int | None, float]], extent: float) -> Stack:
    """Shares from the middle outwards, positive ones to the right; ``extent`` is half of the width."""
    middle = WIDTH / 2
    unit = middle / extent if extent else 0.0
    right = left = middle
    pieces = []
    for curve, value in shares:
        width = abs(value) * unit
        if value < 0:
            left -= width
        pieces.append(Piece(curve, round(left if value < 0 else right, 2), round(width, 2)))
        if value > 0:
            right += width
    return Stack(pieces, middle, round(middle + sum(value for _curve, value in shares) * unit, 2))


def spark_of(shares: Sequence[float | None], here: int | None) -> Spark | None:
    """Shares from 0 to 1 in order; ``None`` with fewer than two that are known."""
    known = [(at, share) for at, share in enumerate(shares) if share is not None]
    if len(known) < 2:
        return None
    step = SPARK_WIDTH / max(1, len(shares) - 1)
    places = {at: (round(at * step, 1), round((1 - share) * (SPARK_HEIGHT - 6) + 3, 1)) for at, share in known}
    points = " ".join(f"{x},{y}" for x, y in places.values())
    return Spark(
        points, list(places.values()) if len(known) <= 40 else [], places.get(here) if here is not None else None
    )
