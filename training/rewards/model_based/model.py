"""Loading and asking the model. A folder is checked as data before any library opens it; safetensors only."""

from __future__ import annotations

import os
import threading
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from training.connections import allow_list
from training.errors import ModelError, RewardFault
from training.model_check import check_model_folder
from training.rewards.base import Episode
from training.rewards.judge.asking import transcript

FOLDERS_VARIABLE = "TILTYARD_REWARD_MODELS"
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
    root = os.environ.get(FOLDERS_VARIABLE, "")
    if allow_list() is None and not root:
        return path
    if not root or not path.is_relative_to(Path(root).resolve()):
        raise RewardFault(
            "The reward model's folder may not be used.", hint=f"The operator puts it into {FOLDERS_VARIABLE}."
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
