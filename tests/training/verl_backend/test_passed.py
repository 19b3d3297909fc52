"""verl's own options in a real job: it takes memory and time in another way, and learns what TRL's trainer learns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.training.helpers import events, of_type, scripted_server
from tests.training.verl_backend.cpu_job import behave, cpu_job, run_by_verl
from tests.training.verl_backend.test_whole_loop import apart, by_trl, outcomes, trained
from training.config.passed import FSDP, LOG_PROB_LIMITS

pytestmark = [pytest.mark.verl, pytest.mark.timeout(900)]
LINES = [
    f"{FSDP}.param_offload=true",
    f"{FSDP}.optimizer_offload=true",
    f"{FSDP}.reshard_after_forward=false",
    f"{FSDP}.forward_prefetch=true",
    f"{LOG_PROB_LIMITS[0]}=400",
]
"""A micro batch of the passes without gradients has few rollouts, where all are in one without the last line."""


def test_two_steps_are_those_of_a_job_without_them(trained_folder: Path, tmp_path: Path, no_health: None) -> None:
    """``test_whole_loop.py`` holds a job without them against the same steps of TRL's."""
    sized: dict[str, Any] = {
        "rollout": {"prompts_per_step": 2, "num_generations": 4},
        "run": {"max_steps": 2},
        "optim": {"micro_batch_size": 0},
        "hardware": {"verl_options": LINES},
    }
    run_dir = tmp_path / "run"
    with scripted_server(behave) as url:
        job = cpu_job(run_dir, trained_folder, url, **sized)
        assert run_by_verl(job) == 0
        alone = by_trl(job, tmp_path / "trl")
    found = events(run_dir)
    settings = yaml.safe_load((run_dir / "verl" / "settings.yaml").read_text())["actor_rollout_ref"]
    assert settings["actor"]["fsdp_config"]["optimizer_offload"] is True
    assert settings["rollout"]["log_prob_max_token_len_per_gpu"] == 400
    said = [event.message for event in of_type(run_dir, "log") if "Passed through to verl" in event.message]
    assert len(said) == 1 and all(line in said[0] for line in LINES)

    figures = list(zip(*(trained(folder) for folder in (run_dir, tmp_path / "trl")), strict=True))
    assert len(figures) == 2
    for step, (verl, trl) in enumerate(figures, start=1):
        assert outcomes(found, step) == outcomes(alone, step)
        assert sum("-s" in name for name in outcomes(found, step)) == 8
        assert verl.values["reward"] == pytest.approx(trl.values["reward"], rel=1e-6)
        assert verl.values["loss"] == pytest.approx(trl.values["loss"], abs=1e-6)
        assert verl.values["grad_norm"] == pytest.approx(trl.values["grad_norm"], rel=1e-5)
        assert verl.values["entropy"] == pytest.approx(trl.values["entropy"], abs=1e-5)
    assert figures[0][0].values["grad_norm"] > 1e-3, "in the second step the rewards of each group are equal"
    share = apart(run_dir / "model", tmp_path / "trl" / "model", trained_folder)
    print(f"The models are {share:.2g} of their way apart.")
    assert share < 1e-3
