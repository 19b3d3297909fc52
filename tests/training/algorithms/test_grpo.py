"""Real GRPO steps of TRL on a tiny model with our rollouts: what is learned from, what is not, and what is reported."""

from __future__ import annotations

import functools
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.training.algorithms.conftest import MakeJob
from tests.training.helpers import echo_behaviour, error, of_type, scripted_server
from training.algorithms.base import JournalCallback
from training.algorithms.grpo import grpo_arguments, run_grpo
from training.algorithms.job import row_order
from training.algorithms.rollouts import PARTS_FIELD, trl_batch
from training.config import JobConfig
from training.errors import ConfigError, EnvironmentUnreachable, RewardFault
from training.policy.adapter import lora_config
from training.rewards.base import Episode, Score
from training.rewards.combining import GroupStatistics, terms_of, total_of
from training.rollout.trajectory import Rollout, StepRollouts, Trajectory

COMPONENTS = [{"name": "tool_call_correctness", "weight": 0.25}, {"name": "task_success", "weight": 0.75}]
NAMES = {
    "loss",
    "reward",
    "reward_std",
    "rewards/task_success/mean",
    "rewards/tool_call_correctness/mean",
    "entropy",
    "grad_norm",
    "completions/mean_length",
    "learning_rate",
    "frac_reward_zero_std",
    "step_time",
    "clip_ratio/region_mean",
    "rollouts/excluded",
    "rollouts/excluded_share",
    "rollouts/truncated_share",
    "rollouts/turns_mean",
    "groups/zero_variance_share",
    "env/latency_p50",
    "env/latency_p95",
    "env/errors",
    "rollouts/task_success",
    "timing/generation",
    "timing/environment",
    "timing/scoring",
    "timing/training",
    "timing/step",
}


def by_length(episode: Episode) -> Score:
    """A dense reward, so that every group has variance: the share of letters among what the model wrote."""
    text = "".join(message.content for message in episode.policy_messages)
    value = sum(letter.isalpha() for letter in text) / (len(text) + 1)
    return Score(parts={"tool_call_correctness": value, "task_success": value}, total=value)


def parameters_of(folder: Path) -> dict[str, torch.Tensor]:
    from safetensors.torch import load_file

    return load_file(folder / "model.safetensors")


@pytest.mark.usefixtures("no_health")
def test_two_steps_move_every_parameter_and_report_every_metric(make_job: MakeJob, starter_folder: Path) -> None:
    with scripted_server() as url:
        job = make_job(environment={"url": url}, rewards={"components": COMPONENTS})
        run_grpo(job, scorer=by_length)
    before, after = parameters_of(starter_folder), parameters_of(job.run_dir / "model")
    assert before.keys() == after.keys()
    assert [name for name in before if torch.equal(before[name], after[name])] == []
    steps = of_type(job.run_dir, "metrics")
    assert [event.step for event in steps] == [1, 2]
    for event in steps:
        assert set(event.values) >= NAMES - {"rollouts/task_success", "rollouts/truncated_share"}
    assert [e.phase for e in of_type(job.run_dir, "phase")] == [
        "preparing",
        *["generating", "scoring", "training"] * 2,
        "saving",  # the last step as a checkpoint, then the model
        "saving",
    ]
    started = of_type(job.run_dir, "run_started")[0]
    assert (started.kind, started.total_steps, started.rows) == ("grpo", 2, 24) and started.versions["trl"]
    checkpoint = of_type(job.run_dir, "checkpoint")[-1]
    assert checkpoint.final and checkpoint.path == "model" and checkpoint.bytes > 1_000_000


