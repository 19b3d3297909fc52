"""A job's options as verl's settings. What verl cannot do, or was not shown to do as we do, is refused by name.

Every option of a GRPO job is in one of three places: read by our own loop (``OURS``), refused where it is not at the
value that verl has (``REFUSED``), or carried over into verl's keys, which ``training/exports/verl_options.py`` has.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple

from training.config import JobConfig
from training.errors import ConfigError
from training.exports.verl_options import ACTOR, ROLLOUT, Value, passed_through, translated
from training.policy.vllm_server import CPU_BLOCK_TOKENS, UNTIED, cpu_batch
from training.verl_backend.counting import warmup_steps
from training.verl_backend.divided import misfits_of_passed, uneven_shares
from training.verl_backend.folder import ADAPTER_NAME, LOOPS_NAME, SAVED_NAME, TOKENIZER_NAME
from training.words import Sentence, _, sentence

LOOP, STORAGE_UNITS, MOST_LOOPS = "tiltyard", 2, 8
CPUS_OF_JOB, CPUS_OF_DEVICE = 10, 4
"""What verl's processes ask of Ray: those of a job, and those of each device."""
DeviceKind = Literal["cpu", "cuda"]
Settings = dict[str, Value]
ENGINES: dict[DeviceKind, tuple[str, ...]] = {"cpu": ("in_process", "vllm"), "cuda": ("vllm",)}
"""``rollout.engine`` on each kind of device, the usual one first."""
RESUMED = ["model", "optimizer", "extra"]
"""What a checkpoint of verl has to have to be continued from; the model by itself is for others to read."""
METHOD, REFERENCE = "actor_rollout_ref", "actor_rollout_ref.ref"
ON_CPU = "training.verl_backend.on_cpu"
HANDED_MIB = 512
"""The parts in which weights are handed over to samplers apart. verl keeps two of them on every device."""


def _named(text: str) -> frozenset[str]:
    return frozenset(text.split())


OURS = _named(
    """
    model.source model.revision model.lora_rslora model.lora_targets data.train data.max_rows data.shuffle
    hardware.devices hardware.sampler_devices hardware.hosts hardware.backend hardware.sharding
    hardware.verl_options hardware.gpu_memory hardware.gpu_model
    environment.name environment.url environment.protocol environment.options environment.replicas
    environment.deterministic environment.connect_timeout_s environment.reset_timeout_s environment.step_timeout_s
    environment.episode_timeout_s environment.attempts environment.sessions environment.patience_s
    rewards.spec rewards.components rewards.signal rewards.score_timeout_s
    rollout.engine rollout.max_turns rollout.max_turn_tokens rollout.dialect rollout.failure_pause_share
    rollout.failure_pause_steps vllm.turn_timeout_s grpo.mask_truncated grpo.scale_rewards
    grpo.num_iterations optim.mini_batch_size
    evaluate.every evaluate.share evaluate.data evaluate.samples evaluate.tasks
    run.seed run.device run.save_every run.save_every_minutes run.keep_last run.no_gradient_updates run.keep_tokens_mib
    report.to report.project report.name report.tags
    """
)
"""Read by our own loop, or where the job folder is made."""

