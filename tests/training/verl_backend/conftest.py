"""verl lives in a virtualenv of its own, so what needs it runs there, in a process."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PYTHON = ROOT / ".venv-verl" / "bin" / "python"
RunInVerl = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def run_in_verl(tmp_path: Path) -> RunInVerl:
    """Runs words of a command line with verl's Python in an empty folder: a folder next to it would be imported."""
    if not PYTHON.exists():
        pytest.skip("There is no .venv-verl: run make setup-verl.")
    empty = tmp_path / "empty"
    empty.mkdir()

    def run(*words: str, timeout_s: float = 240, **variables: str) -> subprocess.CompletedProcess[str]:
        kept = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR", "LANG") if name in os.environ}
        environment = kept | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"} | variables
        command = [str(PYTHON), *words]
        return subprocess.run(
            command, cwd=empty, env=environment, capture_output=True, text=True, timeout=timeout_s, check=False
        )

    return run


@pytest.fixture
def no_health(monkeypatch: pytest.MonkeyPatch) -> None:
    """The scripted server speaks only the websocket."""
    monkeypatch.setattr("training.algorithms.grpo.check_environment", lambda config: None)
    monkeypatch.setattr("training.verl_backend.learner.check_environment", lambda config: None)
