"""Reading the scoring of recorded rollouts."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from uuid import UUID

from django.db.models import QuerySet

from training.config import RewardComponent
from webapp.evaluation.rescoring.models import Rescoring
from webapp.people.teams.models import Project


def rescorings_of(project: Project) -> QuerySet[Rescoring]:
    """All that was asked for in a project, newest first."""
    return Rescoring.objects.filter(project=project).select_related("project__team", "created_by")


def newest_for(project: Project, runs: Sequence[UUID], components: Sequence[RewardComponent]) -> Rescoring | None:
    """What was last asked for these runs and this spec."""
    return rescorings_of(project).filter(digest=digest_of(runs, components)).first()


def digest_of(runs: Sequence[UUID], components: Sequence[RewardComponent]) -> str:
    """A SHA-256 that stands for these runs, in any order, under this spec."""
    about = [sorted(map(str, runs)), [item.model_dump(mode="json") for item in components]]
    return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()


def percent_of(rescoring: Rescoring) -> int:
    """How far it has come, 0 to 100."""
    total = int(rescoring.progress.get("total") or 0)
    return min(100, round(100 * int(rescoring.progress.get("done") or 0) / total)) if total else 0