_ONE_DEVICE = _("verl does not have it, our own trainer on one device has: set {usual}")
_NOT_PROVED = _("verl has not been shown to do it as our own trainer does: set {usual}")
REFUSED: dict[str, tuple[tuple[Value, ...], str]] = {
    "model.quantization": (("none",), _ONE_DEVICE),
    "model.lora_dropout": (
        (0.0,),
        _("verl would compare the policy with dropout to the one without it, which clips tokens: set {usual}"),
    ),
    "data.draw": (("order",), _ONE_DEVICE),
    "rewards.aggregation": (("sum_then_normalize",), _ONE_DEVICE),
    "rollout.max_staleness": ((0,), _ONE_DEVICE),
    "rollout.refill_rounds": ((0,), _ONE_DEVICE),
    "vllm.mode": (("managed",), _("verl starts its samplers itself: set {usual}")),
    "vllm.quantization": (("none",), _NOT_PROVED),
    "grpo.importance_sampling": (("token",), _NOT_PROVED),
    "grpo.sampler_correction": (("token_truncate", "off"), _ONE_DEVICE),
    "grpo.loss_type": (("dapo", "grpo", "dr_grpo"), _NOT_PROVED),
    "grpo.credit": (("rollout",), _ONE_DEVICE),
    "grpo.top_entropy_share": ((1.0,), _ONE_DEVICE),
    "grpo.off_policy_limit": ((0.0,), _ONE_DEVICE),
    "grpo.ref_sync_steps": ((0,), _ONE_DEVICE),
    "optim.packing": ((False,), _NOT_PROVED),
    "optim.optimizer": (("adamw",), _ONE_DEVICE),
    "optim.epsilon": ((1e-8,), _ONE_DEVICE),
    "optim.schedule": (("constant", "constant_with_warmup", "cosine"), _ONE_DEVICE),
    "mix.parts": (([],), _ONE_DEVICE),
    "curriculum.stages": (([],), _ONE_DEVICE),
    "run.max_hours": ((0.0,), _ONE_DEVICE),
}
"""The values that are taken, the usual one first, and why others are not."""

LATER = _named(
    """
    data.draw_even_share data.draw_prior data.draw_half_life
    vllm.urls vllm.sleep vllm.start_timeout_s
    grpo.sapo_temperature_pos grpo.sapo_temperature_neg grpo.vespo_k_pos grpo.vespo_lambda_pos grpo.vespo_k_neg
    grpo.vespo_lambda_neg grpo.credit_weight grpo.credit_discount grpo.ref_sync_share
    evaluate.replays evaluate.continue_from evaluate.policy run.threads
    """
)
"""Of something that is refused, or that verl has a way of its own for: they change nothing."""


class Misfit(NamedTuple):
    """An option at a value that verl cannot train by, and why."""

    option: str
    why: Sentence


def misfits(config: JobConfig, device: DeviceKind) -> Iterator[Misfit]:
    """All of a job's."""
    for option, (taken, why) in REFUSED.items():
        if value_of(config, option) not in taken:
            yield Misfit(option, sentence(why, usual=_shown(taken[0])))
    if config.gradient.scale_rewards not in ("group", "none"):
        text = _("groups are scored where they are played, so no process has all rewards of the step: set {usual}")
        yield Misfit("grpo.scale_rewards", sentence(text, usual="group"))
    if config.rollout.engine not in (engines := ENGINES[device]):
        on_cpu = _("without a GPU the turns are sampled by transformers, or by a vLLM of verl's: set {usual}")
        text = on_cpu if device == "cpu" else _("on GPUs a vLLM samples the turns: set {usual}")
        yield Misfit("rollout.engine", sentence(text, usual=engines[0]))
    if config.grpo.entropy_coef and config.optim.micro_batch_size:
        text = _(
            "verl takes the mean entropy of an update, our trainer that of each micro batch: set {usual}, or set "
            "optim.micro_batch_size to 0"
        )
        yield Misfit("grpo.entropy_coef", sentence(text, usual="0.0"))
    ceiling = 1 + (config.grpo.epsilon_high or config.grpo.epsilon)
    if 0 < config.grpo.delta < ceiling:
        text = _("verl limits the ratio of bad rollouts alone, which is the same from {ceiling} on: set more, or 0")
        yield Misfit("grpo.delta", sentence(text, ceiling=f"{ceiling:g}"))
    if config.run.max_steps % (updates := config.updates_per_step):
        text = _("verl saves after whole samplings of {updates} updates each, and {steps} steps are no whole ones")
        yield Misfit("run.max_steps", sentence(text, steps=config.run.max_steps, updates=updates))
    set_here = _of_cpu(config) if device == "cpu" else {}
    for option, why in (*uneven_shares(config), *misfits_of_passed(config, device, set_here)):
        yield Misfit(option, why)


def require_fit(config: JobConfig, device: DeviceKind) -> None:
    """Raise ``ConfigError`` at the first option that verl cannot train by."""
    for misfit in misfits(config, device):
        raise ConfigError(misfit.why, option=misfit.option)


def value_of(config: JobConfig, option: str) -> Value:
    """The value of an option by its dotted path."""
    group, _dot, name = option.partition(".")
    return getattr(getattr(config, group), name)


