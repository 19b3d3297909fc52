"""Reading branches."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.http import Http404

from webapp.common.text import finite
from webapp.people.teams.models import Role, User
from webapp.reading.access import rollout_for
from webapp.reading.rewinding.models import Branch
from webapp.reading.rewinding.played import played_branch, played_count, played_of
from webapp.runs.rollouts.models import Rollout


def branches_of(rollout: Rollout) -> list[Branch]:
    """Its branches, the newest first: those that were kept, and those that runs played which continued it."""
    kept = Branch.objects.filter(rollout=rollout).select_related("created_by")
    return sorted([*kept, *played_of(rollout)], key=lambda branch: branch.created_at, reverse=True)


def branch_count(rollout: Rollout) -> int:
    """How many there are, without reading what they say."""
    return Branch.objects.filter(rollout=rollout).count() + played_count(rollout)


def branch_of(rollout: Rollout, pk: UUID) -> Branch | None:
    """The branch of this rollout with this id."""
    return Branch.objects.filter(rollout=rollout, pk=pk).first() or next(iter(played_of(rollout, pk)), None)


def branch_for(user: User, pk: Any, *, need: Role = Role.VIEWER) -> Branch:
    """The branch with this id, if the person's role in its project is at least ``need``."""
    branch = Branch.objects.filter(pk=pk).first() or played_branch(pk)
    if branch is None:
        raise Http404
    branch.rollout = rollout_for(user, branch.rollout_id, need=need)
    return branch


def branch_view(branch: Branch) -> dict[str, Any]:
    """A branch as the API returns it."""
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
        "played": str(branch.played.pk) if branch.played is not None else None,
        "by": branch.created_by.username if branch.created_by else None,
        "created_at": branch.created_at.isoformat(),
        "messages": branch.messages,
    }
