"""Several updates of one sampling by verl on a local Ray, held against the same job by TRL, update by update."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.server import ServerConnection

from tests.training.helpers import events, of_type, scripted_server
from tests.training.verl_backend.cpu_job import cpu_job, run_by_verl, steady
from tests.training.verl_backend.test_ends import attempt
from tests.training.verl_backend.test_whole_loop import apart, by_trl, outcomes, success, trained
from training.main import EXIT_STOPPED
from training.verl_backend.folder import FOLDER_NAME, JobFolder

pytestmark = [pytest.mark.verl, pytest.mark.timeout(900)]
SIZES = {"prompts_per_step": 4, "num_generations": 4}
EXACT = {"loss": 1e-6, "kl": 1e-6, "clip_ratio/region_mean": 1e-8, "clip_ratio/low_mean": 1e-8}
EXACT |= {"clip_ratio/high_mean": 1e-8, "learning_rate": 1e-12}
OF_A_SAMPLING = ("reward", "rollouts/excluded", "completions/mean_length", "timing/generation")


def same_updates(mine: list[Any], theirs: list[Any]) -> None:
    """Every update has the figures that TRL's has. Small differences grow: AdamW divides by what is small."""
    assert [event.step for event in mine] == [event.step for event in theirs]
    for verl, trl in zip(mine, theirs, strict=True):
        for name, reach in EXACT.items():
            assert verl.values[name] == pytest.approx(trl.values[name], abs=reach), (verl.step, name)
        assert verl.values["grad_norm"] > 1e-3
        assert verl.values["grad_norm"] == pytest.approx(trl.values["grad_norm"], rel=1e-4), verl.step
        assert verl.values["entropy"] == pytest.approx(trl.values["entropy"], abs=1e-5), verl.step
        for name in OF_A_SAMPLING:
            assert (name in verl.values) == (name in trl.values), (verl.step, name)
        assert verl.values["timing/step"] >= verl.values["timing/training"] > 0


def test_mini_batches_and_iterations(trained_folder: Path, tmp_path: Path, no_health: None) -> None:
    """Two samplings of four updates each, on one device."""
    run_dir = tmp_path / "run"
    optim = {"mini_batch_size": 8, "schedule": "cosine", "warmup_steps": 3, "learning_rate": 1e-3}
    with scripted_server(steady) as url:
        job = cpu_job(
            run_dir,
            trained_folder,
            url,
            rollout=SIZES,
            grpo={"beta": 0.2, "num_iterations": 2, "epsilon": 0.05},
            optim=optim,
            run={"max_steps": 8, "save_every": 3, "keep_last": 2},
            evaluate={"every": 3, "share": 0.2},
        )
        assert job.config.updates_per_step == 4
        assert run_by_verl(job) == 0
        alone = by_trl(job, tmp_path / "trl")
    found = events(run_dir)
    same_updates(trained(run_dir), trained(tmp_path / "trl"))
    assert [event.step for event in trained(run_dir)] == list(range(1, 9))
    assert max(event.values["clip_ratio/region_mean"] for event in trained(run_dir)) > 0, "the ratio has moved"
    assert len({event.values["learning_rate"] for event in trained(run_dir)}) == 8

    # Rollouts are named by the step of their first update, and played with the weights of the update before.
    for step in (1, 5):
        assert len(outcomes(found, step)) == 20 and outcomes(found, step) == outcomes(alone, step)
    assert {event.step for event in found if event.type == "group_scored"} == {1, 5}
    ended = [event for event in found if event.type == "rollout_finished" and "-s5-" in event.rollout]
    assert {event.policy_step for event in ended} - {None} == {4}

    # Saved and evaluated where all updates of a sampling are done, as on one device.
    for folder in (run_dir, tmp_path / "trl"):
        saved = [(event.path, event.step) for event in of_type(folder, "checkpoint")]
        assert saved == [("checkpoint-4", 4), ("checkpoint-8", 8), ("model", 8)] or saved == [
            ("checkpoint-4", 4),
            ("model", 8),
            ("checkpoint-8", 8),
        ]
        assert [event.step for event in of_type(folder, "held_out_evaluated")] == [0, 4, 8]
    held = [
        [success(event) for event in of_type(folder, "held_out_evaluated")] for folder in (run_dir, tmp_path / "trl")
    ]
    assert held[0] == held[1]
    share = apart(run_dir / "model", tmp_path / "trl" / "model", trained_folder)
    print(f"The models are {share:.2g} of their way apart.")
    assert share < 1e-3


def test_a_mean_over_rollouts_on_two_devices_in_two_attempts(
    trained_folder: Path, tmp_path: Path, no_health: None
) -> None:
    """Excluded rollouts count in no mean, and the entropy is that of each update. A stop in the first sampling leaves
    a checkpoint of all its updates, from which steps count on."""
    folders = [tmp_path / "run" / str(number) for number in (1, 2)]

    async def stopping(socket: ServerConnection, frame: dict[str, Any], turn: int) -> str:
        if frame["type"] == "reset" and frame["data"]["episode_id"].startswith("a1-s1-"):
            JobFolder(folders[0] / FOLDER_NAME).ask_to_stop()
        return await steady(socket, frame, turn)

    with scripted_server(stopping) as url:
        job = cpu_job(
            tmp_path / "run",
            trained_folder,
            url,
            rollout=SIZES,
            grpo={"beta": 0.2, "entropy_coef": 0.05, "loss_type": "grpo"},
            optim={
                "mini_batch_size": 8,
                "micro_batch_size": 0,
                "schedule": "constant_with_warmup",
                "warmup_share": 0.5,
                "learning_rate": 3e-3,
            },
            run={"max_steps": 4, "save_every": 1},
            hardware={"devices": 2},
        )
        job.journal.close()
        assert attempt(job, folders[0]) == EXIT_STOPPED
        assert attempt(job, folders[1], folders[0]) == 0
        alone = by_trl(job, tmp_path / "trl")
    (resumed,) = of_type(folders[1], "resumed")
    assert (resumed.source, resumed.step) == ("1/checkpoint-2", 2)
    assert (folders[0] / "checkpoint-2" / "verl" / "global_step_1").is_dir(), "verl counts samplings"
    mine = [event for folder in folders for event in trained(folder)]
    assert [len(trained(folder)) for folder in folders] == [2, 2]
    same_updates(mine, trained(tmp_path / "trl"))
    assert any(event.type == "rollout_finished" and event.reward is None for event in alone)
    share = apart(folders[1] / "model", tmp_path / "trl" / "model", trained_folder)
    print(f"The models are {share:.2g} of their way apart.")
    assert share < 1e-3
