"""Rollouts as reward test cases: the episode, the dataset's row, and the reward that it got."""

from __future__ import annotations

from collections.abc import Sequence

from webapp.datasets.of_runs import dataset_of_step
from webapp.datasets.rollout_rows import rows_at
from webapp.rewards.models import RewardCase
from webapp.rewards.origins import origin_of
from webapp.runs.config import config_of
from webapp.runs.rollouts.episodes import episode_of
from webapp.runs.rollouts.models import Rollout, Turn

SLACK = 1e-6


def cases_from(rollouts: Sequence[Rollout], name: str, view: str) -> list[RewardCase]:
    """A case for each rollout that has a prompt, not saved; several are numbered. ``view`` says how they were found."""
    made = []
    for number, rollout in enumerate(rollouts, start=1):
        turns = list(Turn.objects.filter(rollout=rollout).defer("words").order_by("number"))
        if turns and rollout.reward is not None:
            case = case_of(rollout, turns, view)
            case.name = name if len(rollouts) == 1 else f"{name[:75]}-{number}"
            made.append(case)
    return made


def case_of(rollout: Rollout, turns: list[Turn], view: str = "") -> RewardCase:
    """A case without a name, not saved: the episode with the reward that it got."""
    source = dataset_of_step(rollout.run, rollout.step, rollout.part)
    row = {}
    if source is not None and rollout.row is not None:
        row = rows_at(source.rows_path, [rollout.row]).get(rollout.row, {})
    episode, config = episode_of(rollout, turns, row), config_of(rollout.run)
    reward = float(rollout.reward or 0.0)
    return RewardCase(
        environment=(config.environment.name if config else "")[:80],
        messages=[message.model_dump(mode="json", exclude_none=True) for message in episode.messages],
        prompt_length=episode.prompt_length,
        row=row,
        env_reward=episode.env_reward,
        env_parts=dict(episode.env_parts),
        truncated=episode.truncated,
        total=[reward - SLACK, reward + SLACK],
        origin=origin_of(rollout, view),
    )
