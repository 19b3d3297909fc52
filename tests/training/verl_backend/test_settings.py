"""A job as verl's settings: every option has its place, and what verl cannot do is refused by name and in words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from training.config import JobConfig, passed
from training.errors import ConfigError
from training.exports.verl_options import OPTIONS, tree_of
from training.verl_backend.counting import first_step, rate_of, sampled_for, steps_of, warmup_steps
from training.verl_backend.settings import (
    LATER,
    OURS,
    REFUSED,
    DeviceKind,
    misfits,
    ray_settings,
    require_fit,
    settings_of,
    value_of,
)

DIRECT = {
    "model.attention",
    "optim.warmup_share",
    "grpo.sampler_ratio_max",
    "optim.beta1",
    "optim.beta2",
    "vllm.gpu_memory_share",
    "vllm.max_model_len",
    "vllm.tensor_parallel",
}
"""Options that the settings have keys of their own for."""


def job(**groups: Any) -> JobConfig:
    given: dict[str, Any] = {"data": {"train": "x"}, "rollout": {"engine": "vllm"}, "hardware": {"backend": "verl"}}
    for name, group in groups.items():
        given[name] = given.get(name, {}) | group if isinstance(group, dict) else group
    return JobConfig.model_validate(given)


def keys(**groups: Any) -> dict[str, Any]:
    return settings_of(job(**groups), "cuda", Path("/run/verl"), Path("/models/base"))


def refused(device: DeviceKind = "cuda", **groups: Any) -> tuple[str, str]:
    with pytest.raises(ConfigError) as found:
        require_fit(job(**groups), device)
    return found.value.option, found.value.sentence


def test_every_option_of_a_job_has_one_place() -> None:
    config = JobConfig()
    every = {f"{group}.{name}" for group in config.method.groups for name in type(getattr(config, group)).model_fields}
    carried = set(OPTIONS) & every - OURS - LATER - set(REFUSED)
    assert every == OURS | LATER | set(REFUSED) | carried | DIRECT
    assert not OURS & LATER and not (OURS | LATER) & set(REFUSED)
    assert not DIRECT & (OURS | LATER | set(REFUSED))


def test_what_is_usual_is_what_a_new_job_has() -> None:
    config = job()
    for option, (taken, why) in REFUSED.items():
        assert value_of(config, option) in taken and "{usual}" in why, option
    require_fit(config, "cuda")


def test_all_that_does_not_fit_is_named_at_once() -> None:
    found = list(misfits(job(model={"lora_dropout": 0.1}, grpo={"delta": 1.1}, hardware={"devices": 3}), "cuda"))
    assert [misfit.option for misfit in found] == ["model.lora_dropout", "grpo.delta", "rollout.prompts_per_step"]


def test_the_sampler_follows_from_the_device() -> None:
    on_cpu = {"rollout": {"engine": "in_process"}}
    require_fit(job(**on_cpu), "cpu")
    require_fit(job(), "cpu")
    assert refused("cuda", **on_cpu) == ("rollout.engine", "on GPUs a vLLM samples the turns: set vllm")


def test_a_vllm_on_processors_is_eager_and_takes_prompts_whole() -> None:
    """With all weights its output layer is its own: one that is the embedding is not renewed there."""
    sizes = {"prompts_per_step": 2, "num_generations": 3, "max_prompt_tokens": 100, "max_completion_tokens": 50}
    sizes["max_turn_tokens"] = 20
    rollout = "actor_rollout_ref.rollout"

    def found(**groups: Any) -> dict[str, Any]:
        config = job(rollout={"engine": "vllm", **sizes}, **groups)
        settings = settings_of(config, "cpu", Path("/run/verl"), Path("/models/base"))
        return {name.removeprefix(f"{rollout}."): value for name, value in settings.items() if rollout in name}

    whole, adapted = found(), found(model={"lora_rank": 4})
    wanted = {"name": "vllm", "dtype": "float32", "enforce_eager": True, "enable_sleep_mode": False}
    wanted |= {"enable_chunked_prefill": False, "max_num_seqs": 6, "max_num_batched_tokens": 900}
    wanted |= {"max_model_len": 150, "free_cache_engine": False, "engine_kwargs.vllm.block_size": 32}
    assert {name: whole[name] for name in wanted} == wanted == {name: adapted[name] for name in wanted}
    assert whole["engine_kwargs.vllm.hf_overrides"] == '{"tie_word_embeddings": false}'
    assert "engine_kwargs.vllm.hf_overrides" not in adapted and adapted["load_format"] == "safetensors"


@pytest.mark.parametrize(
    ("option", "value", "says"),
    [
        ("model.lora_dropout", 0.1, "the policy with dropout to the one without it, which clips tokens: set 0.0"),
        ("grpo.loss_type", "bnpo", "verl has not been shown to do it as our own trainer does: set dapo"),
        (
            "grpo.scale_rewards",
            "batch",
            "so no process has all rewards of the step: set group",
        ),
        ("rewards.aggregation", "normalize_then_sum", "verl does not have it"),
        ("rollout.max_staleness", 1, "verl does not have it, our own trainer on one device has: set 0"),
        ("rollout.refill_rounds", 1, "set 0"),
        ("optim.schedule", "linear", "set constant"),
        ("run.max_hours", 2.0, "set 0.0"),
    ],
)
def test_what_verl_cannot_do_is_refused(option: str, value: Any, says: str) -> None:
    group, _dot, name = option.partition(".")
    found, why = refused(**{group: {name: value}})
    assert found == option and says in why


def test_rewards_that_are_not_divided_and_a_sampler_that_is_not_corrected_are_taken() -> None:
    found = keys(grpo={"scale_rewards": "none", "sampler_correction": "off"})
    assert found["algorithm.rollout_correction.rollout_is"] is None
    assert keys(grpo={"sampler_ratio_max": 5})["algorithm.rollout_correction.rollout_is_threshold"] == 5
    assert keys()["algorithm.rollout_correction.rollout_is"] == "token"


def test_a_step_is_divided_over_the_devices_without_a_rest() -> None:
    sizes = {"prompts_per_step": 3, "num_generations": 4}
    require_fit(job(rollout=sizes, hardware={"hosts": 2, "devices": 2}), "cuda")
    require_fit(job(rollout=sizes, hardware={"hosts": 1, "devices": 12}), "cuda")
    option, why = refused(hardware={"hosts": 1, "devices": 5}, rollout=sizes)
    assert option == "rollout.prompts_per_step"
    assert why == "12 rollouts per step (prompts × generations) cannot be divided over 5 devices"
    assert refused(hardware={"hosts": 4, "devices": 2}, rollout=sizes)[1].endswith("over 8 devices")


def test_a_share_of_a_device_is_divided_into_micro_batches() -> None:
    sizes = {"prompts_per_step": 3, "num_generations": 4}
    require_fit(job(rollout=sizes, optim={"micro_batch_size": 3}, hardware={"hosts": 1, "devices": 2}), "cuda")
    option, why = refused(hardware={"hosts": 1, "devices": 2}, rollout=sizes, optim={"micro_batch_size": 4})
    assert option == "optim.micro_batch_size"
    assert why == "a device's 6 rollouts of an update cannot be divided into micro batches of 4"


def test_a_mini_batch_is_divided_over_the_devices_and_into_micro_batches() -> None:
    sizes: dict[str, Any] = {"prompts_per_step": 6, "num_generations": 4}
    two = {"hosts": 1, "devices": 2}
    require_fit(job(rollout=sizes, optim={"mini_batch_size": 12, "micro_batch_size": 3}, hardware=two), "cuda")
    thirds = {"optim": {"mini_batch_size": 8}, "run": {"max_steps": 99}}
    require_fit(job(rollout=sizes, **thirds, hardware={"hosts": 2, "devices": 4}), "cuda")
    option, why = refused(rollout=sizes, optim={"mini_batch_size": 3}, hardware=two, run={"max_steps": 96})
    assert (option, why) == ("optim.mini_batch_size", "mini batches of 3 rollouts cannot be divided over 2 devices")
    option, why = refused(rollout=sizes, optim={"mini_batch_size": 12, "micro_batch_size": 4}, hardware=two)
    assert option == "optim.micro_batch_size"
    assert why == "a device's 6 rollouts of an update cannot be divided into micro batches of 4"


def test_a_run_ends_where_a_sampling_does() -> None:
    twice = {"grpo": {"num_iterations": 3}, "optim": {"mini_batch_size": 32}}
    assert job(**twice).rollouts_per_step == 64 and job(**twice).updates_per_step == 6
    require_fit(job(**twice, run={"max_steps": 12}), "cuda")
    found = keys(**twice, run={"max_steps": 12})
    assert found["trainer.total_training_steps"] == 2
    actor = "actor_rollout_ref.actor"
    assert (found[f"{actor}.ppo_epochs"], found[f"{actor}.ppo_mini_batch_size"]) == (1, 8), "our trainer makes them"
    option, why = refused(**twice, run={"max_steps": 13})
    assert (option, why) == (
        "run.max_steps",
        "verl saves after whole samplings of 6 updates each, and 13 steps are no whole ones",
    )


def test_the_ratio_is_limited_where_verl_limits_it_as_we_do() -> None:
    above = {"epsilon": 0.2, "epsilon_high": 0.28}
    require_fit(job(grpo=above | {"delta": 1.28}), "cuda")
    require_fit(job(grpo={"delta": 1.2}), "cuda")
    option, why = refused(grpo=above | {"delta": 1.27})
    assert option == "grpo.delta"
    assert why == "verl limits the ratio of bad rollouts alone, which is the same from 1.28 on: set more, or 0"


def test_every_rollout_has_room_in_a_micro_batch() -> None:
    long = {"max_prompt_tokens": 9000, "max_completion_tokens": 9000}
    actor, rollout = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
    names = f"{actor}.ppo_max_token_len_per_gpu", f"{rollout}.log_prob_max_token_len_per_gpu"
    assert [keys()[name] for name in names] == [16384] * 2
    assert [keys(rollout=long)[name] for name in names] == [18000] * 2
    assert [keys(rollout=long, optim={"max_tokens_per_micro_batch": 18000})[name] for name in names] == [18000] * 2
    option, why = refused(rollout=long, optim={"max_tokens_per_micro_batch": 17999})
    assert option == "optim.max_tokens_per_micro_batch"
    assert why == "verl refuses a rollout that no micro batch holds, and one may have 18,000 tokens"
    assert not set(names) & set(keys(optim={"micro_batch_size": 4}))


def test_a_bonus_for_entropy_can_be_limited_by_tokens() -> None:
    """verl's mean is of the whole update, however it is cut up; on one device it would be of each micro batch."""
    bonus = {"grpo": {"entropy_coef": 0.1}, "optim": {"max_tokens_per_micro_batch": 20000}}
    assert keys(**bonus)["actor_rollout_ref.actor.entropy_coeff"] == 0.1
    with pytest.raises(ValueError, match="the entropy bonus needs a micro batch with a fixed number of rollouts"):
        job(**bonus, hardware={"backend": "trl"})


