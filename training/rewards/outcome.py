"""The environment's own verdict as a reward component."""

from __future__ import annotations

from training.rewards.base import Component, Episode, Params


def _(text: str) -> str:
    """Mark a text for translation; the web interface translates it when it shows it."""
    return text


def task_success(episode: Episode, params: Params) -> float | None:
    """The environment's reward as it stands; ``None`` where the environment has none, which is not 0."""
    return episode.env_reward


TASK_SUCCESS = Component(
    "task_success",
    _("Task success"),
    _("The environment's own reward for the task."),
    task_success,
)
