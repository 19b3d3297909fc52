"""Hours, rollouts and tokens that a run had used at the end of each step, for axes other than steps."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Any
from uuid import UUID

from django.db.models import Count, Sum

from webapp.runs.metrics.selectors import curves
from webapp.runs.models import Run
from webapp.runs.rollouts.models import Rollout

STEP_TIME = "timing/step"
KNOTS = 400  # of an axis on a screen; between them it is straight
Axes = dict[str, dict[str, list[Any]]]
"""``{time, rollouts, tokens}``, each ``{steps, at}``; those that the run does not know are left out."""


def run_axes(run: Run) -> Axes:
    """The axes of one run, of at most ``KNOTS`` steps each."""
    found = axes(curves(run, [STEP_TIME], 2**31).get(STEP_TIME, {}), played([run.pk]).get(run.pk, []))
    return {name: {part: _evenly_spaced(values) for part, values in axis.items()} for name, axis in found.items()}


def played(runs: Iterable[UUID]) -> dict[UUID, list[tuple[int, int, int]]]:
    """Of each run its steps, with how many rollouts and tokens each had; what was held out teaches nothing."""
    rows = Rollout.objects.filter(run__in=list(runs), held_out=False)
    found: dict[UUID, list[tuple[int, int, int]]] = {}
    for pk, step, count, tokens in (
        rows.values_list("run", "step").annotate(Count("pk"), Sum("tokens")).order_by("step")
    ):
        found.setdefault(pk, []).append((step, count, tokens or 0))
    return found


def axes(spent: dict[str, Any], steps_played: Sequence[tuple[int, int, int]]) -> Axes:
    """The axes of a run from the whole curve of its steps' seconds, and its steps with their rollouts and tokens."""
    seconds = [value or 0.0 for value in spent.get("values", [])]
    found = {"time": {"steps": spent.get("steps", []), "at": [value / 3600 for value in accumulate(seconds)]}}
    steps = [step for step, _count, _tokens in steps_played]
    found["rollouts"] = {"steps": steps, "at": list(accumulate(float(count) for _step, count, _tokens in steps_played))}
    found["tokens"] = {"steps": steps, "at": list(accumulate(float(tokens) for _step, _count, tokens in steps_played))}
    return {name: axis for name, axis in found.items() if axis["steps"]}


def _evenly_spaced(values: list[Any]) -> list[Any]:
    if len(values) <= KNOTS:
        return values
    return [values[place * (len(values) - 1) // (KNOTS - 1)] for place in range(KNOTS)]