@pytest.mark.parametrize(
    ("optim", "steps"),
    [
        ({"schedule": "constant", "warmup_steps": 5}, 0),
        ({"schedule": "constant_with_warmup", "warmup_steps": 5}, 5),
        ({"schedule": "constant_with_warmup", "warmup_share": 0.29}, 3),
        ({"schedule": "cosine", "warmup_steps": 4, "warmup_share": 0.5}, 4),
    ],
)
def test_the_learning_rate_rises_over_as_many_steps_as_on_one_device(optim: dict[str, Any], steps: int) -> None:
    config = job(optim=optim, run={"max_steps": 10})
    assert warmup_steps(config) == steps
    found = settings_of(config, "cuda", Path("/run/verl"), Path("/models/base"))
    assert found["actor_rollout_ref.actor.optim.lr_warmup_steps"] == steps


@pytest.mark.parametrize("schedule", ["constant", "constant_with_warmup", "cosine"])
def test_the_learning_rate_of_each_step_is_that_of_one_device(schedule: str) -> None:
    import torch
    from transformers import get_scheduler

    config = job(optim={"schedule": schedule, "warmup_steps": 3, "learning_rate": 0.5}, run={"max_steps": 10})
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.5)
    theirs = get_scheduler(schedule, optimizer, num_warmup_steps=3, num_training_steps=10)
    for step in range(1, 11):
        assert rate_of(config, step) == pytest.approx(theirs.get_last_lr()[0], abs=1e-12), step
        optimizer.step()
        theirs.step()