def _shown(value: Value) -> str:
    return "[]" if value == [] else str(value).lower() if isinstance(value, bool) else str(value)


def settings_of(config: JobConfig, device: DeviceKind, folder: Path, model: Path, resume: str = "") -> Settings:
    """verl's keys with values, for a job folder and the folder of the base model. Raises as ``require_fit``.

    ``resume`` is the folder of verl's own checkpoint to continue from.
    """
    require_fit(config, device)
    carried, _missing = translated(config)
    found = (
        carried | _of_play(config, folder) | _of_training(config, folder, model) | _of_adapter(config, device, folder)
    )
    found |= _of_samplers(config, device)
    if resume:
        found |= {"trainer.resume_mode": "resume_path", "trainer.resume_from_path": resume}
    return passed_through(config, found | (_of_cpu(config) if device == "cpu" else {}))


def _of_play(config: JobConfig, folder: Path) -> Settings:
    """Our tasks in our order, our loop, and its rewards."""
    place = str(folder)
    return {
        "data.custom_cls.path": "pkg://training.verl_backend.tasks",
        "data.custom_cls.name": "Places",
        "data.train_files": place,
        "data.val_files": place,
        "data.train_max_samples": -1,
        "data.shuffle": False,
        "data.validation_shuffle": False,
        "data.dataloader_num_workers": 0,
        "data.filter_overlong_prompts": False,
        "reward.custom_reward_function.path": None,
        "reward.num_workers": 1,
        f"{ROLLOUT}.name": "vllm",
        f"{ROLLOUT}.calculate_log_probs": True,
        f"{ROLLOUT}.seed": config.run.seed,
        f"{ROLLOUT}.multi_turn.enable": False,
        f"{ROLLOUT}.agent.agent_loop_config_path": str(folder / LOOPS_NAME),
        f"{ROLLOUT}.agent.default_agent_loop": LOOP,
        f"{ROLLOUT}.agent.num_workers": min(MOST_LOOPS, config.rollout.prompts_per_step),
        f"{ROLLOUT}.gpu_memory_utilization": config.vllm.gpu_memory_share,
        f"{ROLLOUT}.tensor_model_parallel_size": config.vllm.tensor_parallel,
        f"{ROLLOUT}.max_model_len": config.vllm_window,
        "transfer_queue.backend.SimpleStorage.num_data_storage_units": STORAGE_UNITS,
    }


def _of_training(config: JobConfig, folder: Path, model: Path) -> Settings:
    micro = config.optim.micro_batch_size
    attention = "sdpa" if config.model.attention == "auto" else config.model.attention
    sized: Settings = {f"{part}.log_prob_micro_batch_size_per_gpu": micro for part in (ROLLOUT, REFERENCE)}
    if not micro:
        limit = config.tokens_of_micro_batch
        sized = {f"{ROLLOUT}.log_prob_max_token_len_per_gpu": limit, f"{ACTOR}.ppo_max_token_len_per_gpu": limit}
    return sized | {
        f"{METHOD}.model.path": str(model),
        f"{METHOD}.model.tokenizer_path": str(folder / TOKENIZER_NAME),
        f"{METHOD}.model.override_config.attn_implementation": attention,
        f"{METHOD}.model.use_remove_padding": attention == "flash_attention_2",
        f"{ACTOR}.strategy": "fsdp2",
        f"{ACTOR}.shuffle": False,
        f"{ACTOR}.ppo_epochs": 1,
        f"{ACTOR}.loss_scale_factor": config.rollout.max_completion_tokens,
        f"{ACTOR}.optim.lr_warmup_steps": warmup_steps(config),
        f"{ACTOR}.data_loader_seed": config.run.seed,
        f"{ACTOR}.checkpoint.save_contents": [*RESUMED, "hf_model"],
        f"{ACTOR}.checkpoint.load_contents": RESUMED,
        "trainer.total_epochs": 1,
        "trainer.total_training_steps": config.run.max_steps // config.updates_per_step,
        "trainer.resume_mode": "disable",
        "trainer.save_freq": -1,
        "trainer.test_freq": -1,
        "trainer.max_actor_ckpt_to_keep": None,
        "trainer.default_local_dir": str(folder / SAVED_NAME),
        "trainer.project_name": LOOP,
        "trainer.experiment_name": folder.parent.name,
    }


