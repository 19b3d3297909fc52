"""The tiny model of the training tests: a starter built from small conversations, and one taught to call its tool."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from tests.training.helpers import demonstration_rows, job_config, write_rows


@pytest.fixture(autouse=True)
def _an_operators_own_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the supervisor's allow-list, so that servers of tests on any port may be reached."""
    monkeypatch.delenv("TILTYARD_OUTBOUND_ALLOW", raising=False)


@pytest.fixture(scope="session")
def starter_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An untrained starter model with its tokenizer."""
    from training.starter import build_starter

    folder = tmp_path_factory.mktemp("starter")
    build_starter(demonstration_rows(), folder, seed=3)
    return folder


@pytest.fixture(scope="session")
def tokenizer(starter_folder: Path) -> Any:
    """The starter's tokenizer."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(starter_folder)


@pytest.fixture
def model(starter_folder: Path) -> Any:
    """A fresh copy of the starter model."""
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(starter_folder)


@pytest.fixture(scope="session")
def trained_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A starter that was taught the demonstrations for a few seconds, so that its rollouts differ in reward."""
    from training.algorithms.job import Job
    from training.algorithms.sft import run_sft
    from training.journal import Journal

    folder = tmp_path_factory.mktemp("taught")
    data = write_rows(folder / "rows.jsonl", demonstration_rows())
    config = job_config(
        kind="sft",
        model={"source": "starter"},
        data={"train": str(data)},
        sft={"batch_size": 12, "max_length": 256},
        optim={"learning_rate": 5e-3},
        run={"max_steps": 40},
    )
    run_sft(Job(config, folder / "run", Journal(folder / "run"), threading.Event()))
    return folder / "run" / "model"