def test_samplings_and_steps() -> None:
    assert [first_step(sampling, 3) for sampling in (1, 2, 4)] == [1, 4, 10]
    assert [list(steps_of(sampling, 3)) for sampling in (1, 2)] == [[1, 2, 3], [4, 5, 6]]
    assert [sampled_for(step, 3) for step in range(1, 8)] == [1, 1, 1, 4, 4, 4, 7]
    assert [sampled_for(step, 1) for step in (1, 2, 9)] == [1, 2, 9] and list(steps_of(9, 1)) == [9]


def test_samplers_take_the_devices_whole() -> None:
    require_fit(job(vllm={"tensor_parallel": 2}, hardware={"hosts": 1, "devices": 2}), "cuda")
    option, why = refused(hardware={"hosts": 1, "devices": 1}, vllm={"tensor_parallel": 2})
    assert (option, why) == ("vllm.tensor_parallel", "1 devices cannot be divided into samplers of 2 devices each")


def test_samplers_apart_take_their_devices_of_a_host_whole() -> None:
    two: dict[str, Any] = {"hosts": 2, "devices": 1, "sampler_devices": 4}
    for size in (1, 2, 4):
        require_fit(job(vllm={"tensor_parallel": size}, hardware=two), "cuda")
    option, why = refused(hardware=two, vllm={"tensor_parallel": 3})
    assert (option, why) == (
        "vllm.tensor_parallel",
        "4 devices of a host that only sample cannot be divided into samplers of 3 devices each",
    )
    assert refused(hardware=two, vllm={"tensor_parallel": 8})[0] == "vllm.tensor_parallel", "on one host"
    sizes = {"prompts_per_step": 3, "num_generations": 4}
    require_fit(job(rollout=sizes, hardware={"devices": 3, "sampler_devices": 4}), "cuda")
    assert refused(rollout=sizes, hardware={"devices": 5, "sampler_devices": 1})[1].endswith("over 5 devices")


