"""How a job of verl's ends before its last step: asked to, and because nothing is left to learn from."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from websockets.asyncio.server import ServerConnection

from tests.training.helpers import error, events, of_type, scripted_server
from tests.training.verl_backend.cpu_job import behave, cpu_job, run_by_verl
from tests.training.verl_backend.test_whole_loop import apart, by_trl, outcomes
from training.algorithms.job import Job
from training.main import EXIT_FAILED, EXIT_PAUSED, EXIT_STOPPED
from training.verl_backend.adapter import WEIGHTS
from training.verl_backend.folder import FOLDER_NAME, JobFolder
from training.verl_backend.learner import RAY_NOTE

pytestmark = [pytest.mark.verl, pytest.mark.timeout(1200)]


def names(run_dir: Path, kind: str) -> set[str]:
    return {event.rollout for event in of_type(run_dir, kind)}


def workers_of(run_dir: Path, name: str = "WorkerDict") -> list[psutil.Process]:
    """The processes of a run's actors of that name, by the folder of their Ray; without a name those that train."""
    place = json.loads((run_dir / FOLDER_NAME / RAY_NOTE).read_text())["folder"]
    found = []
    for process in psutil.process_iter(["name", "cmdline"]):
        with suppress(psutil.Error):
            if name in "".join(process.info["cmdline"] or []) and process.environ().get("RAY_TMPDIR") == place:
                found.append(process)
    return found


def test_a_run_continues_after_a_lost_worker_and_a_stop(trained_folder: Path, tmp_path: Path, no_health: None) -> None:
    """Attempt 1 loses a trainer's process in step 2, attempt 2 is asked to stop there, attempt 3 ends the run."""
    run_dir, killed = tmp_path / "run", list[int]()
    folders = {number: run_dir / str(number) for number in (1, 2, 3)}

    async def troubled(socket: ServerConnection, frame: dict[str, Any], turn: int) -> str:
        if frame["type"] == "reset" and frame["data"]["episode_id"].startswith("a1-s2-") and not killed:
            worker = workers_of(folders[1])[0]
            killed.append(worker.pid)
            worker.kill()
        if frame["type"] == "reset" and frame["data"]["episode_id"].startswith("a2-s2-"):
            JobFolder(folders[2] / FOLDER_NAME).ask_to_stop()
        return await behave(socket, frame, turn)

    with scripted_server(troubled) as url:
        groups = {"run": {"max_steps": 3, "save_every": 1}, "hardware": {"devices": 2}}
        job = cpu_job(run_dir, trained_folder, url, **groups)
        job.journal.close()
        assert attempt(job, folders[1]) == EXIT_FAILED and killed
        assert attempt(job, folders[2], folders[1]) == EXIT_STOPPED
        assert attempt(job, folders[3], folders[1], folders[2]) == 0
        alone = by_trl(job, tmp_path / "trl")
    assert of_type(folders[1], "run_finished") == [], "its death says nothing of the run: it may be tried again"
    said = [event.message for event in of_type(folders[1], "log") if event.level == "error"]
    assert len(said) == 1 and said[0].startswith("A process of the job was lost: ")
    resumed = [of_type(folders[number], "resumed")[0] for number in (2, 3)]
    assert [(event.source, event.step) for event in resumed] == [("1/checkpoint-1", 1), ("2/checkpoint-2", 2)]
    steps = {number: [event.step for event in of_type(folder, "metrics")] for number, folder in folders.items()}
    assert steps == {1: [1], 2: [2], 3: [3]}
    for number, step in ((1, 1), (2, 2), (3, 3)):
        ours = {name.partition("-")[2]: what for name, what in outcomes(events(folders[number]), step).items()}
        theirs = {name.partition("-")[2]: what for name, what in outcomes(alone, step).items()}
        rollouts = [name for name in theirs if name.startswith("s")]
        assert len(rollouts) == 8 and {name: ours[name] for name in rollouts} == {
            name: theirs[name] for name in rollouts
        }
    assert apart(folders[3] / "model", tmp_path / "trl" / "model", trained_folder) < 1e-3
    assert not any((folder / FOLDER_NAME / RAY_NOTE).exists() for folder in folders.values())


