"""All reward components by name. A new one is one function with its ``Params`` and one line here."""

from __future__ import annotations

from training.config import RewardComponent
from training.rewards.base import Component
from training.rewards.outcome import TASK_SUCCESS
from training.rewards.tool_calling import TOOL_CALLING

COMPONENTS: dict[str, Component] = {
    component.name: component
    for component in (
        *TOOL_CALLING,
        TASK_SUCCESS,
    )
}


def default_components() -> list[RewardComponent]:
    """The five components of tool calling with the weights of SEED 2, which sum to 1."""
    return [RewardComponent(name=item.name, weight=item.default_weight) for item in TOOL_CALLING]
