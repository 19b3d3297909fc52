"""verl's whole loop for two steps on a local Ray, with our player, held against the same run by TRL."""

from __future__ import annotations

import json
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.training.helpers import events, of_type, scripted_server
from tests.training.verl_backend.cpu_job import behave, cpu_job, run_by_verl
from training.algorithms.checkpoints import ADAPTER_CONFIG
from training.algorithms.job import Job
from training.config.run import HardwareConfig
from training.journal import Journal
from training.model_check import check_model_folder
from training.verl_backend.adapter import WEIGHTS

pytestmark = [pytest.mark.verl, pytest.mark.timeout(900)]
PROMPTS, SIZE, STEPS = 4, 4, 2


def sized(devices: int) -> dict[str, Any]:
    """The groups of options of two steps on so many devices."""
    return {
        "rollout": {"prompts_per_step": PROMPTS, "num_generations": SIZE},
        "run": {"max_steps": STEPS, "save_every": 1, "keep_last": 1},
        "hardware": {"devices": devices},
        "evaluate": {"every": 1, "share": 0.2},
    }


def by_trl(job: Job, run_dir: Path) -> list[Any]:
    """The events of the same job on one device."""
    from training.algorithms.grpo import run_grpo

    config = job.config.model_copy(update={"hardware": HardwareConfig(backend="trl")})
    run_grpo(Job(config, run_dir, Journal(run_dir), threading.Event()))
    return events(run_dir)


def outcomes(found: list[Any], step: int) -> dict[str, tuple[Any, ...]]:
    """What became of the rollouts of a step, and of its groups."""
    ended = {
        event.rollout: (event.status, event.reward, event.turns, event.tokens, event.error and event.error.code)
        for event in found
        if event.type == "rollout_finished" and f"-s{step}-" in event.rollout
    }
    groups = {
        f"group {event.group}": (event.rollouts, event.advantages, event.zero_variance)
        for event in found
        if event.type == "group_scored" and event.step == step
    }
    return ended | groups


def trained(run_dir: Path) -> list[Any]:
    """The figures of the steps, without those of held-out tasks."""
    return [event for event in of_type(run_dir, "metrics") if "loss" in event.values]


def success(event: Any) -> tuple[float | None, ...]:
    """What held-out tasks came to: success, reward, turns and tokens."""
    return tuple(event.report["figures"][name]["value"] for name in ("success", "reward", "turns", "tokens"))


def apart(mine: Path, theirs: Path, base: Path) -> float:
    """How far two trained models are apart, as a share of how far the second has moved from their base."""
    from transformers import AutoModelForCausalLM

    ours, other, began = (
        dict(AutoModelForCausalLM.from_pretrained(folder).named_parameters()) for folder in (mine, theirs, base)
    )
    assert set(ours) == set(other)

    def norm(left: dict[str, Any], right: dict[str, Any]) -> float:
        return float(sum(float((left[name] - right[name]).detach().double().square().sum()) for name in right) ** 0.5)

    return norm(ours, other) / norm(other, began)


def same_adapter(run_dir: Path, theirs: Path) -> None:
    """The adapters of two runs, on the way and at the end: the same files and facts, and weights that are as close."""
    from safetensors.torch import load_file

    ends = {event.path: event.adapter for event in of_type(run_dir, "checkpoint")}
    assert ends["model"] == "adapter"
    for name in ("checkpoint-2", "adapter"):
        mine, wanted = ({path.name for path in (place / name).iterdir()} for place in (run_dir, theirs))
        by_trainer = {"optimizer.pt", "scheduler.pt", "rng_state.pth", "README.md"}
        assert mine - {"verl"} == wanted - by_trainer, name
        facts = [json.loads((place / name / ADAPTER_CONFIG).read_text()) for place in (run_dir, theirs)]
        targets = [sorted(found.pop("target_modules")) for found in facts]
        assert targets[0] and targets[0] == targets[1] and facts[0] == facts[1]
        tensors = [load_file(place / name / WEIGHTS) for place in (run_dir, theirs)]
        assert set(tensors[0]) == set(tensors[1])
        for tensor, other in zip(tensors[0].values(), (tensors[1][each] for each in tensors[0]), strict=True):
            assert (tensor - other).norm() < 1e-3 * other.norm()


