"""How large a reward may be: one bound for environments, components and what is recorded elsewhere."""

from __future__ import annotations

from envs.wire import MAX_REWARD

__all__ = ["MAX_REWARD", "within_bounds"]


def within_bounds(value: float) -> bool:
    """Whether a number can be a reward or a part of one: finite, and at most ``MAX_REWARD`` in size."""
    return -MAX_REWARD <= value <= MAX_REWARD
