"""The doctor's memory: the last 64 steps, the whole course of some figures, what was spent and found."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, NamedTuple

from training.doctor.digest import EVIDENCE, PART_MEAN, SHARES, Digest
from training.doctor.options import DoctorOptions
from training.lanes import DeviceUse

# The whole course of one figure in little room: at most 32 means, however long the run.

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


KEEP = 64
"""Steps that are remembered; the curve of an advisory's evidence has at most so many points."""
GAP = 5
REFERENCE = 20
LEAST = 5
WITNESS_STEPS, DEVICE_STEPS = 5, 40
NORMAL = 1.4826
"""The standard deviation by the median of absolute deviations, of a normal distribution."""
LEVELS = ("rollouts/task_success", "success", "reward")
FOLLOWED = (
    *LEVELS,
    "entropy",
    "grad_norm",
    "heldout/success",
    "completions/mean_length",
    "completions/repeated_share",
    "rollouts/truncated_share",
    "value/explained_variance",
    "timing/step",
)
"""The figures whose whole course is remembered, besides ``SHARES`` and the parts of the reward."""


class History:
    """Digests in order of steps. A step that was trained again replaces itself and all that followed it."""

    def __init__(self, window: int) -> None:
        self.window = window
        self.stage = 0
        self.digests: list[Digest] = []
        self.courses: dict[str, Course] = {}
        self.best: dict[str, float] = {}
        self.spent_s = self.lost_s = 0.0
        self.seen = 0

    def add(self, digest: Digest, stage: int = 1) -> None:
        """Remember one more step; a new stage forgets all before it but what was spent."""
        if stage != self.stage:
            self.digests, self.courses, self.best, self.stage, self.seen = [], {}, {}, stage, 0
        self.seen += 1
        self.digests = [*(each for each in self.digests if each.step < digest.step), digest][-KEEP:]
        for each in self.digests[:-WITNESS_STEPS]:
            each.witnesses.clear()
        for each in self.digests[:-DEVICE_STEPS]:
            each.devices.clear()
        for name, value in _followed(digest):
            self.courses.setdefault(name, Course()).add(digest.step, value)
        self._spend(digest)
        for name in LEVELS:
            now = self.recent(name)
            if len(now) == self.window:
                level = mean(now)  # of a whole window: a single lucky step is no level
                self.best[name] = max(self.best.get(name, level), level)

    def _spend(self, digest: Digest) -> None:
        """Add up the time of steps, and of it the share of rollouts that nothing is learned from."""
        seconds = digest.figures.get("timing/step", 0.0)
        flat = digest.figures.get("groups/zero_variance_share", _share(digest, "flat", "groups"))
        taught = (1 - (flat or 0.0)) * (1 - digest.figures.get("rollouts/excluded_share", 0.0))
        self.spent_s += seconds
        self.lost_s += seconds * (1 - taught)

    @property
    def step(self) -> int:
        """The newest step."""
        return self.digests[-1].step

    def names(self) -> set[str]:
        """The names of the newest step's figures."""
        return set(self.digests[-1].figures)

    def last(self, name: str) -> float | None:
        """The newest step's figure."""
        return self.digests[-1].figures.get(name)

    def recent(self, name: str, steps: int = 0) -> list[float]:
        """The figures of the window, or of the last so many steps; a step that has none is left out."""
        return _values(self.digests[-(steps or self.window) :], name)

    def before(self, name: str) -> list[float]:
        """The figures of up to 20 steps that ended five before the window began; empty if there are fewer than five.

        The five between keep what begins to go wrong out of what it is compared with.
        """
        end = len(self.digests) - self.window - GAP
        found = _values(self.digests[max(0, end - REFERENCE) : max(0, end)], name)
        return found if len(found) >= LEAST else []

    def begin(self, name: str) -> float | None:
        """The mean of the first tenth of the run, of ten steps at least; ``None`` in the first 20 steps."""
        return self.courses[name].begin() if name in self.courses else None

    def lowest(self, name: str) -> float | None:
        """The lower one of the means about 10 steps before and of the run's first tenth; ``None`` without both."""
        before = self.before(name)
        return _lower(mean(before) if before else None, self.begin(name))

    def lowest_share(self, name: str) -> float | None:
        """The same of one of ``SHARES``."""
        return _lower(self.pooled_before(*SHARES[name]), self.begin(name))

    def course(self, name: str) -> list[Point]:
        """The whole run's curve as at most 32 means."""
        return self.courses[name].points if name in self.courses else []

    def stretches(self, name: str, values: int) -> list[Point]:
        """The means of at least so many successive figures of the whole run, in order."""
        return self.courses[name].stretches(values) if name in self.courses else []

    def noise(self, name: str, values: int) -> float:
        """The standard error of a mean of so many figures; infinite where fewer than seven points are known.

        It is read from how far a point is from the line through its neighbours, so that a trend is no noise.
        """
        course = self.course(name)
        if len(course) < LEAST + 2:
            return math.inf
        means = [point.mean for point in course]
        bends = [abs(one - 2 * here + other) for one, here, other in zip(means, means[1:], means[2:], strict=False)]
        return NORMAL * middle(bends) / math.sqrt(6 * max(1.0, values / course[0].values))

    def flat_since(self, name: str, unit: float) -> Point | None:
        """The figure's level in the last third of the run, if that is flat beyond doubt; its step is the first one.

        Flat: the last sixth is at most ``unit`` above the sixth before, three standard errors added.
        """
        points = self.course(name)
        half = len(points) // 6
        if half < 2:
            return None
        earlier, late = (merged(points[-end:][:half]) for end in (2 * half, half))
        error = 3 * self.noise(name, late.values) * math.sqrt(2)
        return merged(points[-2 * half :]) if late.mean - earlier.mean + error <= unit else None

    def trailing(self, name: str) -> list[float]:
        """The figures of up to 20 steps before the newest; empty if there are fewer than five."""
        found = _values(self.digests[-REFERENCE - 1 : -1], name)
        return found if len(found) >= LEAST else []

    def pooled(self, part: str, whole: str, steps: int = 0) -> tuple[float, float]:
        """The two counts summed over the window."""
        chosen = [each for each in self.digests[-(steps or self.window) :] if whole in each.figures]
        return sum(_values(chosen, part)), sum(_values(chosen, whole))

    def pooled_before(self, part: str, whole: str) -> float | None:
        """The share of the steps that ``before`` looks at; ``None`` without any."""
        counted = sum(self.before(whole))
        return sum(self.before(part)) / counted if counted else None

    def points(self, name: str) -> list[tuple[int, float]]:
        """The curve of a figure, as far as it is remembered."""
        return [(each.step, each.figures[name]) for each in self.digests if name in each.figures]

    def shares(self, part: str, whole: str) -> list[tuple[int, float]]:
        """The curve of a share of counts."""
        found = [(each.step, _share(each, part, whole)) for each in self.digests]
        return [(step, share) for step, share in found if share is not None]

    def witnesses(self, name: str) -> list[str]:
        """Up to three rollouts that show it, of the newest steps."""
        names = [
            rollout for each in reversed(self.digests[-WITNESS_STEPS:]) for rollout in each.witnesses.get(name, [])
        ]
        return names[:EVIDENCE]

    def as_json(self) -> dict[str, Any]:
        """All of it as JSON; ``from_json`` continues from there."""
        digests = [[each.step, each.figures, each.witnesses, each.devices] for each in self.digests]
        courses = {name: [course.stride, course.points] for name, course in self.courses.items()}
        spent = [self.spent_s, self.lost_s]
        return {
            "stage": self.stage,
            "digests": digests,
            "courses": courses,
            "best": self.best,
            "spent": spent,
            "seen": self.seen,
        }

    @classmethod
    def from_json(cls, found: dict[str, Any], window: int) -> History:
        """What ``as_json`` said; one of an older version knows no courses, and what it spent is not known."""
        history = cls(window)
        history.stage, history.best = found["stage"], found["best"]
        history.spent_s, history.lost_s = found.get("spent", (0.0, 0.0))
        history.seen = found.get("seen", len(found["digests"]))
        for name, (stride, points) in found.get("courses", {}).items():
            history.courses[name] = Course(stride, [Point(*each) for each in points])
        for step, figures, witnesses, *devices in found["digests"]:  # of an older version without devices
            uses = [DeviceUse(*use) for each in devices for use in each]
            history.digests.append(Digest(step, figures, witnesses, uses))
        return history


