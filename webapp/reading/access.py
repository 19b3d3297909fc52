"""The rollout of an address, if the person may see it."""

from __future__ import annotations

from uuid import UUID

from django.contrib.auth.models import AnonymousUser
from django.http import Http404, HttpRequest

from webapp.people.teams.access import project_for
from webapp.people.teams.models import Project, Role, User
from webapp.runs.rollouts.models import Rollout


def own_rollout(request: HttpRequest, slug: str, pk: UUID, *, need: Role = Role.VIEWER) -> tuple[Project, Rollout]:
    """A rollout of the project that the address names, with its run."""
    project = project_for(request.user, slug, need=need)
    rollout = Rollout.objects.filter(pk=pk, run__project=project).select_related("run").first()
    if rollout is None:
        raise Http404
    rollout.run.project = project
    return project, rollout


def rollout_for(user: User | AnonymousUser, pk: UUID, *, need: Role = Role.VIEWER) -> Rollout:
    """The rollout with this id, with its run and project, if the person's role in it is at least ``need``."""
    rollout = Rollout.objects.filter(pk=pk).select_related("run__project").first()
    if rollout is None:
        raise Http404
    rollout.run.project = project_for(user, rollout.run.project.slug, need=need)
    return rollout
