"""Our options in verl's own keys. Every option is carried over, or named with the reason why it is not.

verl's keys are those of the ``ppo_trainer.yaml`` of version ``VERL``, against which a slow test holds them; a value of
ours that has no meaning there is left at verl's default.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from training.config import METHODS, JobConfig, passed
from training.config.model import EPSILON

Value = Any
ACTOR, ROLLOUT, CRITIC = passed.ACTOR, passed.ROLLOUT, "critic"
TRAIN_NAME, REWARD_NAME = "train.parquet", "reward.py"
VERL = passed.VERL
"""The version of verl that keys and reasons were checked against. Its interactions went before 0.9.0."""
NO_DUAL_CLIP = 1e6
"""Far above any ratio: where nothing is said, verl bounds the loss of bad tokens at a ratio of 3, and we do not."""


class Carried(NamedTuple):
    """One option of ours as keys of verl's, or why its value cannot be carried over."""

    keys: dict[str, Value]
    why: str = ""


def _key(name: str) -> Callable[[Value], Carried]:
    return lambda value: Carried({name: value})


def _never(why: str) -> Callable[[Value], Carried]:
    return lambda _value: Carried({}, why)


def _model(source: str) -> Carried:
    is_hub = source.count("/") <= 1 and not source.startswith((".", "/", "~")) and ":" not in source
    if is_hub and source != "starter":
        return Carried({"actor_rollout_ref.model.path": source})
    return Carried(
        {"actor_rollout_ref.model.path": "???"}, "the model has no public name: write its folder into model.path"
    )


def _kl(beta: float) -> Carried:
    """The estimate is the same with and without the plus; with it its gradient is that of the KL, as TRL's is."""
    keys = {f"{ACTOR}.use_kl_loss": beta > 0, f"{ACTOR}.kl_loss_coef": beta, f"{ACTOR}.kl_loss_type": "low_var_kl+"}
    return Carried(keys)


def _kl_of_reward(beta: float) -> Carried:
    keys = {"use_kl_in_reward": beta > 0, "kl_penalty": "kl", "kl_ctrl.kl_coef": beta}
    return Carried({f"algorithm.{name}": value for name, value in keys.items()})


def _clip(epsilon: float) -> Carried:
    return Carried({f"{ACTOR}.{name}": epsilon for name in ("clip_ratio", "clip_ratio_low", "clip_ratio_high")})


def _loss(kind: str) -> Carried:
    modes = {
        "dapo": "token-mean",
        "bnpo": "token-mean",
        "grpo": "seq-mean-token-mean",
        "dr_grpo": "seq-mean-token-sum-norm",
        "cispo": "token-mean",
        "sapo": "seq-mean-token-mean",
    }
    if kind not in modes:
        return Carried({}, f"verl has no loss like {kind}; it would train with its own clipped one")
    why = "verl averages over a mini-batch, bnpo over what one device holds of it" if kind == "bnpo" else ""
    own = {f"{ACTOR}.policy_loss.loss_mode": kind} if kind in ("cispo", "sapo") else {}
    return Carried({f"{ACTOR}.loss_agg_mode": modes[kind]} | own, why)


def _where_set(name: str) -> Callable[[Value], Carried]:
    return lambda value: Carried({name: value} if value else {})


def _ratio(level: str) -> Carried:
    return Carried({f"{ACTOR}.policy_loss.loss_mode": "gspo"} if level == "sequence" else {})


def _correction(mode: str) -> Carried:
    """Ours cuts the ratio of trainer to sampler at its limit, and verl does where it is asked to keep the latter's."""
    levels = {"off": None, "token_truncate": "token", "sequence_truncate": "sequence"}
    why = "" if mode in levels else "verl cuts ratios that are too large, and masks no tokens for them here"
    keys = {"algorithm.rollout_correction.rollout_is": levels.get(mode)}
    return Carried(keys | {f"{ROLLOUT}.calculate_log_probs": levels.get(mode) is not None}, why)


def _changed(default: Value, why: str) -> Callable[[Value], Carried]:
    return lambda value: Carried({}, "" if value == default else why)