def test_samplers_apart_by_value() -> None:
    rollout = "actor_rollout_ref.rollout"
    apart = {"hosts": 2, "devices": 4, "sampler_devices": 2}
    found, together = keys(hardware=apart), keys(hardware={"hosts": 2, "devices": 4})
    own = {name: value for name, value in found.items() if name not in together}
    assert own == {
        f"{rollout}.nnodes": 2,
        f"{rollout}.n_gpus_per_node": 2,
        f"{rollout}.free_cache_engine": False,
        f"{rollout}.enable_sleep_mode": False,
        f"{rollout}.checkpoint_engine.backend": "nccl",
        f"{rollout}.checkpoint_engine.update_weights_bucket_megabytes": 512,
    }
    assert {name: found[name] for name in together} == together and found["trainer.n_gpus_per_node"] == 4
    exact = job(hardware=apart, rollout={"engine": "in_process"})
    on_cpu = settings_of(exact, "cpu", Path("/run/verl"), Path("/base"))
    assert on_cpu[f"{rollout}.checkpoint_engine.backend"] == "objects"
    module = on_cpu[f"{rollout}.checkpoint_engine.custom_backend_module"]
    assert module == "training.verl_backend.on_cpu.handover"
    wanted = ray_settings(exact, "cpu")
    assert wanted["ray_kwargs.ray_init.num_gpus"] == 6 and wanted["ray_kwargs.ray_init.num_cpus"] >= 10 + 4 * 6


