"""The environment's own verdict as a reward component."""

from __future__ import annotations

from pydantic import Field

from training.rewards.base import Component, Episode, Example, Params, played, says
from training.words import _


class VerdictParams(Params):
    """The value of an episode that ran out before the environment gave its verdict."""

    cut_off: float | None = Field(
        0.0,
        title=_("Cut off"),
        description=_(
            "Value of an episode that ran out of turns or tokens before the environment gave a verdict. Empty "
            "excludes such episodes; then a policy never learns to finish in time."
        ),
        ge=-1,
        le=1,
        allow_inf_nan=False,
    )


def task_success(episode: Episode, params: VerdictParams) -> float | None:
    """The environment's reward as it is.

    ``None`` where an episode that came to its end has none: the environment failed to judge it, which is not 0. An
    episode that the policy did not bring to its end within its budget is worth ``cut_off``.
    """
    if episode.env_reward is None and episode.truncated:
        return params.cut_off
    return episode.env_reward


TASK_SUCCESS = Component(
    "task_success",
    _("Task success"),
    _("The environment's own reward for the task."),
    task_success,
    VerdictParams,
    source="the environment server (`reward` of its last observation)",
    formula="reward",
    examples=(
        Example("the environment says 0.25", played("q", says("a"), env_reward=0.25), 0.25),
        Example("cut off without a verdict", played("q", says("a"), truncated=True), 0.0),
        Example("ended without a verdict", played("q", says("a")), None),
    ),
)
OUTCOME = (TASK_SUCCESS,)
