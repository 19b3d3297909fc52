"""A tiny sequence-classification model as reward."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from training.config import RewardComponent
from training.errors import RewardFault
from training.rewards.judge import transcript
from training.rewards.scoring import score_episode

from .episodes import episode, says

SAID = episode("What is 2 + 3?", says("It is 5."))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, tokenizer: Any) -> Path:
    """Random weights with two outputs and the starter's tokenizer."""
    import torch
    from transformers import Qwen3Config, Qwen3ForSequenceClassification

    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=8,
        num_labels=2,
        pad_token_id=0,
    )
    path = tmp_path_factory.mktemp("reward-model")
    Qwen3ForSequenceClassification(config).save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path


def value(folder: Path | str, **params: Any) -> float:
    chosen = RewardComponent(name="reward_model", weight=1, params={"folder": str(folder), **params})
    return score_episode(SAID, [chosen]).total


def test_the_value_is_the_models_output(folder: Path, tokenizer: Any) -> None:
    import torch
    from transformers import AutoModelForSequenceClassification

    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    ids = tokenizer(transcript(SAID))["input_ids"]
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([ids])).logits[0].tolist()
    assert value(folder, squash="none", label=1) == pytest.approx(logits[1], abs=1e-6)
    assert value(folder) == pytest.approx(1 / (1 + math.exp(-logits[0])), abs=1e-6)
    both = [value(folder, squash="softmax", label=label) for label in (0, 1)]
    assert sum(both) == pytest.approx(1.0, abs=1e-6)
    assert value(folder, max_tokens=8) != value(folder)


def test_what_cannot_be_used_is_missing(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(RewardFault, match="no label 2"):
        value(folder, label=2)
    with pytest.raises(RewardFault, match="cannot be used"):
        value(tmp_path / "nowhere")
    (tmp_path / "config.json").write_text('{"auto_map": {"x": "y"}}')
    with pytest.raises(RewardFault, match="asks for code"):
        value(tmp_path)


def test_a_supervised_process_takes_models_only_from_the_operators_folder(
    folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TILTYARD_OUTBOUND_ALLOW", "")
    with pytest.raises(RewardFault, match="may not be used"):
        value(folder)
    monkeypatch.setenv("TILTYARD_REWARD_MODELS", str(tmp_path))
    with pytest.raises(RewardFault, match="may not be used"):
        value(f"{tmp_path}/../{folder.name}")
    monkeypatch.setenv("TILTYARD_REWARD_MODELS", str(folder.parent))
    assert 0 < value(folder) < 1