def test_the_settings_by_value() -> None:
    found = keys(
        hardware={"hosts": 2, "devices": 4},
        rollout={"prompts_per_step": 4, "num_generations": 8, "temperature": 0.9, "max_prompt_tokens": 300},
        optim={"micro_batch_size": 2, "learning_rate": 3e-6, "beta2": 0.95},
        grpo={"epsilon": 0.1},
        run={"max_steps": 7, "seed": 5, "keep_last": 2},
        vllm={"gpu_memory_share": 0.3, "tensor_parallel": 2},
    )
    actor, rollout = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
    assert (found["trainer.nnodes"], found["trainer.n_gpus_per_node"], found["trainer.total_training_steps"]) == (
        2,
        4,
        7,
    )
    assert (found["data.train_batch_size"], found[f"{actor}.ppo_mini_batch_size"], found[f"{rollout}.n"]) == (4, 4, 8)
    assert (found[f"{actor}.clip_ratio_low"], found[f"{actor}.clip_ratio_high"]) == (0.1, 0.1)
    assert found[f"{actor}.clip_ratio_c"] == 1e6 and found[f"{actor}.loss_agg_mode"] == "token-mean"
    assert (found[f"{actor}.optim.lr"], found[f"{actor}.optim.betas"]) == (3e-6, [0.9, 0.95])
    assert found[f"{actor}.ppo_micro_batch_size_per_gpu"] == found[f"{rollout}.log_prob_micro_batch_size_per_gpu"] == 2
    assert (found[f"{rollout}.name"], found[f"{rollout}.temperature"], found[f"{rollout}.top_k"]) == ("vllm", 0.9, -1)
    assert found[f"{rollout}.gpu_memory_utilization"] == 0.3 and found[f"{rollout}.tensor_model_parallel_size"] == 2
    assert found[f"{rollout}.agent.default_agent_loop"] == "tiltyard" and found[f"{rollout}.agent.num_workers"] == 4
    assert found[f"{rollout}.agent.agent_loop_config_path"] == "/run/verl/loops.yaml"
    assert found["data.train_files"] == "/run/verl" and found["data.shuffle"] is False
    assert found["actor_rollout_ref.model.path"] == "/models/base"
    assert found["actor_rollout_ref.model.tokenizer_path"] == "/run/verl/tokenizer"
    assert found["reward.custom_reward_function.path"] is None and found["algorithm.adv_estimator"] == "grpo"
    assert found["trainer.max_actor_ckpt_to_keep"] is None and found["trainer.save_freq"] == -1, "we keep and save"
    assert found["trainer.resume_mode"] == "disable" and found["trainer.default_local_dir"] == "/run/verl/saved"
    assert found["trainer.test_freq"] == -1, "held-out tasks are played by us"
    assert keys(grpo={"delta": 4.0})[f"{actor}.clip_ratio_c"] == 4.0


def test_the_tree_of_a_file() -> None:
    assert tree_of({"a.b.c": 1, "a.b.d": 2, "e": None}) == {"a": {"b": {"c": 1, "d": 2}}, "e": None}


def test_a_checkpoint_to_continue_from() -> None:
    found = settings_of(job(), "cuda", Path("/run/verl"), Path("/base"), "/run/1/checkpoint-3/verl/global_step_3")
    assert found["trainer.resume_mode"] == "resume_path"
    assert found["trainer.resume_from_path"] == "/run/1/checkpoint-3/verl/global_step_3"


