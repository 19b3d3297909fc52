"""Reading branches."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet
from django.http import Http404

from webapp.reading.access import rollout_for
from webapp.rewinding.models import Branch
from webapp.rollouts.models import Rollout
from webapp.teams.models import Role, User
from webapp.text import finite


def branches_of(rollout: Rollout) -> QuerySet[Branch]:
    """Its branches, the newest first."""
    return Branch.objects.filter(rollout=rollout).select_related("created_by").order_by("-created_at")


def branch_for(user: User, pk: Any, *, need: Role = Role.VIEWER) -> Branch:
    """The branch with this id, if the person's role in its project is at least ``need``."""
    branch = Branch.objects.filter(pk=pk).first()
    if branch is None:
        raise Http404
    branch.rollout = rollout_for(user, branch.rollout_id, need=need)
    return branch


def branch_view(branch: Branch) -> dict[str, Any]:
    """A branch as the API tells it."""
    return {
        "id": str(branch.pk),
        "rollout": str(branch.rollout_id),
        "turn": branch.turn,
        "turns": branch.turns,
        "start": branch.start,
        "same": branch.same,
        "done": branch.done,
        "outcome": branch.outcome,
        "reward": finite(branch.reward),
        "parts": {name: finite(value) for name, value in branch.parts.items()},
        "missing": branch.missing,
        "env_reward": finite(branch.env_reward),
        "player": branch.player,
        "by": branch.created_by.username if branch.created_by else None,
        "created_at": branch.created_at.isoformat(),
        "messages": branch.messages,
    }
