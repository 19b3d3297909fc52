"""Writing rollout sets."""

from __future__ import annotations

from webapp.rewards.models import RolloutSet
from webapp.runs.models import Run
from webapp.teams.models import Project, User


def rollout_set_create(
    *,
    project: Project,
    user: User | None,
    name: str,
    kind: str,
    run: Run | None = None,
    first_step: int | None = None,
    last_step: int | None = None,
    text: str = "",
) -> RolloutSet:
    """Freeze a set of episodes: the row now, its files by a worker. Raises ``ValidationError`` by field."""
    raise NotImplementedError


def rollout_set_delete(*, rollout_set: RolloutSet) -> None:
    """Delete a set and its files."""
    raise NotImplementedError