def _of_adapter(config: JobConfig, device: DeviceKind, folder: Path) -> Settings:
    """verl begins from our adapter, and saves it alone. Its samplers have the base of the model's folder, so nothing
    but the adapter is handed over."""
    if not config.model.lora_rank:
        return {}
    halved = device == "cuda" and config.model.dtype == "auto"
    return ({f"{ACTOR}.fsdp_config.model_dtype": "bf16"} if halved else {}) | {
        f"{METHOD}.model.lora_adapter_path": str(folder / ADAPTER_NAME),
        f"{ACTOR}.checkpoint.save_contents": RESUMED,
        f"{ACTOR}.checkpoint.save_lora_only": True,
        f"{ROLLOUT}.load_format": "safetensors",
    }


def _of_samplers(config: JobConfig, device: DeviceKind) -> Settings:
    """Samplers on devices of their own, which need not sleep, and how weights come to them."""
    if not config.hardware.sampler_devices:
        return {}
    engine = f"{ROLLOUT}.checkpoint_engine"
    ours = {f"{engine}.custom_backend_module": f"{ON_CPU}.handover"}
    return {
        f"{ROLLOUT}.nnodes": config.hardware.hosts,
        f"{ROLLOUT}.n_gpus_per_node": config.hardware.sampler_devices,
        f"{ROLLOUT}.free_cache_engine": False,
        f"{ROLLOUT}.enable_sleep_mode": False,
        f"{engine}.backend": "nccl" if device == "cuda" else "objects",
        f"{engine}.update_weights_bucket_megabytes": HANDED_MIB,
    } | (ours if device == "cpu" else {})


def _of_cpu(config: JobConfig) -> Settings:
    """Exact arithmetic on processors, and the sampler of ``on_cpu`` or vLLM's build for processors."""
    exact = {"dtype": "float32", "use_torch_compile": False}
    exact |= {f"mixed_precision.{name}_dtype": "fp32" for name in ("param", "reduce", "buffer")}
    sampler: Settings = {f"{ROLLOUT}.name": "hf"} if config.rollout.engine == "in_process" else _of_vllm_on_cpu(config)
    return {f"{part}.fsdp_config.{name}": value for part in (ACTOR, REFERENCE) for name, value in exact.items()} | {
        "trainer.device": "cpu",
        f"{METHOD}.model.override_config.attn_implementation": "eager",
        f"{ROLLOUT}.dtype": "float32",
        f"{ROLLOUT}.free_cache_engine": False,
        f"{ACTOR}.use_torch_compile": False,
        **sampler,
    }


def _of_vllm_on_cpu(config: JobConfig) -> Settings:
    """As our own vLLM on a processor: eager, prompts taken whole, and with all weights an output layer of its own."""
    rows, batched = cpu_batch(config.vllm_window, config.rollouts_per_step)
    kwargs = f"{ROLLOUT}.engine_kwargs.vllm"
    untied: Settings = {} if config.model.lora_rank else {f"{kwargs}.hf_overrides": UNTIED}
    return untied | {
        f"{ROLLOUT}.name": "vllm",
        f"{ROLLOUT}.enforce_eager": True,
        f"{ROLLOUT}.enable_sleep_mode": False,
        f"{ROLLOUT}.enable_chunked_prefill": False,
        f"{ROLLOUT}.max_num_seqs": rows,
        f"{ROLLOUT}.max_num_batched_tokens": batched,
        f"{kwargs}.block_size": CPU_BLOCK_TOKENS,
    }


def ray_settings(config: JobConfig, device: DeviceKind) -> Settings:
    """The local Ray of one host. Its processors are counted, not measured: verl asks for more of them than small
    machines have, and would wait for them without end."""
    init = "ray_kwargs.ray_init"
    here = config.hardware.of_host
    counted = max(os.cpu_count() or 1, CPUS_OF_JOB + CPUS_OF_DEVICE * here)
    devices = {f"{init}.num_gpus": here} if device == "cpu" else {}
    return devices | {f"{init}.num_cpus": counted, f"{init}.include_dashboard": False}
