"""Axes of a run's curves other than steps, and whether its rewards may be compared with another run's."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.http import HttpRequest
from ninja import Router

from training.rewards.scoring import form_components
from webapp.api.answers import runs as answers
from webapp.api.base import open_to
from webapp.evaluation.comparison.figures import same_rewards
from webapp.people.teams.access import object_for
from webapp.people.teams.models import TokenScope
from webapp.runs.config import all_components, config_of
from webapp.runs.models import Run
from webapp.runs.records.selectors import run_axes

router = Router(tags=["runs"])


@router.get("/runs/{uuid:run_id}/axes", response=answers.RunAxes, auth=open_to(TokenScope.METRICS))
def run_axes_of(request: HttpRequest, run_id: UUID, beside: UUID | None = None) -> dict[str, Any]:
    """Hours, rollouts and tokens that a run had used at the end of its steps. With `beside`, another run of the
    project, `same_rewards` says whether the rewards of both were made in the same way: else their curves must not be
    compared."""
    run = object_for(request.user, Run, run_id)
    same_project = Run.objects.filter(project=run.project_id)
    other = None if beside is None else object_for(request.user, Run, beside, within=same_project)
    return {
        "id": run.pk,
        "name": run.name,
        "state": run.state,
        "axes": run_axes(run),
        "same_rewards": None if other is None else _rewarded_alike(run, other),
    }


def _rewarded_alike(run: Run, other: Run) -> bool:
    """False where that is not known: for a run that another trainer made, or whose config can no longer be read."""
    configs = [None if each.imported_from else config_of(each) for each in (run, other)]
    parts = [all_components(config) or form_components() for config in configs if config is not None]
    return len(parts) == 2 and same_rewards(*parts)