def _spanning(config: JobConfig) -> dict[str, Value]:
    """Keys that depend on several options of ours: cispo's limit is of the ratio, verl's a distance from 1 both ways;
    sapo's temperatures are keys that older versions of verl refuse."""
    if config.method.gradient == "rloo":
        threshold = "algorithm.rollout_correction.rollout_is_threshold"
        corrected = _correction(config.rloo.sampler_correction).keys | {threshold: config.rloo.sampler_ratio_max}
        return {"algorithm.adv_estimator": "rloo", f"{ACTOR}.loss_agg_mode": "seq-mean-token-sum"} | corrected
    if config.learns_values:
        return _critic(config)
    chosen = config.grpo
    if chosen.loss_type == "cispo":
        return {f"{ACTOR}.clip_ratio_low": 1.0, f"{ACTOR}.clip_ratio_high": chosen.ratio_ceiling - 1}
    if chosen.loss_type == "sapo":
        return {f"{ACTOR}.tau_pos": chosen.sapo_temperature_pos, f"{ACTOR}.tau_neg": chosen.sapo_temperature_neg}
    return {}


def _critic(config: JobConfig) -> dict[str, Value]:
    """verl's critic is a model of its own; what it has in common with the policy is set for both."""
    optim, same = config.optim, {"grad_clip": config.optim.max_grad_norm, "ppo_epochs": config.ppo.num_iterations}
    if optim.micro_batch_size:
        same["ppo_micro_batch_size_per_gpu"] = optim.micro_batch_size
    return {
        "algorithm.adv_estimator": "gae",
        f"{ACTOR}.loss_agg_mode": "token-mean",
        f"{CRITIC}.model.path": _model(config.model.source).keys["actor_rollout_ref.model.path"],
        **{f"{CRITIC}.{name}": value for name, value in same.items()},
    }


def _moments(config: JobConfig) -> dict[str, Value]:
    """How long the optimiser remembers, of the policy and of its critic."""
    models = (ACTOR, CRITIC) if config.learns_values else (ACTOR,)
    return {f"{model}.optim.betas": [config.optim.beta1, config.optim.beta2] for model in models}


def _adapter(config: JobConfig) -> dict[str, Value]:
    """verl's alpha is 16 where none is said; ours depends on the rank."""
    return {"actor_rollout_ref.model.lora_alpha": config.model.adapter_alpha} if config.model.lora_rank else {}


def _value_clip(reach: float) -> Carried:
    return Carried({f"{CRITIC}.cliprange_value": reach} if reach else {}, "" if reach else "verl always clips values")


def _scale(scale: str) -> Carried:
    why = "verl divides by the group's standard deviation or not at all" if scale == "batch" else ""
    return Carried({"algorithm.norm_adv_by_std_in_grpo": scale != "none"}, why)


def _schedule(kind: str) -> Carried:
    why = "verl knows constant and cosine schedules only" if kind == "linear" else ""
    return Carried({f"{ACTOR}.optim.lr_scheduler_type": "cosine" if kind == "cosine" else "constant"}, why)


def _micro(size: int) -> Carried:
    if size:
        return Carried({f"{ACTOR}.ppo_micro_batch_size_per_gpu": size})
    return Carried({f"{ACTOR}.use_dynamic_bsz": True, f"{ROLLOUT}.log_prob_use_dynamic_bsz": True})


def _micro_tokens(limit: int) -> Carried:
    """verl deals by tokens wherever no number of rows is set (``_micro``)."""
    names = (f"{ACTOR}.ppo_max_token_len_per_gpu", f"{ROLLOUT}.log_prob_max_token_len_per_gpu")
    return Carried(dict.fromkeys(names, limit) if limit else {})


def _dialect(name: str) -> Carried:
    if name in ("auto", "hermes"):
        return Carried({f"{ROLLOUT}.multi_turn.format": "hermes"})
    return Carried({}, f"verl has no parser for {name}; name one of its own in multi_turn.format, or register another")


def _dtype(name: str) -> Carried:
    kinds = {"float32": "fp32", "bfloat16": "bf16"}
    return Carried({f"{ACTOR}.fsdp_config.model_dtype": kinds[name]} if name in kinds else {})


def _turns(count: int) -> Carried:
    names = ("max_assistant_turns", "max_user_turns")
    keys = {f"{ROLLOUT}.multi_turn.{name}": count for name in names}
    loop = {f"{ROLLOUT}.agent.default_agent_loop": "tool_agent"} if count > 1 else {}  # else it plays one turn alone
    return Carried({f"{ROLLOUT}.multi_turn.enable": True, **keys, **loop})


