"""The whole course of one figure in little room: at most 32 means, however long the run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

MOST = 32
LEAST_BEGIN = 10


class Point(NamedTuple):
    """The mean of ``values`` figures, of which the first is of ``step``."""

    step: int
    mean: float
    values: int


@dataclass
class Course:
    """Each point but the last is the mean of ``stride`` figures, which doubles whenever there are too many points."""

    stride: int = 1
    points: list[Point] = field(default_factory=list)

    def add(self, step: int, value: float) -> None:
        """Take in a step's figure; points of this step and later ones are void, for it is trained again."""
        while self.points and self.points[-1].step >= step:
            self.points.pop()
        new = Point(step, value, 1)
        if self.points and self.points[-1].values < self.stride:
            new = merged([self.points.pop(), new])
        self.points.append(new)
        if len(self.points) > MOST:
            self.stride *= 2
            self.points = [merged(self.points[start : start + 2]) for start in range(0, len(self.points), 2)]

    @property
    def values(self) -> int:
        """How many figures there were."""
        return sum(point.values for point in self.points)

    def begin(self) -> float | None:
        """The mean of the first tenth, of ten figures at least; ``None`` until twice as many are there."""
        count = self.values
        return None if count < 2 * LEAST_BEGIN else next(self._each(max(LEAST_BEGIN, count // 10))).mean

    def stretches(self, values: int) -> list[Point]:
        """The means of successive points that hold at least so many figures, from each point on, in order."""
        return list(self._each(values))

    def _each(self, values: int) -> Iterator[Point]:
        total, count, end = 0.0, 0, 0
        for point in self.points:
            while count < values and end < len(self.points):
                total += self.points[end].mean * self.points[end].values
                count += self.points[end].values
                end += 1
            if count < values:
                return
            yield Point(point.step, total / count, count)
            total -= point.mean * point.values
            count -= point.values


def merged(points: list[Point]) -> Point:
    """One point in the place of several successive ones."""
    values = sum(point.values for point in points)
    return Point(points[0].step, sum(point.mean * point.values for point in points) / values, values)