def mean(values: Sequence[float]) -> float:
    """The mean of at least one value."""
    return sum(values) / len(values)


def upper_quartile(values: Sequence[float]) -> float:
    """What three quarters of at least one value do not exceed: steps without a signal do not count as usual."""
    return sorted(values)[(3 * (len(values) - 1)) // 4]


def middle(values: Sequence[float]) -> float:
    """The median of at least one value."""
    return float(median(values))


def _lower(*levels: float | None) -> float | None:
    return min((level for level in levels if level is not None), default=None)


def _values(digests: Iterable[Digest], name: str) -> list[float]:
    return [each.figures[name] for each in digests if name in each.figures]


def _share(digest: Digest, part: str, whole: str) -> float | None:
    of = digest.figures.get(whole)
    return digest.figures.get(part, 0.0) / of if of else None


def _followed(digest: Digest) -> Iterator[tuple[str, float]]:
    shares = {name: _share(digest, part, whole) for name, (part, whole) in SHARES.items()}
    for name, value in (digest.figures | shares).items():
        if value is not None and (name in FOLLOWED or name in SHARES or PART_MEAN.fullmatch(name)):
            yield name, value


# What a detector found at a step, and how its figures are written.

Points = list[tuple[int, float]]


class Finding(NamedTuple):
    """``figures`` fill in the rule's sentence; ``curves`` are by name; up to three ``rollouts`` show it."""

    figures: dict[str, str | int]
    curves: dict[str, Points]
    rollouts: list[str]


Detector = Callable[[History, DoctorOptions], Finding | None]


def percent(share: float) -> str:
    """A share as it is read."""
    return f"{100 * share:.0f}%"


def number(value: float) -> str:
    """A figure with three digits."""
    return f"{value:.3g}"
