"""A finished rollout, and a step of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from training.rewards.advantages import GroupStatistics
from training.rewards.turns import TurnCredit
from training.rollout.trajectory import Trajectory


@dataclass
class Rollout:
    """A finished rollout with its raw reward parts by component; both are ``None`` when it is excluded.

    ``gains`` are what the environment paid with the answer to each turn but the last; ``None`` where it said nothing
    before the end, or nobody asked. ``credit`` makes the turns' advantages of the rollout's.
    """

    name: str
    row: int
    trajectory: Trajectory
    parts: dict[str, float] | None = None
    reward: float | None = None
    gains: list[float] | None = None
    credit: TurnCredit | None = None


@dataclass(repr=False)  # asyncio.Runner prints its task, result and all, to change the signal handler: 10 ms a step
class StepRollouts:
    """A step's rollouts in TRL's order (groups are consecutive), their groups' statistics and its figures.

    ``played`` are all that were played, where some of them gave their place to others.
    """

    rollouts: list[Rollout]
    groups: list[GroupStatistics]
    figures: dict[str, float] = field(default_factory=dict)
    played: Sequence[Rollout] = ()
