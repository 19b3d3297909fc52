"""Samplers on devices of their own, held against the same job on one device by TRL."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.server import ServerConnection

from tests.training.helpers import events, of_type, scripted_server
from tests.training.verl_backend.conftest import RunInVerl
from tests.training.verl_backend.cpu_job import behave, cpu_job, run_by_verl
from tests.training.verl_backend.test_ends import attempt, workers_of
from tests.training.verl_backend.test_whole_loop import (
    BONUS,
    LORA,
    STEPS,
    apart,
    by_trl,
    outcomes,
    same_adapter,
    sized,
    success,
    trained,
)
from training.main import EXIT_FAILED
from training.verl_backend.folder import BEATS_NAME, FOLDER_NAME

pytestmark = [pytest.mark.verl, pytest.mark.timeout(1500)]
FACTS = [
    "devices_are_taken_together",
    "a_wait_names_all_devices",
    "places_of_samplers",
    "replicas_get_their_devices",
    "weights_are_handed_over_whole",
    "parts_of_a_handover",
    "the_trainer_with_samplers_apart",
    "devices_that_only_train_wait",
]


def test_facts_by_value(run_in_verl: RunInVerl) -> None:
    variables = {"VERL_PLATFORM": "cpu", "VERL_USE_EXTERNAL_MODULES": "training.verl_backend.on_cpu"}
    done = run_in_verl("-m", "tests.training.verl_backend.in_apart", **variables)
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    held = [line.removeprefix("HELD ") for line in done.stdout.splitlines() if line.startswith("HELD ")]
    assert held == FACTS


@pytest.mark.parametrize(
    ("devices", "samplers", "options"),
    [(1, 1, {}), (1, 2, BONUS), (2, 1, LORA)],
    ids=["one and one", "one and two, KL, entropy", "two and one, LoRA"],
)
def test_two_steps(
    devices: int, samplers: int, options: dict[str, Any], trained_folder: Path, tmp_path: Path, no_health: None
) -> None:
    run_dir, base = tmp_path / "run", trained_folder
    with scripted_server(behave) as url:
        chosen = sized(devices)
        chosen["hardware"] |= {"sampler_devices": samplers}
        job = cpu_job(run_dir, base, url, **options, **chosen)
        assert run_by_verl(job) == 0
        alone = by_trl(job, tmp_path / "trl")
    found, folders = events(run_dir), (run_dir, tmp_path / "trl")
    assert (found[-1].status, found[-1].step, found[-1].error) == ("succeeded", 2, None)

    # Rollouts, advantages, loss and gradient are those of one device: the second step shows that the samplers have the
    # weights of the first.
    figures = zip(*(trained(folder) for folder in folders), strict=True)
    for step, (verl, trl) in enumerate(figures, start=1):
        assert outcomes(found, step) == outcomes(alone, step)
        assert verl.values["reward"] == pytest.approx(trl.values["reward"], rel=1e-6), step
        assert verl.values["loss"] == pytest.approx(trl.values["loss"], abs=1e-6) and verl.values["grad_norm"] > 1e-3
        assert verl.values["grad_norm"] == pytest.approx(trl.values["grad_norm"], rel=1e-5)
        if "grpo" in options:
            assert verl.values["kl"] == pytest.approx(trl.values["kl"], abs=1e-6)
    if "model" in options:
        same_adapter(run_dir, tmp_path / "trl")
    share = apart(run_dir / "model", tmp_path / "trl" / "model", base)
    print(f"The models are {share:.2g} of their way apart.")
    assert share < 1e-3
    held = [{event.step: success(event) for event in of_type(folder, "held_out_evaluated")} for folder in folders]
    assert list(held[0]) == [0, 1, 2] and held[0] == held[1]
    gaps = [event.values["sampling/logprob_gap_max"] for event in trained(run_dir)]
    print(f"Gaps of the log-probabilities: {gaps}.")
    assert len(gaps) == STEPS and max(gaps) < 1e-4

    # The lanes are of the devices that train, which wait for the samplers. These give signs of life, too.
    names, lanes = ["cpu"] if devices == 1 else ["cpu:0", "cpu:1"], of_type(run_dir, "device_step")
    assert [(event.step, event.device) for event in lanes] == [(step, name) for step in (1, 2) for name in names]
    for event in lanes:
        assert set(event.phases) == {"waiting", "handover", "training", "evaluating", "saving"}
    beating = list((run_dir / FOLDER_NAME / BEATS_NAME).iterdir())
    loops = 4
    assert len(beating) == devices + 2 * samplers + loops


def test_a_run_continues_after_a_lost_sampler(trained_folder: Path, tmp_path: Path, no_health: None) -> None:
    """It dies in step 2 of attempt 1; attempt 2 trains that step from the checkpoint, as if there had been one."""
    run_dir, killed = tmp_path / "run", list[int]()

    async def troubled(socket: ServerConnection, frame: dict[str, Any], turn: int) -> str:
        if frame["type"] == "reset" and frame["data"]["episode_id"].startswith("a1-s2-") and not killed:
            (sampler,) = workers_of(run_dir / "1", "ray::Server")
            killed.append(sampler.pid)
            sampler.kill()
        return await behave(socket, frame, turn)

    with scripted_server(troubled) as url:
        groups = {"run": {"max_steps": 2, "save_every": 1}, "hardware": {"sampler_devices": 1}}
        job = cpu_job(run_dir, trained_folder, url, **groups)
        job.journal.close()
        assert attempt(job, run_dir / "1") == EXIT_FAILED and killed
        assert attempt(job, run_dir / "2", run_dir / "1") == 0
        by_trl(job, tmp_path / "trl")
    assert of_type(run_dir / "1", "run_finished") == [], "its death says nothing of the run: it may be tried again"
    said = [event.message for event in of_type(run_dir / "1", "log") if event.level == "error"]
    print(said)
    assert len(said) == 1 and said[0].startswith("A process of the job was lost: ")
    assert [(event.source, event.step) for event in of_type(run_dir / "2", "resumed")] == [("1/checkpoint-1", 1)]
    assert apart(run_dir / "2" / "model", tmp_path / "trl" / "model", trained_folder) < 1e-3