def test_an_entropy_bonus_is_of_the_whole_step() -> None:
    assert keys(grpo={"entropy_coef": 0.1})["actor_rollout_ref.actor.entropy_coeff"] == 0.1
    keys(optim={"micro_batch_size": 4})
    option, why = refused(grpo={"entropy_coef": 0.1}, optim={"micro_batch_size": 4})
    assert option == "grpo.entropy_coef"
    assert why.endswith("that of each micro batch: set 0.0, or set optim.micro_batch_size to 0")


def test_an_adapter_is_ours_and_is_saved_alone() -> None:
    actor, model = "actor_rollout_ref.actor", "actor_rollout_ref.model"
    whole, found = keys(), keys(model={"lora_rank": 8})
    assert (found[f"{model}.lora_rank"], found[f"{model}.lora_alpha"]) == (8, 16)
    assert found[f"{model}.lora_adapter_path"] == "/run/verl/adapter" and f"{model}.lora_adapter_path" not in whole
    assert found["actor_rollout_ref.rollout.load_format"] == "safetensors", "the samplers read the base themselves"
    assert found[f"{actor}.checkpoint.save_lora_only"] and "hf_model" not in found[f"{actor}.checkpoint.save_contents"]
    assert "hf_model" in whole[f"{actor}.checkpoint.save_contents"]
    assert whole[f"{model}.lora_rank"] == 0 and f"{actor}.fsdp_config.model_dtype" not in whole
    assert found[f"{actor}.fsdp_config.model_dtype"] == "bf16", "as on one device with a GPU"
    full = keys(model={"lora_rank": 8, "dtype": "float32"})
    assert full[f"{actor}.fsdp_config.model_dtype"] == "fp32"
    exact = {"model": {"lora_rank": 8}, "rollout": {"engine": "in_process"}}
    on_cpu = settings_of(job(**exact), "cpu", Path("/run/verl"), Path("/base"))
    assert f"{actor}.fsdp_config.model_dtype" not in on_cpu


def test_a_processor_computes_exactly() -> None:
    found = settings_of(job(rollout={"engine": "in_process"}), "cpu", Path("/run/verl"), Path("/base"))
    actor = "actor_rollout_ref.actor.fsdp_config"
    assert (found["trainer.device"], found["actor_rollout_ref.rollout.name"]) == ("cpu", "hf")
    assert found[f"{actor}.dtype"] == "float32" and found[f"{actor}.mixed_precision.param_dtype"] == "fp32"


@pytest.mark.parametrize(("devices", "cpus"), [(2, 18), (64, 266)])
def test_a_local_ray_counts_enough_processors(monkeypatch: pytest.MonkeyPatch, devices: int, cpus: int) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    config = job()
    config.hardware.devices = devices
    found = ray_settings(config, "cpu")
    assert found["ray_kwargs.ray_init.num_cpus"] == cpus and found["ray_kwargs.ray_init.num_gpus"] == devices
    assert "ray_kwargs.ray_init.num_gpus" not in ray_settings(config, "cuda"), "Ray sees GPUs by itself"
    monkeypatch.setattr("os.cpu_count", lambda: 500)
    assert ray_settings(config, "cuda")["ray_kwargs.ray_init.num_cpus"] == 500


OFFLOAD = "actor_rollout_ref.actor.fsdp_config.param_offload"
MEGATRON = {"devices": 4, "sharding": "megatron"}
TENSOR = f"{passed.MEGATRON}.tensor_model_parallel_size"


def test_options_of_verl_are_laid_over_the_settings() -> None:
    by_tokens = {"micro_batch_size": 0}
    limit = passed.LOG_PROB_LIMITS[0]
    given = {"hardware": {"verl_options": [f"{OFFLOAD}=true", f"{limit}=40000"]}, "optim": by_tokens}
    plain, found = keys(optim=by_tokens), keys(**given)
    assert found == plain | {OFFLOAD: True, limit: 40_000} and OFFLOAD not in plain
    assert plain[limit] == 16_384, "ours is the limit of an update"


