"""The time of a run's last steps by phase: a bar for each step, cut into its phases.

A step's own time (``timing/step``) is generation, environment, scoring, the handover of weights and the update; of a
run that plays ahead of its training (``rollout.max_staleness``), the wait for rollouts replaces the first
three, which take no time of their own. Saving and evaluating come after a step and are not in its own time. What was
not measured is left out, never 0; what is left of the step is *other*.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from django.utils.translation import gettext as _
from django.utils.translation import pgettext

from webapp.common.text import duration, percent
from webapp.runs.metrics.selectors import figures_since
from webapp.runs.models import Run

STEPS = 20
WIDTH = 1000
LEAST_OTHER = 0.01
METRICS = {
    "generation": "timing/generation",
    "environment": "timing/environment",
    "scoring": "timing/scoring",
    "waiting": "timing/waiting",
    "sync": "sampling/sync_seconds",
    "training": "timing/training",
    "saving": "timing/saving",
    "evaluating": "timing/evaluating",
}
PLAYED = ("generation", "environment", "scoring")
AFTER = ("saving", "evaluating")
ORDER = (*METRICS, "other")
STEP, HANDOVER = "timing/step", "timing/handover"


class Piece(NamedTuple):
    """The time of one phase of a step: its place on the bar in thousandths of the longest one's length, and in
    words."""

    phase: str
    x: str
    width: str
    text: str


class Line(NamedTuple):
    """One step. ``parts`` are the durations of the table's columns; one that has not ended has none."""

    step: int | None
    total: str
    pieces: list[Piece]
    parts: list[str]


class Share(NamedTuple):
    """The time of one phase over all steps."""

    phase: str
    name: str
    share: str
    each: str


class Times(NamedTuple):
    """The card; ``lines`` has the newest step first, and a fixed number of lines."""

    lines: list[Line]
    shares: list[Share]
    steps: int
    each: str
    ahead: bool


def phase_names() -> dict[str, str]:
    """The title of each phase, as a noun."""
    return {
        "generation": pgettext("phase of a step", "generation"),
        "environment": pgettext("phase of a step", "environment"),
        "scoring": pgettext("phase of a step", "scoring"),
        "waiting": pgettext("phase of a step", "wait for rollouts"),
        "sync": pgettext("phase of a step", "handover of weights"),
        "training": pgettext("phase of a step", "training"),
        "saving": pgettext("phase of a step", "saving"),
        "evaluating": pgettext("phase of a step", "evaluation"),
        "other": pgettext("phase of a step", "other"),
    }


def places_of(run: Run) -> int:
    """How many lines the card keeps for steps."""
    return min(STEPS, max(run.total_steps, run.step, 1))


def room_for(run: Run) -> Times | None:
    """The card before its figures are read: lines for the steps to come. ``None`` for runs without measured times:
    imported ones and those that train nothing."""
    if run.imported_from or not run.method.trains:
        return None
    return Times([Line(None, "", [], []) for _place in range(places_of(run))], [], 0, "", ahead=False)


def times_of(run: Run) -> Times:
    """The bars of the last ``STEPS`` steps that are over."""
    found = figures_since(run, [STEP, HANDOVER, *METRICS.values()], max(0, run.step - STEPS))
    steps = {step: parts for step in sorted(found, reverse=True) if (parts := parts_of(found[step]))}
    names, count = phase_names(), len(steps)
    totals = {phase: sum(parts.get(phase, 0.0) for parts in steps.values()) for phase in ORDER}
    kept = [phase for phase in ORDER if any(phase in parts for parts in steps.values())]
    whole, longest = sum(totals.values()), max((sum(parts.values()) for parts in steps.values()), default=0.0)
    lines = [_line_of(step, parts, kept, names, longest) for step, parts in steps.items()]
    shares = [
        Share(p, names[p], percent(_whole_percent(totals[p] / whole)), duration(totals[p] / count))
        for p in kept
        if whole
    ]
    empty = [Line(None, "", [], []) for _place in range(places_of(run) - count)]
    each = duration(whole / count) if count else ""
    return Times(lines + empty, shares, count, each, any("waiting" in parts for parts in steps.values()))


def parts_of(figures: Mapping[str, float]) -> dict[str, float]:
    """Seconds of each phase of a step that took any; they add up to the step and what came after it.

    ``timing/training`` is the rest of the step. Of a run of before ``timing/handover`` the handover of weights lies in
    it.
    """
    step = figures.get(STEP)
    parts = {phase: figures[name] for phase, name in METRICS.items() if figures.get(name, 0.0) > 0}
    if step is None and not any(phase in parts for phase in PLAYED):
        return {}  # an evaluation of held-out tasks before the first step, or a step that is not over
    if METRICS["waiting"] in figures:
        parts = {phase: seconds for phase, seconds in parts.items() if phase not in PLAYED}
    if HANDOVER in figures:
        parts = {phase: seconds for phase, seconds in parts.items() if phase != "sync"}
        if figures[HANDOVER] > 0:
            parts["sync"] = figures[HANDOVER]
    elif "sync" in parts and "training" in parts:
        parts["training"] = max(0.0, parts["training"] - parts["sync"])
    left = (step or 0.0) - sum(seconds for phase, seconds in parts.items() if phase not in AFTER)
    if step is not None and left > LEAST_OTHER * step:
        parts["other"] = left
    return parts


def _line_of(step: int, parts: Mapping[str, float], kept: list[str], names: Mapping[str, str], longest: float) -> Line:
    total, x, pieces = sum(parts.values()), 0.0, []
    at = _("step {n}").format(n=step)
    for phase in ORDER:
        if phase not in parts:
            continue
        width = WIDTH * parts[phase] / longest
        share = percent(_whole_percent(parts[phase] / total))
        text = f"{at} · {names[phase]} {duration(parts[phase])} ({share})"
        pieces.append(Piece(phase, f"{x:.1f}", f"{width:.1f}", text))
        x += width
    return Line(step, duration(total), pieces, [duration(parts.get(phase)) for phase in kept])


def _whole_percent(share: float) -> float:
    """The share in whole percents: tenths would change with every step."""
    return round(share, 2)
