"""A local sequence-classification model as reward: one number for a conversation, on the CPU."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from training.rewards.base import Component, Episode, Params
from training.words import _, sentence

REWARD_MODEL = "reward_model"


class ModelParams(Params):
    """Parameters of ``reward_model``."""

    folder: str = Field(
        "",
        title=_("Model folder"),
        description=_(
            "Folder of a sequence-classification model with safetensors weights. Where outbound addresses are "
            "restricted, it must be inside TILTYARD_REWARD_MODELS."
        ),
        max_length=500,
    )
    label: int = Field(0, title=_("Label"), description=_("Index of the model output that is used."), ge=0, le=1000)
    squash: Literal["sigmoid", "softmax", "none"] = Field(
        "sigmoid",
        title=_("Mapping"),
        description=_("How the output is converted to the value."),
        json_schema_extra={
            "choices": {
                "sigmoid": _("from 0 to 1, the output alone"),
                "softmax": _("from 0 to 1, among all outputs"),
                "none": _("unchanged"),
            }
        },
    )
    max_tokens: int = Field(
        512, title=_("Tokens at most"), description=_("Longer conversations lose their beginning."), ge=8, le=32_768
    )

    def problems(self) -> list[str]:
        """A folder is needed."""
        return [] if self.folder else [sentence(_("The reward model has no folder."))]


def reward_model(episode: Episode, params: ModelParams) -> float:
    """The model's output for the conversation."""
    from training.rewards.model_based.model import load, output  # torch and transformers take seconds to import

    return output(load(params.folder), episode, params.label, params.squash, params.max_tokens)


MODEL_BASED = (
    Component(
        REWARD_MODEL,
        _("Reward model"),
        _("The output of a local sequence-classification model for the conversation."),
        reward_model,
        ModelParams,
        source="Tiltyard; any transformers sequence-classification model",
        formula="sigmoid, softmax or plain output of one label",
        outside=True,
    ),
)