def test_no_option_that_is_passed_through_is_one_of_our_settings() -> None:
    """But for limits that only cost memory, and what is computed again, where another choice is given."""
    jobs: list[dict[str, Any]] = [
        {},
        {
            "optim": {"micro_batch_size": 4, "schedule": "cosine"},
            "grpo": {"beta": 0.1, "delta": 3, "epsilon_high": 0.3},
        },
        {"optim": {"max_tokens_per_micro_batch": 4096}, "model": {"gradient_checkpointing": True}},
        {"model": {"dtype": "bfloat16"}, "vllm": {"max_model_len": 4096}},
    ]
    open_keys = {*passed.LOG_PROB_LIMITS}
    again = {f"{passed.RECOMPUTED}_{name}" for name in ("granularity", "method", "num_layers")}
    for sharding, kinds in passed.TAKEN.items():
        set_here = {key for groups in jobs for key in keys(**groups, hardware=MEGATRON | {"sharding": sharding})}
        assert len(set_here) > 60
        assert set(kinds) & set_here <= open_keys | again
    adapted = {*keys(model={"lora_rank": 4, "dtype": "auto"})}
    assert not adapted & set(passed.TAKEN["fsdp2"]) - open_keys


def test_what_is_to_be_set_instead_is_what_a_setting_follows_from() -> None:
    jobs: list[dict[str, Any]] = [
        {"optim": {"schedule": "cosine"}, "grpo": {"beta": 0.1, "delta": 3, "epsilon_high": 0.3}},
        {"model": {"lora_rank": 4, "dtype": "bfloat16"}, "optim": {"max_tokens_per_micro_batch": 4096}},
        {"hardware": MEGATRON},
        {"optim": {"micro_batch_size": 2}},
    ]
    assert set(passed.INSTEAD) - {key for groups in jobs for key in keys(**groups)} == {"model_engine"}


def test_megatron_has_its_own_names() -> None:
    optim = {"schedule": "cosine", "max_grad_norm": 0.5, "beta1": 0.8, "beta2": 0.95, "warmup_steps": 3}
    model = {"dtype": "bfloat16", "gradient_checkpointing": True}
    found = keys(hardware=MEGATRON | {"verl_options": [f"{TENSOR}=2"]}, optim=optim, model=model)
    actor = "actor_rollout_ref.actor"
    wanted = {
        f"{actor}.strategy": "megatron",
        f"{actor}.optim.clip_grad": 0.5,
        f"{actor}.optim.lr_decay_style": "cosine",
        f"{actor}.optim.lr_warmup_steps": 3,
        f"{actor}.optim.override_optimizer_config": {"adam_beta1": 0.8, "adam_beta2": 0.95},
        f"{actor}.optim.use_checkpoint_opt_param_scheduler": True,
        f"{passed.RECOMPUTED}_granularity": "full",
        f"{passed.RECOMPUTED}_method": "uniform",
        f"{passed.RECOMPUTED}_num_layers": 1,
        "actor_rollout_ref.model.use_remove_padding": True,
        TENSOR: 2,
    }
    assert {key: found.get(key) for key in wanted} == wanted
    left = [key for key in found if ".fsdp_config." in key or key.endswith(("grad_clip", "lr_scheduler_type"))]
    assert left == []


def test_megatron_computes_again_what_is_given() -> None:
    chosen = f"{passed.RECOMPUTED}_granularity"
    found = keys(hardware=MEGATRON | {"verl_options": [f"{chosen}=selective"]}, model={"gradient_checkpointing": True})
    assert found[chosen] == "selective" and f"{passed.RECOMPUTED}_method" not in found
    assert chosen not in keys(hardware=MEGATRON), "nothing is where checkpointing is off"
