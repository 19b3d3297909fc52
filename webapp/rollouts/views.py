"""The page of one rollout: a link to it works for years, and without scripts."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET

from webapp.failures import failure
from webapp.rollouts.models import Rollout, Turn
from webapp.rollouts.selectors import rollout_view, turn_view
from webapp.runs.config import config_of
from webapp.teams.access import project_for


def _numbered(turns: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Give the model's turns their ordinals, from 1; the others have 0."""
    count = 0
    for turn in turns:
        model = bool(turn["messages"]) and turn["messages"][0].get("role") == "assistant"
        count += model
        turn["ordinal"] = count if model else 0
    return turns


@login_required
@require_GET
def rollout_detail(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """One transcript with its rewards, and its neighbours in the group."""
    project = project_for(request.user, slug)
    rollout = Rollout.objects.filter(pk=pk, run__project=project).select_related("run").first()
    if rollout is None:
        raise Http404
    place = {"run_id": rollout.run_id, "attempt": rollout.attempt, "step": rollout.step, "group": rollout.group}
    siblings = list(Rollout.objects.filter(**place).order_by("index"))
    config = config_of(rollout.run)
    turns = Turn.objects.filter(rollout=rollout).order_by("number")
    context = {
        "project": project,
        "run": rollout.run,
        "rollout": rollout,
        "view": rollout_view(rollout),
        "failure": failure(rollout.error),
        "siblings": siblings,
        "turns": _numbered([turn_view(turn) for turn in turns]),
        "weights": {item.name: item.weight for item in config.rewards.components} if config else {},
    }
    return render(request, "rollouts/detail.html", context)
