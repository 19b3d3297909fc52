"""What a training device does over a step: a lane of spans, each of one phase, and the seconds of each phase.

The trainer says which phase begins (``Lane.turn``). The time in which it waits for rollouts is refined once it is known
what was sampled meanwhile (``Lane.fill``), where that is done by the same device. Phases have the names of the metrics
``timing/<phase>``. The lane of a step ends where the next one begins, so it has the evaluation and the checkpoint that
follow the step, too.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Literal, NamedTuple, Self

from pydantic import BaseModel, Field

from training.devices import Measured

DevicePhase = Literal["generation", "environment", "scoring", "waiting", "handover", "training", "saving", "evaluating"]
WORK: tuple[DevicePhase, ...] = ("generation", "training")
"""The phases in which a device computes what it is there for."""
WAITS: tuple[DevicePhase, ...] = ("environment", "waiting", "scoring", "handover", "saving")
"""Those in which it does not. How much of an evaluation is which is not known."""
MOST_SPANS = 64
DIGITS = 3  # of seconds: milliseconds
Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]
_EPOCH = time.time() - time.monotonic()


def now() -> float:
    """Seconds since 1970, by a clock that never goes back while the process lives."""
    return _EPOCH + time.monotonic()


class Span(NamedTuple):
    """A phase without a break, from ``begin`` to ``end`` by ``now``."""

    phase: DevicePhase
    begin: float
    end: float


class DeviceSpan(BaseModel):
    """A span in seconds since its step began."""

    phase: DevicePhase
    begin: Seconds
    end: Seconds


class LaneStep(BaseModel):
    """A device over one step of ``seconds``.

    ``phases`` are the seconds of each phase that took a millisecond. ``spans`` are in order; of more than
    ``MOST_SPANS`` the shortest ``left_out`` are missing. ``busy`` is the mean share of the time in which the device
    computed (0 to 1), ``memory`` the most bytes in use, ``power_w`` the mean draw in watts: of the whole device, other
    programs included. They are ``None`` where the driver does not say, and of a step too short to be measured.
    """

    step: int
    host: str
    device: str
    seconds: Seconds
    phases: dict[DevicePhase, Seconds]
    spans: list[DeviceSpan] = Field(default_factory=list, max_length=MOST_SPANS)
    left_out: int = Field(0, ge=0)
    busy: float | None = Field(None, ge=0, le=1)
    memory: int | None = Field(None, ge=0)
    power_w: float | None = Field(None, ge=0, allow_inf_nan=False)

    @property
    def use(self) -> DeviceUse:
        """Its figures."""
        return DeviceUse(self.host, self.device, self.seconds, self.busy, self.phases)

    @classmethod
    def of(cls, step: int, spans: Sequence[Span], host: str, device: str, measured: Measured) -> Self:
        """That of at least one span."""
        began, phases = spans[0].begin, dict[DevicePhase, float]()
        for phase, begin, end in spans:
            phases[phase] = phases.get(phase, 0.0) + end - begin
        placed = [(span.phase, round(span.begin - began, DIGITS), round(span.end - began, DIGITS)) for span in spans]
        seen = [(phase, begin, end) for phase, begin, end in placed if begin < end]
        shown = sorted(sorted(seen, key=lambda each: each[1] - each[2])[:MOST_SPANS], key=lambda each: each[1])
        return cls(
            step=step,
            host=host,
            device=device,
            seconds=round(spans[-1].end - began, DIGITS),
            phases={phase: whole for phase, each in phases.items() if (whole := round(each, DIGITS))},
            spans=[DeviceSpan(phase=phase, begin=begin, end=end) for phase, begin, end in shown],
            left_out=len(seen) - len(shown),
            **measured._asdict(),
        )


class Lane:
    """The spans of the step at hand, whose time is training unless another phase is said. For one thread."""

    def __init__(self, clock: Callable[[], float] = now) -> None:
        self._clock = clock
        self.begin()

    def begin(self) -> None:
        """A step begins now; what was before belongs to none."""
        self._phase: DevicePhase = "training"
        self._since = self._clock()
        self._spans: list[Span] = []

    def turn(self, phase: DevicePhase) -> None:
        """From now on the device is in this phase."""
        at = self._clock()
        self._spans.append(Span(self._phase, self._since, at))
        self._phase, self._since = phase, at

    def fill(self, spans: Sequence[Span], rest: DevicePhase = "waiting") -> None:
        """What the device did while it was waiting: ``spans`` in order, of which only what lies in that time counts;
        what they leave of it is ``rest``."""
        self.turn(self._phase)
        self._spans = [
            piece
            for each in self._spans
            for piece in (_refined(each, spans, rest) if each.phase == "waiting" else [each])
        ]

    def finish(self) -> list[Span]:
        """The step ends now, and the next one begins: its spans without gaps, neighbours of one phase joined."""
        self.turn("training")
        spans, self._spans = joined(self._spans), []
        return spans


def joined(spans: Iterable[Span]) -> list[Span]:
    """Spans that follow each other: neighbours of one phase become one, and those without length go, but for a last
    one that is left alone."""
    found: list[Span] = []
    for span in spans:
        if found and (found[-1].phase == span.phase or span.begin == span.end):
            found[-1] = found[-1]._replace(end=span.end)
        elif found and found[-1].begin == found[-1].end:
            found[-1] = span
        else:
            found.append(span)
    return found


def _refined(waiting: Span, spans: Sequence[Span], rest: DevicePhase) -> Iterator[Span]:
    """A time of waiting, with what was done in it."""
    at = waiting.begin
    for phase, begin, end in spans:
        begin, end = max(begin, at), min(end, waiting.end)
        if begin < end:
            yield Span(rest, at, begin)
            yield Span(phase, begin, end)
            at = end
    yield Span(rest, at, waiting.end)


def played_spans(
    sampled: Iterable[tuple[float, float]], ended: Iterable[float], begin: float, end: float
) -> list[Span]:
    """What a device does while rollouts are played on it from ``begin`` to ``end``.

    ``sampled`` are the times in which their turns were sampled, ``ended`` those at which they had been played, all by
    ``now``. It generates while any turn is sampled, waits for environments else, and for scores after the last one.
    """
    last, at = min(max(ended, default=begin), end), begin
    found: list[Span] = []
    for since, until in sorted(sampled):
        since, until = max(since, at), min(until, last)
        if since < until:
            found += [Span("environment", at, since), Span("generation", since, until)]
            at = until
    return joined([*found, Span("environment", at, max(at, last)), Span("scoring", max(at, last), end)])


# How much a device worked, of the figures of some steps.


class DeviceUse(NamedTuple):
    """A device over one step: ``LaneStep`` without its spans."""

    host: str
    device: str
    seconds: float
    busy: float | None
    phases: Mapping[DevicePhase, float]


class Worked(NamedTuple):
    """How much devices worked over ``steps``, ``left_out`` of which say nothing. Shares are of the time, from 0 to 1.

    ``measured``: the driver says so; else by the phases, without the time of evaluations. ``waits`` has the longest
    first.
    """

    share: float
    measured: bool
    steps: int
    left_out: int
    waits: dict[DevicePhase, float]

    @property
    def cause(self) -> DevicePhase | None:
        """What it waited for longest; ``None`` where waiting explains less than half of the time without work."""
        if not self.waits or 2 * sum(self.waits.values()) < 1 - self.share:
            return None
        return next(iter(self.waits))


def worked(uses: Sequence[DeviceUse]) -> Worked | None:
    """How much one device or several worked. What the driver says counts if it covers half of the time, and then only
    the steps of which it is known. ``None`` where there was no time in which work could have been done."""
    known = [use for use in uses if use.busy is not None]
    measured = 2 * sum(use.seconds for use in known) >= sum(use.seconds for use in uses)
    chosen = known if measured else uses
    skipped = 0.0 if measured else sum(use.phases.get("evaluating", 0.0) for use in chosen)
    whole = sum(use.seconds for use in chosen) - skipped
    if whole <= 0:
        return None
    spent = {phase: sum(use.phases.get(phase, 0.0) for use in chosen) for phase in (*WORK, *WAITS)}
    if measured:
        share = sum(use.seconds * (use.busy or 0.0) for use in chosen) / whole
    else:
        share = sum(spent[phase] for phase in WORK) / whole
    longest = sorted((phase for phase in WAITS if spent[phase] > 0), key=lambda phase: -spent[phase])
    waits = {phase: spent[phase] / whole for phase in longest}
    return Worked(min(share, 1.0), measured, len(chosen), len(uses) - len(chosen), waits)
