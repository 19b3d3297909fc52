"""Small drawings: signed shares as a stack on both sides of a line, shares over steps as a curve. Numbers only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

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