@pytest.mark.usefixtures("no_health")
def test_journalled_advantages_are_the_ones_trl_trained_with(
    make_job: MakeJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some rollouts fail: they get advantage 0 in TRL, ``None`` in the journal, and leave the others' baseline."""
    from trl import GRPOTrainer

    seen: list[torch.Tensor] = []
    original = GRPOTrainer._generate_and_score_completions

    def spy(self: Any, inputs: Any) -> Any:
        output = original(self, inputs)
        seen.append(output["advantages"].clone())
        return output

    monkeypatch.setattr(GRPOTrainer, "_generate_and_score_completions", spy)
    counter = iter(range(10_000))

    def sometimes(episode: Episode) -> Score:
        if next(counter) % 3 == 0:
            raise RewardFault("no")
        return by_length(episode)

    with scripted_server() as url:
        job = make_job(environment={"url": url}, rewards={"components": COMPONENTS})
        run_grpo(job, scorer=sometimes)
    for step, advantages in enumerate(seen, start=1):
        groups = sorted((g for g in of_type(job.run_dir, "group_scored") if g.step == step), key=lambda g: g.group)
        ours = [advantage for group in groups for advantage in group.advantages]
        assert None in ours
        assert advantages.tolist() == pytest.approx([a or 0.0 for a in ours], abs=2e-3)
    ends = of_type(job.run_dir, "rollout_finished")
    assert all((e.status == "excluded") == (e.reward is None) == (e.error is not None) for e in ends)
    first = of_type(job.run_dir, "metrics")[0].values
    kept = [e.reward for e in ends[:8] if e.reward is not None]
    assert first["reward"] == pytest.approx(sum(kept) / len(kept), abs=1e-5)


SHAPED = [
    {"name": "repetition", "weight": 1, "params": {"scope": "all", "ngram": 1}, "clip": [0.2, 0.9], "scale": [0, 0.9]},
    {
        "name": "length_budget",
        "weight": 0.5,
        "gate": {"component": "repetition", "above": 0.7},
        "params": {"scope": "all", "min_chars": 50, "max_chars": 60, "zero_chars": 99},
        "schedule": {"end": 4, "last": 0},
    },
    {"name": "language", "weight": 2, "categories": ["elsewhere"]},
]


@pytest.mark.parametrize("aggregation", ["sum_then_normalize", "normalize_then_sum"])
@pytest.mark.usefixtures("no_health")
def test_shaped_rewards_are_trained_as_they_are_journalled(
    make_job: MakeJob, monkeypatch: pytest.MonkeyPatch, aggregation: str
) -> None:
    """Clip, scale, gate, schedule and categories reach TRL; the journal keeps raw values."""
    from trl import GRPOTrainer

    seen: list[torch.Tensor] = []
    original = GRPOTrainer._generate_and_score_completions

    def spy(self: Any, inputs: Any) -> Any:
        output = original(self, inputs)
        seen.append(output["advantages"].clone())
        return output

    monkeypatch.setattr(GRPOTrainer, "_generate_and_score_completions", spy)
    with scripted_server() as url:
        job = make_job(environment={"url": url}, rewards={"components": SHAPED, "aggregation": aggregation})
        run_grpo(job)
    for step, advantages in enumerate(seen, start=1):
        groups = sorted((g for g in of_type(job.run_dir, "group_scored") if g.step == step), key=lambda g: g.group)
        ours = [advantage for group in groups for advantage in group.advantages]
        assert advantages.tolist() == pytest.approx(ours, abs=2e-3) and any(abs(a) > 0.1 for a in ours)
    ends = of_type(job.run_dir, "rollout_finished")
    components = job.config.rewards.components
    for end in ends:
        assert set(end.parts) == {"repetition", "length_budget"}
        step = int(end.rollout.split("-s")[1].split("-")[0])
        assert end.reward == pytest.approx(total_of(terms_of(end.parts, components, step), components))


@pytest.mark.usefixtures("no_health")
@pytest.mark.parametrize("broken", ["environment", "reward"])
def test_a_step_without_a_single_rollout_leaves_the_weights_alone(
    make_job: MakeJob, broken: str, starter_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("training.rollout.holding.BAD_STEP_S", 0.0)  # the wait has its own test

    async def refuse(socket: Any, frame: dict[str, Any], turn: int) -> str:
        return error("EXECUTION_ERROR") if frame["type"] == "step" else await echo_behaviour(socket, frame, turn)

    def raising(episode: Episode) -> Score:
        raise RewardFault("no")

    with scripted_server(refuse if broken == "environment" else echo_behaviour) as url:
        job = make_job(environment={"url": url}, rewards={"components": COMPONENTS})
        run_grpo(job, scorer=by_length if broken == "environment" else raising)
    for event in of_type(job.run_dir, "metrics"):
        assert event.values["rollouts/excluded_share"] == 1.0
        assert "reward" not in event.values or math.isnan(event.values["reward"])
        assert event.values["loss"] == 0.0
    before, after = parameters_of(starter_folder), parameters_of(job.run_dir / "model")
    assert all(torch.equal(before[name], after[name]) for name in before)


@pytest.mark.usefixtures("no_health")
def test_only_model_tokens_influence_the_loss(make_job: MakeJob, monkeypatch: pytest.MonkeyPatch) -> None:
    """The gradient of the loss with respect to each position's log-probability is zero wherever the mask is."""
    from training.algorithms.kept_rows import GRPOTrainer, KeptRowsTrainer

    original = KeptRowsTrainer._get_per_token_logps_and_entropies
    grads: list[torch.Tensor] = []
    masks: list[torch.Tensor] = []

    def spy(self: Any, *args: Any, **kwargs: Any) -> Any:
        logps, entropies, aux = original(self, *args, **kwargs)
        if logps.requires_grad:
            logps.register_hook(lambda grad: grads.append(grad.clone()))
        return logps, entropies, aux

    loss = GRPOTrainer._compute_loss

    def remember(self: Any, model: Any, inputs: Any) -> Any:
        masks.append((inputs["completion_mask"] * inputs["tool_mask"]).clone())
        inputs["advantages"] = torch.ones_like(inputs["advantages"])
        return loss(self, model, inputs)

    monkeypatch.setattr(KeptRowsTrainer, "_get_per_token_logps_and_entropies", spy)
    monkeypatch.setattr(GRPOTrainer, "_compute_loss", remember)
    with scripted_server() as url:
        run_grpo(make_job(environment={"url": url}, rewards={"components": COMPONENTS}), scorer=by_length)
    assert len(grads) == len(masks) == 2
    for grad, mask in zip(grads, masks, strict=True):
        assert torch.all((grad != 0) == (mask == 1))


@pytest.mark.usefixtures("no_health")
def test_micro_batches_give_the_same_first_loss_and_gradient(make_job: MakeJob) -> None:
    figures = []
    with scripted_server() as url:
        for micro in (0, 2):
            job = make_job(
                f"micro{micro}",
                environment={"url": url},
                rewards={"components": COMPONENTS},
                optim={"micro_batch_size": micro},
                run={"max_steps": 1},
            )
            run_grpo(job, scorer=by_length)
            figures.append(of_type(job.run_dir, "metrics")[0].values)
    for name in ("reward", "completions/mean_length"):
        assert figures[0][name] == pytest.approx(figures[1][name], rel=1e-5)
    assert figures[0]["grad_norm"] == pytest.approx(figures[1]["grad_norm"], rel=1e-3)


@pytest.mark.usefixtures("no_health")
def test_options_reach_the_trainer_and_iterations_reuse_a_batch(make_job: MakeJob) -> None:
    with scripted_server() as url:
        job = make_job(
            environment={"url": url},
            rewards={"components": COMPONENTS},
            grpo={"num_iterations": 2, "beta": 0.04, "loss_type": "bnpo", "scale_rewards": "batch"},
            run={"max_steps": 3},
        )
        run_grpo(job, scorer=by_length)
    assert {e.step for e in of_type(job.run_dir, "rollout_started")} == {1, 3}
    metrics = of_type(job.run_dir, "metrics")
    assert [e.step for e in metrics] == [1, 2, 3] and all("kl" in e.values for e in metrics)
    assert "rollouts/excluded" not in metrics[1].values  # step 2 generated nothing, so it has no such figure


@pytest.mark.usefixtures("no_health")
def test_lora_trains_an_adapter_and_leaves_a_whole_model(make_job: MakeJob, starter_folder: Path) -> None:
    with scripted_server() as url:
        job = make_job(
            environment={"url": url},
            rewards={"components": COMPONENTS},
            model={"source": str(starter_folder), "lora_rank": 4},
        )
        run_grpo(job, scorer=by_length)
    assert parameters_of(job.run_dir / "model").keys() == parameters_of(starter_folder).keys()


def test_an_environment_that_is_down_is_found_before_anything_is_loaded(make_job: MakeJob) -> None:
    with pytest.raises(EnvironmentUnreachable):
        run_grpo(make_job(environment={"url": "http://127.0.0.1:9", "patience_s": 0}))


def test_an_unknown_reward_is_a_config_error(make_job: MakeJob) -> None:
    with pytest.raises(ConfigError, match="no_such"):
        run_grpo(make_job(rewards={"components": [{"name": "no_such", "weight": 1}]}))


def test_excluded_rows_are_empty_for_trl_and_truncated_ones_masked_when_asked() -> None:
    def rollout(status: str, parts: dict[str, float] | None) -> Rollout:
        trajectory = Trajectory([1], [5, 6, 2], [1, 0, 1], [-1.0, 0.0, -1.0], status=status)  # type: ignore[arg-type]
        return Rollout("r", 0, trajectory, parts)

    rollouts = [rollout("completed", {"a": 1.0}), rollout("excluded", None), rollout("truncated", {"a": 0.0})]
    step = StepRollouts(rollouts, [GroupStatistics([], None, None, True)])
    batch = trl_batch(step, 2, mask_truncated=True)
    assert batch["env_mask"] == [[1, 0, 1], [0], [0, 0, 0]]
    assert batch["completion_ids"] == [[5, 6, 2], [2], [5, 6, 2]] and batch["prompt_ids"] == [[1], [2], [1]]
    assert batch[PARTS_FIELD] == [{"a": 1.0}, None, {"a": 0.0}]
    assert trl_batch(step, 2, mask_truncated=False)["env_mask"][2] == [1, 0, 1]


def test_one_optimiser_step_is_one_step_of_rollouts(make_job: MakeJob) -> None:
    job = make_job(rollout={"prompts_per_step": 4, "num_generations": 8}, optim={"micro_batch_size": 16})
    arguments = grpo_arguments(job.config, job.run_dir, "cpu", [1.0])
    assert arguments["per_device_train_batch_size"] == 16
    assert arguments["gradient_accumulation_steps"] == arguments["steps_per_generation"] == 2


def test_the_order_of_rows_is_a_permutation_each_epoch_and_fixed_by_the_seed() -> None:
    order = row_order(5, 12, seed=1, shuffle=True)
    assert sorted(order[:5]) == sorted(order[5:10]) == [0, 1, 2, 3, 4] and order[:5] != order[5:10]
    assert order == row_order(5, 12, seed=1, shuffle=True) != row_order(5, 12, seed=2, shuffle=True)
    assert row_order(3, 5, seed=1, shuffle=False) == [0, 1, 2, 0, 1]


def test_the_callback_drops_what_is_missing_and_keeps_nan(make_job: MakeJob) -> None:
    from transformers import TrainerControl, TrainerState

    job = make_job()
    callback = JournalCallback(job)
    logs = {"loss": 0.5, "reward": None, "kl": float("nan"), "note": "text", "epoch": 1.0}
    callback.on_log(None, TrainerState(global_step=1), TrainerControl(), logs)  # type: ignore[arg-type]
    values = of_type(job.run_dir, "metrics")[0].values
    assert values["loss"] == 0.5 and math.isnan(values["kl"]) and not {"reward", "note", "epoch"} & set(values)


def test_the_documents_options_reach_trl() -> None:
    """Clip higher, dual clip, entropy bonus, sequence ratios, mini batches, a warm-up share, and LoRA's details."""
    over = {
        "model": {"lora_rank": 16, "lora_dropout": 0.05, "lora_targets": "q_proj,v_proj"},
        "rollout": {"prompts_per_step": 4, "num_generations": 4},
        "grpo": {
            "epsilon": 0.2,
            "epsilon_high": 0.28,
            "delta": 10,
            "entropy_coef": 0.001,
            "importance_sampling": "sequence",
        },
        "optim": {"mini_batch_size": 8, "micro_batch_size": 2, "warmup_share": 0.285},
        "run": {"max_steps": 200},
    }
    config = JobConfig.model_validate(over)
    found = grpo_arguments(config, Path("/nowhere"), "cpu", [1.0])
    expected = {
        "epsilon": 0.2,
        "epsilon_high": 0.28,
        "delta": 10.0,
        "entropy_coef": 0.001,
        "warmup_steps": 57,
        "importance_sampling_level": "sequence",
        "per_device_train_batch_size": 2,
        "gradient_accumulation_steps": 4,
        "steps_per_generation": 8,
    }
    assert {name: found[name] for name in expected} == expected
    adapter = lora_config(config)
    assert (adapter.lora_dropout, adapter.target_modules) == (0.05, {"q_proj", "v_proj"})
    plain = grpo_arguments(JobConfig(), Path("/nowhere"), "cpu", [1.0])
    assert (plain["epsilon_high"], plain["delta"], plain["entropy_coef"], plain["warmup_steps"]) == (None, None, 0.0, 0)


@pytest.mark.usefixtures("no_health")
def test_two_mini_batches_are_two_steps_of_one_sampling(make_job: MakeJob, starter_folder: Path) -> None:
    with scripted_server() as url:
        job = make_job(environment={"url": url}, rewards={"components": COMPONENTS}, optim={"mini_batch_size": 4})
        run_grpo(job, scorer=by_length)
    assert [event.step for event in of_type(job.run_dir, "metrics")] == [1, 2]
    assert len(of_type(job.run_dir, "rollout_finished")) == 8  # as many as one step samples
    before, after = parameters_of(starter_folder), parameters_of(job.run_dir / "model")
    assert [name for name in before if torch.equal(before[name], after[name])] == []


@pytest.mark.usefixtures("no_health")
def test_several_visible_gpus_are_one_device(make_job: MakeJob, monkeypatch: pytest.MonkeyPatch) -> None:
    """The trainer split batches over all GPUs that a process sees, which ended it: "does not support"."""
    from transformers import TrainingArguments

    original = TrainingArguments._setup_devices.func

    def with_four(self: Any) -> torch.device:
        device: torch.device = original(self)
        self._n_gpu = 4
        return device

    monkeypatch.setattr(TrainingArguments, "_setup_devices", functools.cached_property(with_four))
    TrainingArguments._setup_devices.__set_name__(TrainingArguments, "_setup_devices")
    with scripted_server() as url:
        job = make_job(environment={"url": url}, rewards={"components": COMPONENTS}, run={"max_steps": 1})
        run_grpo(job, scorer=by_length)
    assert [event.step for event in of_type(job.run_dir, "metrics")] == [1]
