"""What our trainers need of TRL, in one place: no other module below ``training/algorithms`` imports it.

TRL 1.16 calls ``rollout_func`` experimental ("may change or be removed"), and all else here but the classes is private
to it. ``transformers.Trainer`` is below both. An upgrade is tried by ``tests/training/algorithms/test_upgrade.py`` with
the newest versions that resolve with our torch; ``missing`` says by name what a version lacks.

What is used, and what we would have to own without it:

1. ``rollout_func(prompts) -> {prompt_ids, completion_ids, logprobs, env_mask, ...}`` (``plays_by``): TRL asks it once a
   sampling, in ``_generate_and_score_completions``, and hands further fields to the reward functions.
2. ``GRPOTrainer``: padding and masks of a sampling, old and reference log-probabilities, rewards to advantages
   (``_generate_and_score_completions``, ``_calculate_rewards``), the losses by name (``_compute_loss``), a sampling
   kept for several updates (``_prepare_inputs``, ``_buffered_inputs``, ``_step``), its figures (``_metrics``).
3. ``SFTTrainer`` and ``DPOTrainer`` on examples that are encoded here: the loop and the loss alone.
4. Of ``transformers.Trainer``: the loop, checkpoints with optimiser, schedule and random states.

``METHODS`` are the methods that ours call or take the place of, ``STATE`` the attributes that ours read or set, and
``FIELDS`` the columns of a sampling that ours read or change.
"""

from __future__ import annotations

import inspect
import os
import re
import sys
from collections.abc import Callable
from typing import Any

os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
from trl import DPOConfig, DPOTrainer, GRPOConfig, GRPOTrainer, SFTConfig, SFTTrainer
from trl.models.utils import disable_gradient_checkpointing

__all__ = [
    "DPOConfig",
    "DPOTrainer",
    "GRPOConfig",
    "GRPOTrainer",
    "SFTConfig",
    "SFTTrainer",
    "disable_gradient_checkpointing",
    "missing",
    "plays_by",
]

METHODS: dict[str, tuple[str, ...]] = {
    "GRPOTrainer": (
        "_calculate_rewards",
        "_clip_grad_norm",
        "_compute_loss",
        "_generate_and_score_completions",
        "_get_grad_norm",
        "_get_per_token_logps_and_entropies",
        "_load_from_checkpoint",
        "_load_optimizer_and_scheduler",
        "_load_rng_state",
        "_prepare_inputs",
        "_save_optimizer_and_scheduler",
        "_save_rng_state",
        "create_optimizer",
        "get_batch_samples",
        "training_step",
    ),
    "DPOTrainer": ("_get_grad_norm", "_prepare_dataset", "training_step"),
    "SFTTrainer": ("_get_grad_norm", "training_step"),
}
STATE: tuple[str, ...] = (
    "_buffered_inputs",
    "_entropy_bonus_enabled",
    "_last_loaded_step",
    "_metrics",
    "_step",
    "aux_loss_enabled",
    "beta",
    "current_gradient_accumulation_steps",
    "importance_sampling_level",
    "loss_type",
    "num_generations",
    "reward_weights",
    "top_entropy_quantile",
    "use_vllm",
    "vllm_generation",
    "vllm_importance_sampling_clip_max",
    "vllm_importance_sampling_mode",
)
FIELDS: tuple[str, ...] = (
    "advantages",
    "completion_ids",
    "completion_mask",
    "env_mask",
    "importance_sampling_ratio",
    "num_items_in_batch",
    "old_per_token_logps",
    "prompt_ids",
    "prompt_mask",
    "ref_per_token_logps",
    "tool_mask",
)


def plays_by(rollouts: Callable[..., Any]) -> dict[str, Any]:
    """The argument by which TRL's trainer has its prompts played by ``rollouts``."""
    return {"rollout_func": rollouts}


def missing() -> list[str]:
    """What the installed TRL and transformers lack of what is used here, by name; empty where all is there."""
    classes = {"GRPOTrainer": GRPOTrainer, "DPOTrainer": DPOTrainer, "SFTTrainer": SFTTrainer}
    lacking = [
        f"{name}.{method}" for name, of in METHODS.items() for method in of if not hasattr(classes[name], method)
    ]
    text = "".join(inspect.getsource(sys.modules[each.__module__]) for each in GRPOTrainer.__mro__ if _is_theirs(each))
    lacking += [f"GRPOTrainer.{name}" for name in STATE if not re.search(rf"\bself\.{name}\b", text)]
    lacking += [f"rows of a sampling: {name}" for name in FIELDS if f'"{name}"' not in text]
    (argument,) = plays_by(missing)
    return lacking + [argument] * (argument not in inspect.signature(GRPOTrainer.__init__).parameters)


def _is_theirs(each: type) -> bool:
    return each.__module__.partition(".")[0] in ("trl", "transformers")
