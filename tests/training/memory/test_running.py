"""The dry step before a run, and the name of a shortage in it: a real trainer on a device that is said to be small."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.training.helpers import demonstration_rows
from training.algorithms import base
from training.config import JobConfig
from training.errors import MemoryShort
from training.journal import LogLine, Metrics, RunFinished, read_events
from training.main import run_job
from training.memory import running
from training.memory.devices import Device

SMALL = Device("x", "Matchbox", 2_000_000_000, "cpu", computes_bf16=False)


def _config(data: Path) -> JobConfig:
    return JobConfig.model_validate(
        {
            "kind": "sft",
            "data": {"train": str(data)},
            "sft": {"batch_size": 4, "max_length": 128},
            "run": {"max_steps": 2, "device": "cpu", "save_every": 0},
        }
    )


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Demonstrations."""
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(row.model_dump_json(exclude_none=True) + "\n" for row in demonstration_rows()))
    return path


def _events(folder: Path) -> list[Any]:
    return [event for _line, event in read_events(folder / "journal.jsonl", 0, 1 << 30)]


def _losses(folder: Path) -> list[float]:
    return [event.values["loss"] for event in _events(folder) if isinstance(event, Metrics) and "loss" in event.values]


def test_a_close_fit_is_tried_first_and_changes_nothing(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run_job(_config(data), tmp_path / "plain") == 0
    monkeypatch.setattr(running, "device_here", lambda _wanted: SMALL)
    monkeypatch.setattr(running, "SURE", 0.0)
    monkeypatch.setattr(running, "plainly_fits", lambda *_args: False)
    assert run_job(_config(data), tmp_path / "tried") == 0
    lines = [event.message for event in _events(tmp_path / "tried") if isinstance(event, LogLine)]
    assert any("dry step over the longest rows (4 × 128 tokens)" in line for line in lines)
    assert not any("dry step" in e.message for e in _events(tmp_path / "plain") if isinstance(e, LogLine))
    assert _losses(tmp_path / "tried") == _losses(tmp_path / "plain")


@pytest.mark.parametrize("in_step", [2])
def test_a_shortage_in_a_step_pauses_and_names_what_took_the_memory(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_step: int
) -> None:
    steps = 0
    begin = base.JournalCallback.on_step_begin

    def short(self: Any, *args: Any, **kwargs: Any) -> Any:
        nonlocal steps
        steps += 1
        if steps == in_step:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB")
        return begin(self, *args, **kwargs)

    monkeypatch.setattr(base.JournalCallback, "on_step_begin", short)
    monkeypatch.setattr(running, "device_here", lambda _wanted: SMALL)
    assert run_job(_config(data), tmp_path / "run") == 5
    last = _events(tmp_path / "run")[-1]
    assert isinstance(last, RunFinished) and last.status == "paused" and last.error is not None
    assert last.error.code == "out_of_memory"
    assert last.error.message.startswith("Memory ran out while the model was learning. Most of it goes to ")
    assert "optim.micro_batch_size: 2" in last.error.hint


def test_another_error_keeps_its_name() -> None:
    with pytest.raises(RuntimeError, match="something else"), running.named_shortage(JobConfig(), None):
        raise RuntimeError("something else")


def test_without_a_table_the_shortage_is_reported_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    found = running.shortage(JobConfig(), None)
    assert isinstance(found, MemoryShort) and found.pauses
    assert found.message == "Memory ran out while the model was learning."
    assert "look whether something else holds memory" in found.hint


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (
            RuntimeError(
                "CUDA error: uncorrectable ECC error encountered\nCompile with `TORCH_USE_CUDA_DSA` to enable"
            ),
            "device_failed",
            "The GPU or its driver failed: CUDA error: uncorrectable ECC error encountered.",
        ),
        (
            RuntimeError("CUDA error: all CUDA-capable devices are busy or unavailable\nCUDA kernel errors might be"),
            "device_failed",
            "The GPU or its driver failed: CUDA error: all CUDA-capable devices are busy or unavailable.",
        ),
        (
            torch.OutOfMemoryError(
                "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.18 GiB of which 1.06 "
                "GiB is free. Process 12 has 78.11 GiB memory in use. Of the allocated memory 0 bytes is allocated by"
            ),
            "out_of_memory",
            "Memory ran out on the device: CUDA out of memory. Tried to allocate 2.00 GiB.",
        ),
    ],
)
def test_what_the_device_is_the_cause_of_pauses(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, code: str, message: str
) -> None:
    def load(*_given: Any) -> Any:
        raise error

    monkeypatch.setattr("training.algorithms.sft.load_model", load)
    assert run_job(_config(data), tmp_path / "run") == 5
    last = _events(tmp_path / "run")[-1]
    assert isinstance(last, RunFinished) and last.status == "paused" and last.error is not None
    assert (last.error.code, last.error.message) == (code, message)


@pytest.mark.parametrize(
    "text", ["CUDA error: device-side assert triggered", "CUDA error: an illegal memory access was encountered", "no"]
)
def test_what_a_program_may_have_done_is_a_crash(text: str) -> None:
    assert running.device_fault(RuntimeError(text)) is None


def test_what_only_speaks_of_a_device_is_a_crash() -> None:
    assert running.device_fault(ValueError("CUDA error: uncorrectable ECC error encountered")) is None