_LIMIT = "verl's tools set their own limits"
_SERVER = "verl has no environments: write its tools in Python and name them in multi_turn.tool_config_path"
_REWARD = f"verl computes rewards in code: {REWARD_NAME} pays for the rows' right answers alone"
_FAILURES = "verl has no limit of failed rollouts"
_NO_VESPO, _NO_SYNC = "verl has no loss like vespo", "verl's reference model stays what it was"
_NO_TURNS = "verl's advantages are of whole rollouts"
_TRUNCATED = "verl keeps truncated rollouts in the loss"
_SPANNING = _DRAWN = _never("")
OPTIONS: dict[str, Callable[[Value], Carried]] = {
    "model.source": _model,
    "model.revision": lambda value: Carried({}, "verl takes no revision; download that one" if value else ""),
    "model.dtype": _dtype,
    "model.gradient_checkpointing": _key("actor_rollout_ref.model.enable_gradient_checkpointing"),
    "model.quantization": _changed("none", "verl holds the base below an adapter in its own precision"),
    "model.lora_rank": _key("actor_rollout_ref.model.lora_rank"),
    "model.lora_alpha": _where_set("actor_rollout_ref.model.lora_alpha"),
    "model.lora_rslora": _changed(False, "verl scales an adapter by alpha over its rank"),
    "data.train": lambda _value: Carried({"data.train_files": TRAIN_NAME, "data.val_files": TRAIN_NAME}),
    "data.max_rows": lambda value: Carried({"data.train_max_samples": value or -1}),
    "data.shuffle": _key("data.shuffle"),
    "data.draw": _changed("order", "verl draws all tasks evenly"),
    "data.draw_even_share": _DRAWN,
    "data.draw_prior": _DRAWN,
    "data.draw_half_life": _DRAWN,
    "environment.name": _never(_SERVER),
    "environment.url": _never(_SERVER),
    "environment.protocol": _never(_SERVER),
    "environment.options": _never(_SERVER),
    "environment.replicas": _never(_SERVER),
    "environment.deterministic": _never(_SERVER),
    "environment.connect_timeout_s": _never(_LIMIT),
    "environment.reset_timeout_s": _never(_LIMIT),
    "environment.step_timeout_s": _never(_LIMIT),
    "environment.episode_timeout_s": _never(_LIMIT),
    "environment.attempts": _never(_LIMIT),
    "environment.sessions": _never(_SERVER),
    "environment.patience_s": _never(_FAILURES),
    "rewards.spec": _never(_REWARD),
    "rewards.components": _never(_REWARD),
    "rewards.signal": _changed("all", "verl learns from all groups; DAPO's recipe can leave out equal ones"),
    "rewards.score_timeout_s": _never(_REWARD),
    "rewards.aggregation": _never(_REWARD),
    "rollout.prompts_per_step": lambda value: Carried(
        {"data.train_batch_size": value, f"{ACTOR}.ppo_mini_batch_size": value}
    ),
    "rollout.num_generations": _key(f"{ROLLOUT}.n"),
    "rollout.max_turns": _turns,
    "rollout.max_turn_tokens": _never("verl limits the whole response (data.max_response_length), not one turn"),
    "rollout.max_completion_tokens": _key("data.max_response_length"),
    "rollout.max_prompt_tokens": lambda value: Carried(
        {"data.max_prompt_length": value, "data.filter_overlong_prompts": True}
    ),
    "rollout.dialect": _dialect,
    "rollout.temperature": _key(f"{ROLLOUT}.temperature"),
    "rollout.top_p": _key(f"{ROLLOUT}.top_p"),
    "rollout.top_k": lambda value: Carried({f"{ROLLOUT}.top_k": value or -1}),
    "rollout.max_staleness": _changed(0, "only verl's recipe for one step off-policy plays ahead"),
    "rollout.refill_rounds": _changed(0, "only verl's recipe of DAPO refills groups"),
    "rollout.failure_pause_share": _never(_FAILURES),
    "rollout.failure_pause_steps": _never(_FAILURES),
    "grpo.beta": _kl,
    "grpo.epsilon": _clip,
    "grpo.epsilon_high": _where_set(f"{ACTOR}.clip_ratio_high"),
    "grpo.delta": _where_set(f"{ACTOR}.clip_ratio_c"),
    "grpo.sampler_correction": _correction,
    "grpo.sampler_ratio_max": _key("algorithm.rollout_correction.rollout_is_threshold"),
    "grpo.entropy_coef": _key(f"{ACTOR}.entropy_coeff"),
    "grpo.num_iterations": _key(f"{ACTOR}.ppo_epochs"),
    "grpo.loss_type": _loss,
    "grpo.importance_sampling": _ratio,
    "grpo.sapo_temperature_pos": _SPANNING,
    "grpo.sapo_temperature_neg": _SPANNING,
    "grpo.vespo_k_pos": _changed(2.0, _NO_VESPO),
    "grpo.vespo_lambda_pos": _changed(3.0, _NO_VESPO),
    "grpo.vespo_k_neg": _changed(3.0, _NO_VESPO),
    "grpo.vespo_lambda_neg": _changed(2.0, _NO_VESPO),
    "grpo.top_entropy_share": _changed(1.0, "verl learns from all tokens"),
    "grpo.off_policy_limit": _changed(0.0, "verl leaves no rollout out for being off-policy"),
    "grpo.ref_sync_steps": _changed(0, _NO_SYNC),
    "grpo.ref_sync_share": _changed(0.6, _NO_SYNC),
    "grpo.scale_rewards": _scale,
    "grpo.credit": _changed("rollout", _NO_TURNS),
    "grpo.mask_truncated": lambda value: Carried({}, _TRUNCATED if value else ""),
    "rloo.beta": _kl_of_reward,
    "rloo.credit": _changed("rollout", _NO_TURNS),
    "rloo.mask_truncated": lambda value: Carried({}, _TRUNCATED if value else ""),
    "ppo.gamma": _key("algorithm.gamma"),
    "ppo.lam": _key("algorithm.lam"),
    "ppo.beta": _kl_of_reward,
    "ppo.epsilon": _clip,
    "ppo.cliprange_value": _value_clip,
    "ppo.value_coef": _never("verl's critic is a model of its own, whose loss does not reach the policy"),
    "ppo.critic_learning_rate": _where_set(f"{CRITIC}.optim.lr"),
    "ppo.critic_warmup": _changed(0, "verl's trainer.critic_warmup counts samplings that are played for it"),
    "ppo.whiten_advantages": _changed(True, "verl always whitens the advantages of gae"),
    "ppo.num_iterations": _key(f"{ACTOR}.ppo_epochs"),
    "ppo.entropy_coef": _key(f"{ACTOR}.entropy_coeff"),
    "ppo.sampler_correction": _correction,
    "ppo.sampler_ratio_max": _key("algorithm.rollout_correction.rollout_is_threshold"),
    "ppo.credit": _changed("rollout", _NO_TURNS),
    "ppo.mask_truncated": lambda value: Carried({}, _TRUNCATED if value else ""),
    "optim.learning_rate": _key(f"{ACTOR}.optim.lr"),
    "optim.micro_batch_size": _micro,
    "optim.max_tokens_per_micro_batch": _micro_tokens,
    "optim.optimizer": _changed("adamw", "verl's actor is moved by AdamW with moments in float32"),
    "optim.beta1": _SPANNING,
    "optim.beta2": _SPANNING,
    "optim.epsilon": _changed(EPSILON, "verl's actor keeps PyTorch's ε of 1e-8"),
    "optim.schedule": _schedule,
    "optim.warmup_steps": _key(f"{ACTOR}.optim.lr_warmup_steps"),
    "optim.weight_decay": _key(f"{ACTOR}.optim.weight_decay"),
    "optim.max_grad_norm": _key(f"{ACTOR}.grad_clip"),
    "hardware.devices": _key("trainer.n_gpus_per_node"),
    "hardware.hosts": _key("trainer.nnodes"),
    "hardware.sampler_devices": _changed(0, "verl has samplers apart in a trainer that plays ahead of the weights"),
    "hardware.backend": lambda _value: Carried({}),
    "hardware.sharding": lambda _value: Carried({}),  # both by ``passed_through``
    "hardware.verl_options": lambda _value: Carried({}),
    "hardware.gpu_memory": lambda _value: Carried({}),
    "hardware.gpu_model": lambda _value: Carried({}),
    "run.max_steps": _key("trainer.total_training_steps"),
    "run.max_hours": _changed(0.0, "verl has no time budget of a run"),
    "run.save_every": lambda value: Carried({"trainer.save_freq": value or -1}),
    "run.save_every_minutes": _never("verl saves by steps"),
    "run.keep_last": lambda value: Carried({"trainer.max_actor_ckpt_to_keep": value or None}),
    "run.no_gradient_updates": _never("verl does not pause a run that has no gradient"),
    "run.keep_tokens_mib": _never("verl keeps no values of tokens"),
    "run.seed": _key("data.seed"),
    "run.device": _never("verl runs on GPUs; how many is set in hardware.devices"),
    "run.threads": _never("verl runs on GPUs"),
}
_UNKNOWN = _never("it has no counterpart here yet")
SKIPPED = ("version", "kind", "dpo", "sft", "mix", "curriculum")
"""Fields of ``JobConfig`` that say nothing about a job that learns from rollouts."""
GRADIENTS = tuple({method.gradient: None for method in METHODS.values()})
"""The groups of which a job has one."""
FIXED: dict[str, Value] = {
    f"{ACTOR}.clip_ratio_c": NO_DUAL_CLIP,
    "algorithm.adv_estimator": "grpo",
    "algorithm.use_kl_in_reward": False,
    f"{ROLLOUT}.name": "sglang",
    "trainer.logger": ["console"],
    "reward.custom_reward_function.path": REWARD_NAME,
    "reward.custom_reward_function.name": "compute_score",
    "trainer.test_freq": -1,
    "trainer.val_before_train": False,
}


