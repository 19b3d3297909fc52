"""Reading rollout sets."""

from __future__ import annotations

from django.db.models import QuerySet

from webapp.people.teams.models import Project
from webapp.rewards.models import RolloutSet, SetState
from webapp.runs.models import Run


def rollout_sets_of(project: Project) -> QuerySet[RolloutSet]:
    """All rollout sets of a project, newest first."""
    return RolloutSet.objects.filter(project=project).select_related("project", "run", "created_by")


def set_of_run(run: Run) -> RolloutSet | None:
    """The newest set of a run that can be used, of all groups of its steps."""
    return rollout_sets_of(run.project).filter(run=run, state=SetState.READY, found_by="").first()


def percent_of(rollout_set: RolloutSet) -> int:
    """How far the building has come, 0 to 100."""
    total = int(rollout_set.progress.get("total") or 0)
    return min(100, round(100 * int(rollout_set.progress.get("done") or 0) / total)) if total else 0
