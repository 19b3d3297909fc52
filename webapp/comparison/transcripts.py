"""One task, as several contestants played it, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import Any, NamedTuple

from training.rollout.figures import SUCCESS_PART
from webapp.comparison.contestants import Contestant
from webapp.rollouts.models import Rollout, RolloutStatus, Turn
from webapp.rollouts.selectors import turn_view

MOST_TRIES = 64
Row = tuple[list[list[dict[str, Any]]], bool]
"""A turn of several episodes: the messages of each, and whether all said the same."""


class Played(NamedTuple):
    """A contestant's tries of a task, and the one that is shown; ``None`` where it has no such try."""

    contestant: Contestant
    tries: list[Rollout]
    shown: Rollout | None
    turns: list[dict[str, Any]]

    @property
    def success(self) -> float | None:
        """The environment's verdict of the try that is shown."""
        return success_of(self.shown) if self.shown else None


def success_of(rollout: Rollout) -> float | None:
    """The environment's verdict; ``None`` without one."""
    if rollout.status == RolloutStatus.EXCLUDED:
        return None
    value = rollout.env_parts.get(SUCCESS_PART)
    return float(value) if value is not None else None


def played(contestants: Sequence[Contestant], task: int, number: int) -> list[Played]:
    """The try ``number`` (from 0) of a task, of each contestant."""
    return [_played(item, task, number) for item in contestants]


def _played(contestant: Contestant, task: int, number: int) -> Played:
    rows = Rollout.objects.filter(run=contestant.run, row=task).exclude(status=RolloutStatus.RUNNING)
    newest = {(row.step, row.group, row.index): row for row in rows.order_by("attempt", "index")[: MOST_TRIES * 4]}
    tries = sorted(newest.values(), key=lambda row: (row.step, row.group, row.index))[:MOST_TRIES]
    shown = tries[number] if number < len(tries) else None
    turns = Turn.objects.filter(rollout=shown).order_by("number") if shown else []
    return Played(contestant, tries, shown, [turn_view(turn) for turn in turns])


def aligned(found: Sequence[Played]) -> list[Row]:
    """The turns of contestants side by side."""
    return side_by_side([item.turns for item in found])


def side_by_side(episodes: Sequence[list[dict[str, Any]]]) -> list[Row]:
    """For each turn the messages of each episode, and whether all said the same."""
    rows = []
    for turns in zip_longest(*episodes):
        said = [turn["messages"] if turn else [] for turn in turns]
        rows.append((said, all(messages == said[0] for messages in said)))
    return rows
