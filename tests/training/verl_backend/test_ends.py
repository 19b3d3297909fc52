"""How a job of verl's ends before its last step: asked to, and because nothing is left to learn from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.server import ServerConnection

from tests.training.helpers import error, events, of_type, scripted_server
from tests.training.verl_backend.conftest import RunInVerl
from tests.training.verl_backend.cpu_job import VARIABLES, behave, cpu_folder, cpu_job
from training.main import EXIT_PAUSED, EXIT_STOPPED
from training.verl_backend.folder import FOLDER_NAME, JobFolder

pytestmark = [pytest.mark.verl, pytest.mark.timeout(900)]


def names(run_dir: Path, kind: str) -> set[str]:
    return {event.rollout for event in of_type(run_dir, kind)}


def test_a_job_that_is_asked_to_stop_ends_after_its_step_with_a_checkpoint(
    trained_folder: Path, tmp_path: Path, run_in_verl: RunInVerl
) -> None:
    run_dir = tmp_path / "run"

    async def stopping(socket: ServerConnection, frame: dict[str, Any], turn: int) -> str:
        JobFolder(run_dir / FOLDER_NAME).ask_to_stop()
        return await behave(socket, frame, turn)

    with scripted_server(stopping) as url:
        job = cpu_job(run_dir, trained_folder, url, run={"max_steps": 5, "save_every": 0})
        folder = cpu_folder(job)
        job.journal.close()
        done = run_in_verl("-m", "training.verl_backend", str(folder.path), timeout_s=800, **VARIABLES)
    assert done.returncode == EXIT_STOPPED, (done.stdout + done.stderr)[-5000:]
    last = events(run_dir)[-1]
    assert (last.type, last.status, last.step, last.error) == ("run_finished", "stopped", 1, None)
    assert [event.step for event in of_type(run_dir, "metrics")] == [1]
    assert len(names(run_dir, "rollout_started")) == 8
    assert names(run_dir, "rollout_started") == names(run_dir, "rollout_finished"), "nothing of a second step began"
    said = [event.message for event in of_type(run_dir, "log")]
    assert "Step 1: verl's own checkpoint is checkpoints/global_step_1." in said
    assert (run_dir / "checkpoints" / "global_step_1" / "actor" / "huggingface" / "model.safetensors").is_file()
    assert of_type(run_dir, "checkpoint") == [] and not (run_dir / "model").exists(), "the last step was not reached"


def test_steps_without_a_survivor_move_no_weights_and_pause_the_run(
    trained_folder: Path, tmp_path: Path, run_in_verl: RunInVerl
) -> None:
    run_dir = tmp_path / "run"

    async def broken(socket: ServerConnection, frame: dict[str, Any], turn: int) -> str:
        return await behave(socket, frame, turn) if frame["type"] == "reset" else error("EXECUTION_ERROR", "a fault")

    with scripted_server(broken) as url:
        job = cpu_job(run_dir, trained_folder, url, run={"max_steps": 5}, rollout={"failure_pause_steps": 2})
        folder = cpu_folder(job)
        job.journal.close()
        done = run_in_verl("-m", "training.verl_backend", str(folder.path), timeout_s=800, **VARIABLES)
    assert done.returncode == EXIT_PAUSED, (done.stdout + done.stderr)[-5000:]
    last = events(run_dir)[-1]
    assert (last.type, last.status, last.step, last.error.code) == ("run_finished", "paused", 1, "too_many_failures")
    assert "in 2 steps in a row" in last.error.message and last.error.boundary == "environment"
    assert len(names(run_dir, "rollout_finished")) == 16 and names(run_dir, "rollout_started") == names(
        run_dir, "rollout_finished"
    )
    assert {event.error.code for event in of_type(run_dir, "rollout_finished")} == {"environment_fault"}
    (figures,) = of_type(run_dir, "metrics")
    assert figures.values["rollouts/excluded_share"] == 1.0 and "reward" not in figures.values
    assert (figures.values["loss"], figures.values["grad_norm"]) == (0.0, 0.0)
    assert "sampling/logprob_gap_max" not in figures.values, "nothing was sampled that could be checked"
    said = [event.message for event in of_type(run_dir, "log")]
    assert "Step 1: no group teaches anything, so the weights stay as they are." in said
