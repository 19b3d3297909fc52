"""Ids of rollouts."""

from __future__ import annotations

from uuid import UUID, uuid5


def rollout_id(run_id: UUID, attempt: int, name: str) -> UUID:
    """Id of a rollout: derived, so that a second import or a repeated journal name never meets a stranger's row."""
    return uuid5(run_id, f"{attempt}/{name}")
