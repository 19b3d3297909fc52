"""A local sequence-classification model as reward: one number for a conversation, on the CPU."""

from __future__ import annotations

import os
import threading
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import Field

from training.children import REWARD_MODELS
from training.connections import allow_list
from training.errors import ModelError, RewardFault
from training.model_check import check_model_folder
from training.rewards.base import Component, Episode, Params
from training.rewards.judge import transcript
from training.words import _, sentence

# Loading and asking the model. A folder is checked as data before any library opens it; safetensors only.

_forward = threading.Lock()


class Loaded(NamedTuple):
    """A model with its tokenizer."""

    model: Any
    tokenizer: Any


def load(folder: str) -> Loaded:
    """The model of a folder, loaded once. Raises ``RewardFault`` when it cannot be used."""
    path = _allowed(folder)
    with _forward:  # two threads must not load the same model
        try:
            return _load(str(path))
        except ModelError as exc:
            raise RewardFault(f"The reward model cannot be used: {exc.message}", hint=exc.hint) from exc


def _allowed(folder: str) -> Path:
    """The folder; in a supervised process only inside the operator's own, because specs are written by many."""
    path = Path(folder).resolve()
    root = os.environ.get(REWARD_MODELS, "")
    if allow_list() is None and not root:
        return path
    if not root or not path.is_relative_to(Path(root).resolve()):
        raise RewardFault(
            "The reward model's folder may not be used.", hint=f"The operator puts it into {REWARD_MODELS}."
        )
    return path


@lru_cache(maxsize=2)
def _load(folder: str) -> Loaded:
    check_model_folder(Path(folder))
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    common: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
    model = AutoModelForSequenceClassification.from_pretrained(folder, use_safetensors=True, **common)
    return Loaded(model.eval(), AutoTokenizer.from_pretrained(folder, **common))


def output(loaded: Loaded, episode: Episode, label: int, squash: str, max_tokens: int) -> float:
    """One number for the conversation. One forward pass at a time: the sampler has the cores."""
    import torch

    ids = loaded.tokenizer(transcript(episode) or " ", add_special_tokens=True)["input_ids"][-max_tokens:]
    if not ids:
        raise RewardFault("The conversation has no token for the reward model.")
    with _forward, torch.inference_mode():
        logits = loaded.model(input_ids=torch.tensor([ids])).logits[0].float()
    if label >= len(logits):
        raise RewardFault(f"The reward model has {len(logits)} outputs; there is no label {label}.")
    if squash == "softmax":
        logits = logits.softmax(dim=0)
    elif squash == "sigmoid":
        logits = logits.sigmoid()
    return float(logits[label])


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
