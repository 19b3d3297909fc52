"""SFT, then GRPO, against the real tools environment: the chain that the demo runs, shortened."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from benchmarks.environment import environment_server
from tests.training.helpers import events, of_type

ROOT = Path(__file__).resolve().parents[2]


def run(folder: Path, name: str, config: dict[str, Any]) -> Path:
    (folder / f"{name}.yaml").write_text(yaml.safe_dump(config))
    words = [sys.executable, "-m", "training", "run", str(folder / f"{name}.yaml"), "--run-dir", str(folder / name)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, timeout=200)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return folder / name


def make(folder: Path, command: str, count: int) -> str:
    path = folder / f"{command}.jsonl"
    words = [sys.executable, "-m", "envs.tools", command, "--count", str(count), "--output", str(path)]
    subprocess.run(words, cwd=ROOT, check=True, timeout=60)
    return str(path)


@pytest.mark.slow
def test_the_demo_chain_runs_against_the_real_environment(tmp_path: Path) -> None:
    common: dict[str, Any] = {"device": "cpu", "threads": 1}
    taught = run(
        tmp_path,
        "sft",
        {
            "kind": "sft",
            "data": {"train": make(tmp_path, "demonstrations", 400)},
            "sft": {"batch_size": 16, "max_length": 256},
            "optim": {"learning_rate": 3e-3},
            "run": {"max_steps": 60, **common},
        },
    )
    with environment_server("tools") as server:
        learned = run(
            tmp_path,
            "grpo",
            {
                "model": {"source": str(taught / "model")},
                "data": {"train": make(tmp_path, "tasks", 64)},
                "environment": {"name": "tools", "url": server.url},
                "rewards": {
                    "components": [{"name": "coherence", "weight": 0.5}, {"name": "task_success", "weight": 0.5}]
                },
                "rollout": {"prompts_per_step": 4, "num_generations": 4, "max_turn_tokens": 40},
                "optim": {"learning_rate": 1e-4},
                "run": {"max_steps": 3, **common},
            },
        )
    assert events(learned)[-1].status == "succeeded"
    ends = of_type(learned, "rollout_finished")
    assert len(ends) == 48 and all(end.status != "excluded" for end in ends)
    assert all(set(end.parts) == {"coherence", "task_success"} for end in ends)
    # The model writes calls that the environment understands, and the environment's answers come back into the talk.
    roles = [m.role for event in of_type(learned, "turn") for m in event.messages]
    assert "tool" in roles and "assistant" in roles
    assert all("rollouts/task_success" in event.values for event in of_type(learned, "metrics"))