def untied(base: Path, folder: Path) -> Path:
    """The model of ``base`` with an output layer of its own: verl then loads it on the first device alone."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(base)
    model.config.tie_word_embeddings = False
    model.lm_head.weight = type(model.lm_head.weight)(model.lm_head.weight.detach().clone())
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(base).save_pretrained(folder)
    return folder


PULL = {"grpo": {"beta": 0.2}}
BONUS = {"grpo": {"beta": 0.2, "entropy_coef": 0.05}, "optim": {"micro_batch_size": 0}}
LORA = {"model": {"lora_rank": 4}, "optim": {"learning_rate": 1e-2}}
SCALED = {"model": {"lora_rank": 4, "lora_alpha": 6, "lora_rslora": True, "lora_targets": "q_proj,down_proj"}}


@pytest.mark.parametrize(
    ("devices", "options"),
    [(1, {}), (2, BONUS), (1, LORA), (2, LORA | SCALED | PULL)],
    ids=["one device", "two devices, KL, entropy", "one device, LoRA", "two devices, rsLoRA, KL"],
)
def test_two_steps(
    devices: int, options: dict[str, Any], trained_folder: Path, tmp_path: Path, no_health: None
) -> None:
    run_dir, base = tmp_path / "run", trained_folder
    beta, lora = options.get("grpo", {}).get("beta", 0.0), "model" in options
    if lora and devices > 1:
        base = untied(trained_folder, tmp_path / "untied")
    with scripted_server(behave) as url:
        job = cpu_job(run_dir, base, url, **options, **sized(devices))
        assert run_by_verl(job) == 0
        alone = by_trl(job, tmp_path / "trl")
    found, folders = events(run_dir), (run_dir, tmp_path / "trl")

    # The journal is whole: what began has ended, once, under the names of a run on one device.
    names = {f"a1-s{step}-g{group}-i{index}" for step in (1, 2) for group in range(PROMPTS) for index in range(SIZE)}
    kinds = Counter(event.type for event in found)
    begun = [event.rollout for event in of_type(run_dir, "rollout_started") if not event.held_out]
    assert len(begun) == len(names) == 32 and set(begun) == names
    ended = {event.rollout for event in of_type(run_dir, "rollout_finished")}
    assert names <= ended and kinds["rollout_finished"] == kinds["rollout_started"]
    assert [event.n for event in found] == list(range(1, len(found) + 1))
    scored = [(event.step, event.group) for event in found if event.type == "group_scored"]
    assert sorted(scored) == [(step, group) for step in (1, 2) for group in range(PROMPTS)]
    steps = [event.step for event in trained(run_dir)]
    assert steps == [1, 2] and kinds["run_started"] == 1 and found[-1].type == "run_finished"
    assert (found[-1].status, found[-1].step, found[-1].error) == ("succeeded", 2, None)
    saved = [(event.path, event.step, event.final) for event in of_type(run_dir, "checkpoint")]
    assert sorted(saved) == [("checkpoint-1", 1, False), ("checkpoint-2", 2, False), ("model", 2, True)]
    check_model_folder(run_dir / "model")
    if lora:
        same_adapter(run_dir, tmp_path / "trl")
    else:
        check_model_folder(run_dir / "checkpoint-2")
    share = apart(run_dir / "model", tmp_path / "trl" / "model", base)
    print(f"The models are {share:.2g} of their way apart.")
    assert share < 1e-3
    of_weights = {
        event.policy_step for event in found if event.type == "rollout_finished" and "-s2-" in event.rollout
    } - {None}
    assert of_weights == {1}, "each step is played with the weights of the one before"

    # Both steps are those that TRL's trainer plays and learns from: the second shows that the update was the same.
    excluded = [event for event in found if event.type == "rollout_finished" and event.reward is None]
    assert {event.error.code for event in excluded} == {"environment_fault"}
    partly = [
        event for event in found if event.type == "group_scored" and None in event.advantages and any(event.advantages)
    ]
    assert partly[0].step == 1, "its baseline would be another one if excluded rollouts counted"
    figures = zip(*(trained(folder) for folder in (run_dir, tmp_path / "trl")), strict=True)
    for step, (verl, trl) in enumerate(figures, start=1):
        assert outcomes(found, step) == outcomes(alone, step)
        for name in ("reward", "reward_std", "rollouts/excluded", "rollouts/turns_mean", "completions/mean_length"):
            assert verl.values[name] == pytest.approx(trl.values[name], rel=1e-6), (step, name)
        assert verl.values["loss"] == pytest.approx(trl.values["loss"], abs=1e-6) and verl.values["grad_norm"] > 1e-3
        assert verl.values["grad_norm"] == pytest.approx(trl.values["grad_norm"], rel=1e-5)
        assert verl.values.get("kl") == pytest.approx(trl.values["kl"], abs=1e-6) if beta else "kl" not in verl.values
        assert verl.values["entropy"] == pytest.approx(trl.values["entropy"], abs=1e-5)

    # Each device says what it did: the same, for each waits for the slowest, and what TRL's does.
    lanes = [(event.step, event.device) for event in of_type(run_dir, "device_step")]
    names_of_devices = ["cpu"] if devices == 1 else ["cpu:0", "cpu:1"]
    assert lanes == [(step, name) for step in (1, 2) for name in names_of_devices]
    parts = {"generation", "environment", "scoring", "handover", "training", "evaluating", "saving"}
    for event in of_type(run_dir, "device_step"):
        assert set(event.phases) == parts, event
        assert sum(event.phases.values()) == pytest.approx(event.seconds, abs=0.01) and event.busy is None

    # The samplers have the trainer's weights, before and after the update.
    gaps = [event.values["sampling/logprob_gap_max"] for event in trained(run_dir)]
    assert len(gaps) == STEPS and max(gaps) < 1e-4

    # Held-out tasks are the same ones, played with the same weights.
    (mine,), (theirs,) = (of_type(folder, "tasks_held_out") for folder in folders)
    assert mine.rows == theirs.rows and len(mine.rows) > 1
    held = [{event.step: success(event) for event in of_type(folder, "held_out_evaluated")} for folder in folders]
    assert list(held[0]) == [0, 1, 2] and held[0] == held[1] and held[0][2] is not None