def options_of(config: JobConfig) -> list[str]:
    """Every option of a GRPO, RLOO or PPO job, as ``group.name``."""
    skipped = {*SKIPPED, *GRADIENTS} - {config.method.gradient}
    groups = [group for group in type(config).model_fields if group not in skipped]
    return [f"{group}.{name}" for group in groups for name in type(getattr(config, group)).model_fields]


def translated(config: JobConfig) -> tuple[dict[str, Value], dict[str, str]]:
    """verl's keys with values, and the options of ours that are not carried over, each with its reason."""
    keys, missing = dict(FIXED), {}
    for option in options_of(config):
        group, _, name = option.partition(".")
        carry = OPTIONS.get(option, _UNKNOWN)
        # A learning rate of 0 is the one that suits the method.
        value = config.learning_rate if option == "optim.learning_rate" else getattr(getattr(config, group), name)
        carried = carry(value)
        keys |= carried.keys
        if carried.why:
            missing[option] = carried.why
    return _adapter(config) | keys | _moments(config) | _spanning(config), missing


def passed_through(config: JobConfig, settings: dict[str, Value]) -> dict[str, Value]:
    """The settings of a job with verl's own options that it passes through, and as Megatron's tree has them where that
    is chosen."""
    if not config.by_verl:
        return settings
    chosen = config.hardware
    whole = _for_megatron(settings, chosen.passed) if chosen.sharding == "megatron" else settings
    return whole | chosen.passed


