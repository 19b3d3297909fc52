"""What the rollouts of one part of a mix are played with; a job without a mix has one part without a name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from training.config import JobConfig
from training.events import Event
from training.rollout.holding import Hold
from training.rollout.scoring import Scorer, Scoring
from training.rollout.trajectory import Player


@dataclass(frozen=True)
class Part:
    """The rows from ``begin`` on, up to the next part's: ``player`` plays them, and ``scorer`` scores what was played.
    ``config`` is that of the part as a job by itself."""

    name: str
    begin: int
    config: JobConfig
    player: Player
    scorer: Scorer


@dataclass(frozen=True)
class Ground:
    """A part while it is played: its environment may be away, and its scoring stuck, without the others'."""

    name: str
    begin: int
    player: Player
    hold: Hold
    scoring: Scoring


def grounds_of(parts: Sequence[Part], write: Callable[[Event], None]) -> list[Ground]:
    """A ground for each part, in their order."""
    return [
        Ground(
            part.name,
            part.begin,
            part.player,
            Hold(part.config.environment, write, part.name),
            Scoring(part.scorer, part.config.rewards.score_timeout_s),
        )
        for part in parts
    ]
