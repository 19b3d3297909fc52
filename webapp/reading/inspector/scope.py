"""Where rollouts are searched: in one run, or in several of a project."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import urlencode
from uuid import UUID

from django.db.models import Exists, OuterRef, Q
from django.urls import reverse

from webapp.people.teams.models import Project
from webapp.runs.models import Attempt, Run
from webapp.runs.rollouts.models import Rollout

MOST_RUNS = 20


class Scope(NamedTuple):
    """A project and those of its runs that are searched; ``run`` where it is one run's page."""

    project: Project
    runs: Sequence[Run]
    run: Run | None = None


def run_scope(project: Project, run: Run) -> Scope:
    """One run, or one evaluation."""
    return Scope(project, [run], run)


def project_scope(project: Project, chosen: Sequence[str]) -> Scope:
    """The chosen runs of a project, at most ``MOST_RUNS``; without any its newest ones that played rollouts."""
    runs = Run.objects.filter(project=project, archived_at=None).order_by("-created_at")
    ids = [pk for pk in map(_parse_uuid, chosen) if pk is not None]
    if chosen:
        return Scope(project, list(Run.objects.filter(project=project, pk__in=ids)[:MOST_RUNS]))
    played = runs.filter(Exists(Rollout.objects.filter(run=OuterRef("pk"))))
    return Scope(project, list(played[:MOST_RUNS]))


def _parse_uuid(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None


def address_of(project: Project, run: Run | None, name: str = "rollouts") -> str:
    """Where the inspector of a run is, or of several runs of the project, or a page below it."""
    if run is not None:
        return reverse(f"run-{name}", args=[project.slug, run.pk])
    return reverse(f"project-{name}", args=[project.slug])


def carried(run: Run | None, pairs: Sequence[tuple[str, str]]) -> str:
    """The query string that says in which view a rollout was found (``webapp.reading.views`` reads it), so that its
    page leads to the next one there."""
    return "?" + urlencode([("found", urlencode(pairs)), *([] if run else [("in", "project")])])


def lost_steps(runs: Sequence[Run]) -> Q:
    """Rollouts of steps that a later attempt played again: only the later ones count."""
    lost = Q()
    attempts = Attempt.objects.filter(run__in=[run.pk for run in runs], number__gt=1).order_by("run", "number")
    for attempt in attempts:
        if attempt.last_step > attempt.first_step:
            lost |= Q(run=attempt.run_id, attempt__lt=attempt.number, step__gt=attempt.first_step)
    return lost
