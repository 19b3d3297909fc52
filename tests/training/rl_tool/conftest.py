"""GSM8K and Qwen3-0.6B as the documentation names them, in small: a folder of word problems, and a hub's cache in which
that id is a tiny model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from training.children import MODEL_CACHE
from training.data.formats.gsm8k import word_problems
from training.data.reader import load_rows
from training.starter import build_starter

COMMIT = "c" * 40
ROWS = {"train": 6, "test": 5}


@pytest.fixture(scope="session")
def gsm8k(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with GSM8K's two splits."""
    folder = tmp_path_factory.mktemp("gsm8k")
    for seed, (split, count) in enumerate(ROWS.items()):
        rows = word_problems(count, seed=seed, steps=1)
        (folder / f"gsm8k_{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


@pytest.fixture(scope="session")
def small_qwen(tmp_path_factory: pytest.TempPathFactory, gsm8k: Path) -> Path:
    """A cache whose Qwen/Qwen3-0.6B is a model of half a million weights, stored in bfloat16."""
    import torch
    from transformers import AutoModelForCausalLM

    cache = tmp_path_factory.mktemp("hub")
    model = cache / "models--Qwen--Qwen3-0.6B"
    snapshot = model / "snapshots" / COMMIT
    build_starter(load_rows(gsm8k / "gsm8k_train.jsonl"), snapshot, seed=1)
    AutoModelForCausalLM.from_pretrained(snapshot, dtype=torch.bfloat16).save_pretrained(snapshot)
    (model / "refs").mkdir()
    (model / "refs" / "main").write_text(COMMIT)
    return cache


@pytest.fixture
def at_work(tmp_path: Path, small_qwen: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder of a machine without a network, whose hub's cache has the model."""
    from huggingface_hub import constants

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(MODEL_CACHE, str(small_qwen))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    return tmp_path
