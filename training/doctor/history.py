"""What the doctor remembers: the last 64 steps as digests, how the run began, and how good it once was."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median
from typing import Any

from training.doctor.digest import EVIDENCE, Digest

KEEP = 64
"""Steps that are remembered; the curve of an advisory's evidence has at most so many points."""
BEGIN = 10
GAP = 5
REFERENCE = 20
LEAST = 5
WITNESS_STEPS = 5
LEVELS = ("rollouts/task_success", "success", "reward")


class History:
    """Digests in order of steps. A step that was trained again replaces itself and all that followed it."""

    def __init__(self, window: int) -> None:
        self.window = window
        self.stage = 0
        self.digests: list[Digest] = []
        self.begin: dict[str, list[float]] = {}
        self.best: dict[str, float] = {}

    def add(self, digest: Digest, stage: int = 1) -> None:
        """Remember one more step; a new stage forgets all before it."""
        if stage != self.stage:
            self.digests, self.begin, self.best, self.stage = [], {}, {}, stage
        self.digests = [*(each for each in self.digests if each.step < digest.step), digest][-KEEP:]
        for each in self.digests[:-WITNESS_STEPS]:
            each.witnesses.clear()
        if "entropy" in digest.figures and len(begun := self.begin.setdefault("entropy", [])) < BEGIN:
            begun.append(digest.figures["entropy"])
        for name in LEVELS:
            now = self.recent(name)
            if len(now) == self.window:
                self.best[name] = max(self.best.get(name, now[0]), sum(now) / len(now))

    @property
    def step(self) -> int:
        """The newest step."""
        return self.digests[-1].step

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
        return [
            (each.step, each.figures.get(part, 0.0) / each.figures[whole])
            for each in self.digests
            if each.figures.get(whole)
        ]

    def witnesses(self, name: str) -> list[str]:
        """Up to three rollouts that show it, of the newest steps."""
        names = [
            rollout for each in reversed(self.digests[-WITNESS_STEPS:]) for rollout in each.witnesses.get(name, [])
        ]
        return names[:EVIDENCE]

    def as_json(self) -> dict[str, Any]:
        """All of it as JSON; ``from_json`` goes on from there."""
        digests = [[each.step, each.figures, each.witnesses] for each in self.digests]
        return {"stage": self.stage, "digests": digests, "begin": self.begin, "best": self.best}

    @classmethod
    def from_json(cls, found: dict[str, Any], window: int) -> History:
        """What ``as_json`` said."""
        history = cls(window)
        history.stage, history.begin, history.best = found["stage"], found["begin"], found["best"]
        history.digests = [Digest(*each) for each in found["digests"]]
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


def _values(digests: Iterable[Digest], name: str) -> list[float]:
    return [each.figures[name] for each in digests if name in each.figures]