def _for_megatron(settings: dict[str, Value], given: Mapping[str, Value]) -> dict[str, Value]:
    """Without keys of FSDP.

    Megatron has names of its own for the schedule and the limit of gradients, and takes the moments from another
    mapping. It computes whole layers again where nothing else is ``given``. Its schedule continues from a checkpoint
    only where it is asked to.
    """
    found = {key: value for key, value in settings.items() if ".fsdp_config." not in key}
    for theirs, megatrons in _RENAMED.items():
        if theirs in found:
            found[megatrons] = found.pop(theirs)
    beta1, beta2 = found[f"{ACTOR}.optim.betas"]
    if found.get(_CHECKPOINTING) and f"{passed.RECOMPUTED}_granularity" not in given:
        again = {"granularity": "full", "method": "uniform", "num_layers": 1}
        found |= {f"{passed.RECOMPUTED}_{name}": value for name, value in again.items()}
    return found | {
        f"{ACTOR}.strategy": "megatron",
        f"{ACTOR}.optim.override_optimizer_config": {"adam_beta1": beta1, "adam_beta2": beta2},
        f"{ACTOR}.optim.use_checkpoint_opt_param_scheduler": True,
        "actor_rollout_ref.model.use_remove_padding": True,
    }


_CHECKPOINTING = "actor_rollout_ref.model.enable_gradient_checkpointing"
_RENAMED = {
    f"{ACTOR}.grad_clip": f"{ACTOR}.optim.clip_grad",
    f"{ACTOR}.optim.lr_scheduler_type": f"{ACTOR}.optim.lr_decay_style",
}


def tree_of(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The dotted keys as the tree that a YAML file of verl has."""
    tree: dict[str, Any] = {}
    for path, value in settings.items():
        *groups, last = path.split(".")
        node = tree
        for group in groups:
            node = node.setdefault(group, {})
        node[last] = value
    return tree