def test_a_process_that_is_suspended_ends_the_attempt(trained_folder: Path, tmp_path: Path, no_health: None) -> None:
    """A trainer's process is stopped, not killed: Ray does not notice, and the other one waits for it."""
    run_dir, stopped = tmp_path / "run", list[psutil.Process]()

    async def troubled(socket: ServerConnection, frame: dict[str, Any], turn: int) -> str:
        if frame["type"] == "reset" and frame["data"]["episode_id"].startswith("a1-s2-") and not stopped:
            stopped.append(workers_of(run_dir / "1")[0])
            stopped[0].suspend()
        return await behave(socket, frame, turn)

    with scripted_server(troubled) as url:
        groups = {"run": {"max_steps": 2, "save_every": 1}, "hardware": {"devices": 2}}
        job = cpu_job(run_dir, trained_folder, url, **groups)
        job.journal.close()
        assert attempt(job, run_dir / "1") == EXIT_FAILED
        assert attempt(job, run_dir / "2", run_dir / "1") == 0
    assert of_type(run_dir / "1", "run_finished") == [], "nothing is said of the run: it may be tried again"
    said = [(event.level, event.message) for event in of_type(run_dir / "1", "log") if "sign of life" in event.message]
    warned, lost = (text for _level, text in said)
    place = f"{stopped[0].pid} on "
    assert [level for level, _text in said] == ["warning", "error"]
    assert warned.startswith(f"Process {place}") and lost.startswith(f"A process of the job was lost: process {place}")
    psutil.wait_procs(stopped, 30)
    assert not stopped[0].is_running(), "it keeps its device"
    assert [(event.source, event.step) for event in of_type(run_dir / "2", "resumed")] == [("1/checkpoint-1", 1)]


def test_an_adapter_continues_where_it_was_stopped(trained_folder: Path, tmp_path: Path, no_health: None) -> None:
    """Attempt 1 is asked to stop in step 1, and leaves its adapter; attempt 2 ends the run as if there were one."""
    run_dir = tmp_path / "run"
    folders = {number: run_dir / str(number) for number in (1, 2)}

    async def stopped(socket: ServerConnection, frame: dict[str, Any], turn: int) -> str:
        if frame["type"] == "reset" and frame["data"]["episode_id"].startswith("a1-s1-"):
            JobFolder(folders[1] / FOLDER_NAME).ask_to_stop()
        return await behave(socket, frame, turn)

    with scripted_server(stopped) as url:
        groups = {"model": {"lora_rank": 4}, "optim": {"learning_rate": 1e-2}, "hardware": {"devices": 2}}
        # Five of the eight rollouts of step 1 fail at once: held for that, it would end at a stop without a checkpoint.
        job = cpu_job(run_dir, trained_folder, url, rollout={"failure_pause_share": 1.0}, **groups)
        job.journal.close()
        assert attempt(job, folders[1]) == EXIT_STOPPED
        assert attempt(job, folders[2], folders[1]) == 0
        by_trl(job, tmp_path / "trl")
    assert [(event.source, event.step) for event in of_type(folders[2], "resumed")] == [("1/checkpoint-1", 1)]
    assert (folders[1] / "checkpoint-1" / WEIGHTS).is_file() and not (folders[1] / "model").exists()
    (figures,) = of_type(folders[2], "metrics")
    alone = of_type(tmp_path / "trl", "metrics")[1]
    assert (figures.step, figures.values["reward"]) == (2, pytest.approx(alone.values["reward"], rel=1e-6))
    assert figures.values["grad_norm"] == pytest.approx(alone.values["grad_norm"], rel=1e-5)
    assert apart(folders[2] / "model", tmp_path / "trl" / "model", trained_folder) < 1e-3


def attempt(job: Job, folder: Path, *earlier: Path) -> int:
    """Run an attempt of the job after some others."""
    number = int(folder.name)
    return run_by_verl(job, folder, attempt=number, earlier=earlier, resume_from=[folder.parent] if earlier else [])


def test_steps_without_a_survivor_move_no_weights_and_pause_the_run(
    trained_folder: Path, tmp_path: Path, no_health: None
) -> None:
    run_dir = tmp_path / "run"

    async def broken(socket: ServerConnection, frame: dict[str, Any], turn: int) -> str:
        return await behave(socket, frame, turn) if frame["type"] == "reset" else error("EXECUTION_ERROR", "a fault")

    with scripted_server(broken) as url:
        job = cpu_job(run_dir, trained_folder, url, run={"max_steps": 5}, rollout={"failure_pause_steps": 2})
        assert run_by_verl(job) == EXIT_PAUSED
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
    assert "Step 1: no rollout of its update teaches anything, so the weights stay as they are." in said
