"""The run of an address, if the person may see it."""

from __future__ import annotations

from typing import cast
from uuid import UUID

from django.db.models import Exists, OuterRef
from django.http import HttpRequest

from webapp.people.teams.access import object_for, project_for
from webapp.people.teams.models import Project, Role, User
from webapp.runs.models import Run, RunStar
from webapp.runs.records.selectors import runs_with_ages


def own_run(request: HttpRequest, slug: str, pk: UUID, *, need: Role = Role.VIEWER) -> tuple[Project, Run]:
    """A run of the project, if the person may see it."""
    project = project_for(request.user, slug, need=need)
    within = runs_with_ages().filter(project=project).select_related("project", "after", "parent", "created_by")
    within = within.annotate(starred=Exists(RunStar.objects.filter(run=OuterRef("pk"), user=cast(User, request.user))))
    return project, object_for(request.user, Run, pk, need=need, within=within, project=project)
