"""Recorded rollouts as the episodes that reward components score.

What a component sees of a finished trajectory is in the database: its turns, the environment's own reward and parts,
and the row's place in the dataset. So any reward can be computed later from what is recorded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from envs.wire import Message
from training.rewards.base import Episode
from webapp.runs.rollouts.models import Rollout, RolloutStatus, Turn

BATCH = 500


def episodes_of(rollouts: Sequence[Rollout], rows: Mapping[int, dict[str, Any]]) -> Iterator[tuple[Rollout, Episode]]:
    """Each rollout with its episode, in order. ``rows`` are the dataset's rows by place, as far as they are known.

    A rollout without a prompt turn (its environment never answered) is skipped: there is nothing to score.
    """
    for start in range(0, len(rollouts), BATCH):
        batch = rollouts[start : start + BATCH]
        turns: dict[Any, list[Turn]] = {}
        for turn in Turn.objects.filter(rollout__in=[item.pk for item in batch]).order_by("rollout", "number"):
            turns.setdefault(turn.rollout_id, []).append(turn)
        for rollout in batch:
            if turns.get(rollout.pk):
                row = rows.get(rollout.row, {}) if rollout.row is not None else {}
                yield rollout, episode_of(rollout, turns[rollout.pk], row)


def episode_of(rollout: Rollout, turns: Sequence[Turn], row: dict[str, Any]) -> Episode:
    """One rollout, its turns in order (number 0 is the prompt), and the dataset's row that it played."""
    messages = [Message.model_validate(message) for turn in turns for message in turn.messages]
    return Episode(
        messages=messages,
        prompt_length=sum(len(turn.messages) for turn in turns if turn.number == 0),
        row=row,
        env_reward=rollout.env_reward,
        env_parts=dict(rollout.env_parts),
        parse_errors=rollout.parse_errors,
        truncated=rollout.status == RolloutStatus.TRUNCATED,
        tokens=rollout.tokens,
    )
