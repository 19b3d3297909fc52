"""Where reward test cases come from: the recorded rollout of a run, and how it was found."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple
from uuid import UUID

from django.urls import reverse
from django.utils.translation import gettext as _

from webapp.people.teams.models import Project
from webapp.rewards.models import RewardCase
from webapp.runs.rollouts.models import Rollout

VIEW_CHARACTERS = 500


class Origin(NamedTuple):
    """The rollout that a case was made of, in words; ``url`` is empty once it is gone. ``view`` says how it was found,
    if it was found by a search."""

    words: str
    url: str
    view: str


def origin_of(rollout: Rollout, view: str = "") -> dict[str, Any]:
    """The facts that a case keeps of its rollout."""
    return {
        "run": str(rollout.run_id),
        "run_name": rollout.run.name,
        "rollout": str(rollout.pk),
        "step": rollout.step,
        "group": rollout.group,
        "index": rollout.index,
        "view": view[:VIEW_CHARACTERS],
    }


def origins_of(project: Project, cases: Sequence[RewardCase]) -> dict[UUID, Origin]:
    """The origins of those cases of a project that were made of recorded rollouts, in at most one query."""
    kept = {case.pk: case for case in cases if case.origin}
    if not kept:
        return {}
    wanted = [case.origin["rollout"] for case in kept.values()]
    there = {str(pk) for pk in Rollout.objects.filter(pk__in=wanted).values_list("pk", flat=True)}
    return {pk: _origin_of(project, case, there) for pk, case in kept.items()}


def _origin_of(project: Project, case: RewardCase, there: set[str]) -> Origin:
    words = _("rollout %(step)s.%(group)s.%(index)s of %(run_name)s") % case.origin
    rollout = case.origin["rollout"]
    url = reverse("rollout-detail", args=[project.slug, rollout]) if rollout in there else ""
    return Origin(words, url, case.origin["view"])
