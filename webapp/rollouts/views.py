"""The page of one rollout: a link to it works for years, and without scripts."""

from __future__ import annotations

from typing import Any, NamedTuple
from uuid import UUID

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET

from training.config import JobConfig
from webapp.failures import failure
from webapp.rollouts.models import Rollout, Turn
from webapp.rollouts.selectors import rollout_view, turn_view
from webapp.runs.config import component_titles, config_at
from webapp.teams.access import can_edit, project_for

CURVES = 8  # colours of curves; further components begin again


def _numbered(turns: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Give the model's turns their ordinals, from 1; the others have 0."""
    count = 0
    for turn in turns:
        model = bool(turn["messages"]) and turn["messages"][0].get("role") == "assistant"
        count += model
        turn["ordinal"] = count if model else 0
    return turns


class PartRow(NamedTuple):
    """One component of a rollout's reward; ``curve`` is the number of its colour, ``None`` where the spec lacks it."""

    name: str
    title: str
    curve: int | None
    value: float | None
    weight: float | None
    counted: float | None


def _parts(parts: dict[str, float | None], config: JobConfig | None) -> list[PartRow]:
    """The reward's parts as the run page and the lab have them: in the spec's order, by title and colour."""
    weights = {item.name: item.weight for item in config.rewards.components} if config else {}
    titles = component_titles(config.rewards.components if config else [])
    order = {name: number for number, name in enumerate(titles)}
    rows = []
    for name in sorted(parts, key=lambda name: order.get(name, len(order))):
        value, weight = parts[name], weights.get(name)
        counted = value * weight if value is not None and weight is not None else None
        curve = order[name] % CURVES if name in order else None
        rows.append(PartRow(name, titles.get(name, name), curve, value, weight, counted))
    return rows


@login_required
@require_GET
def rollout_detail(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """One transcript with its rewards, and its neighbours in the group."""
    project = project_for(request.user, slug)
    rollout = Rollout.objects.filter(pk=pk, run__project=project).select_related("run").first()
    if rollout is None:
        raise Http404
    names = ("run_id", "attempt", "step", "group", "held_out")
    place = {name: getattr(rollout, name) for name in names}
    siblings = list(Rollout.objects.filter(**place).order_by("index"))
    view = rollout_view(rollout)
    turns = Turn.objects.filter(rollout=rollout).order_by("number")
    context = {
        "project": project,
        "run": rollout.run,
        "rollout": rollout,
        "can_edit": can_edit(project),
        "view": view,
        "failure": failure(rollout.error),
        "siblings": siblings,
        "turns": _numbered([turn_view(turn) for turn in turns]),
        "parts": _parts(view.get("parts") or {}, config_at(rollout.run, rollout.step)),
    }
    return render(request, "rollouts/detail.html", context)
