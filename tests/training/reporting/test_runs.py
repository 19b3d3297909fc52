"""Whole runs of each kind that report: TensorBoard's files hold what the journal holds."""

from __future__ import annotations

import math
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.training.helpers import demonstration_rows, events, of_type, scripted_server, write_rows
from training.imports.base import Notes
from training.imports.trackers import figures_of, records

ROOT = Path(__file__).resolve().parents[3]
KINDS: dict[str, dict[str, Any]] = {
    "sft": {"sft": {"batch_size": 4, "max_length": 256}},
    "sample": {"sample": {"policies": ["empty", "one_tool"]}},
    "evaluate": {"evaluate": {"policy": "one_tool", "tasks": 4}},
}


def in_files(folder: Path) -> dict[tuple[int, str], float]:
    """Every scalar of a folder of event files, by step and tag."""
    found: dict[tuple[int, str], float] = {}
    for path in sorted(folder.glob("events.out.tfevents.*")):
        with path.open("rb") as file:
            for record in records(file):
                assert not record.reason
                figures = figures_of(record.data, Notes("events"))
                found |= {(figures.step, tag): value for tag, value in figures.values.items()} if figures else {}
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_run_reports_what_it_journals(kind: str, tmp_path: Path, starter_folder: Path) -> None:
    rows = write_rows(tmp_path / "rows.jsonl", demonstration_rows(), prompts_only=kind != "sft")
    with scripted_server() as url:
        config = {
            "kind": kind,
            "data": {"train": str(rows)},
            "environment": {} if kind == "sft" else {"url": url},
            "model": {"source": str(starter_folder)},
            "rewards": {"components": [{"name": "task_success", "weight": 2.0}]},
            "rollout": {"prompts_per_step": 2, "num_generations": 2, "max_turns": 2},
            "run": {"max_steps": 2, "device": "cpu", "threads": 1},
            "report": {"to": ["tensorboard"]},
            **KINDS[kind],
        }
        (tmp_path / "job.yaml").write_text(yaml.safe_dump(config))
        words = [sys.executable, "-m", "tests.training.without_health", "run", str(tmp_path / "job.yaml"), "--run-dir"]
        done = subprocess.run([*words, str(tmp_path / "run")], cwd=ROOT, capture_output=True, timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr
    reported = in_files(tmp_path / "run" / "reports" / "tensorboard")
    journal = {
        (event.step, name): struct.unpack("<f", struct.pack("<f", value))[0]
        for event in of_type(tmp_path / "run", "metrics")
        for name, value in event.values.items()
        if math.isfinite(value)
    }
    assert reported == journal and {step for step, _name in reported} == {1, 2}
    assert ("loss" if kind == "sft" else "rewards/task_success/mean") in {name for _step, name in reported}
    assert events(tmp_path / "run")[-1].type == "run_finished"
