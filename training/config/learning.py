"""How the model learns from what was played or shown."""

from __future__ import annotations

from typing import Literal

from training.config.option import Group, option
from training.words import _


class GrpoConfig(Group):
    """The loss. TRL's GRPOTrainer computes it."""

    beta: float = option(
        0.0,
        title=_("KL weight β"),
        help=_("Pull towards the base model; 0 keeps no reference model in memory. The tool-calling preset uses 0.04."),
        ge=0,
        le=10,
    )
    epsilon: float = option(0.2, title=_("Clip ε"), help=_("Clipping range of the policy ratio."), gt=0, lt=1)
    epsilon_high: float = option(
        0.0,
        title=_("Clip ε above"),
        help=_("Clipping range above 1, where it differs from the range below (clip higher); 0 uses ε for both."),
        ge=0,
        lt=10,
    )
    delta: float = option(
        0.0,
        title=_("Ratio limit δ"),
        help=_("The policy ratio counts at most this much, also for bad rollouts (dual clip); 0 is off."),
        ge=0,
        le=1000,
    )
    entropy_coef: float = option(
        0.0,
        title=_("Entropy weight"),
        help=_("Rewards a policy for staying undecided; 0 is off."),
        ge=0,
        le=1,
    )
    importance_sampling: Literal["token", "sequence"] = option(
        "token",
        title=_("Ratio of"),
        help=_("Unit over which the policy ratio is computed."),
        choices={"token": _("each token (GRPO)"), "sequence": _("the whole rollout (GSPO)")},
    )
    sampler_correction: Literal["token_truncate", "token_mask", "sequence_truncate", "sequence_mask", "off"] = option(
        "token_truncate",
        title=_("Sampler correction"),
        help=_(
            "Where the sampler computes otherwise than the trainer (vLLM, bfloat16), the loss weighs each token, or "
            "each rollout, by the ratio of the two probabilities. A ratio above the limit counts as the limit, or "
            "what it belongs to is left out."
        ),
        choices={
            "token_truncate": _("tokens, at most the limit"),
            "token_mask": _("tokens, none above the limit"),
            "sequence_truncate": _("rollouts, at most the limit"),
            "sequence_mask": _("rollouts, none above the limit"),
            "off": _("none"),
        },
    )
    sampler_ratio_max: float = option(
        3.0,
        title=_("Sampler ratio at most"),
        help=_("Limit of the ratio between the trainer's probability and the sampler's."),
        gt=1,
        le=1000,
    )
    num_iterations: int = option(
        1, title=_("Iterations per batch"), help=_("Optimiser passes over each batch (μ)."), ge=1, le=16
    )
    loss_type: Literal["dapo", "grpo", "bnpo", "dr_grpo"] = option(
        "dapo",
        title=_("Loss"),
        help=_("How token losses are averaged."),
        choices={
            "dapo": _("over all tokens of the step (TRL's default)"),
            "grpo": _("per rollout, then over rollouts"),
            "bnpo": _("over the tokens of the local batch"),
            "dr_grpo": _("over a constant length: no length bias"),
        },
    )
    scale_rewards: Literal["group", "batch", "none"] = option(
        "group",
        title=_("Advantage scale"),
        help=_("What the advantage is divided by."),
        choices={
            "group": _("the group's standard deviation"),
            "batch": _("the batch's standard deviation"),
            "none": _("nothing"),
        },
    )
    mask_truncated: bool = option(
        False, title=_("Mask truncated"), help=_("Exclude rollouts that were cut off from the loss.")
    )


class OptimConfig(Group):
    """The optimiser (AdamW) and its batch."""

    learning_rate: float = option(
        0.0,
        title=_("Learning rate"),
        help=_(
            "Step size. 0 uses the default of the method: 1e-6 for GRPO (1e-5 with LoRA), 2e-5 for SFT (2e-4 "
            "with LoRA). The tiny starter model uses 1e-3."
        ),
        basic=True,
        ge=0,
        le=1,
    )
    micro_batch_size: int = option(
        0,
        title=_("Micro batch"),
        help=_("Rollouts in one forward and backward pass; 0 uses the whole step. Smaller values need less memory."),
        unit=_("rollouts"),
        ge=0,
        le=4096,
    )
    mini_batch_size: int = option(
        0,
        title=_("Mini batch"),
        help=_(
            "Rollouts per update of the weights; 0 uses the whole step. A smaller value makes several updates "
            "from one step's rollouts, and each counts as a step of the run."
        ),
        unit=_("rollouts"),
        ge=0,
        le=1_048_576,
    )
    schedule: Literal["constant", "constant_with_warmup", "linear", "cosine"] = option(
        "constant", title=_("Schedule"), help=_("How the learning rate changes over the run.")
    )
    warmup_steps: int = option(
        0, title=_("Warm-up"), help=_("Steps over which the learning rate rises."), unit=_("steps"), ge=0, le=100000
    )
    warmup_share: float = option(
        0.0,
        title=_("Warm-up share"),
        help=_("The warm-up as a share of all steps, where no number of steps is set above."),
        unit=_("share"),
        ge=0,
        lt=1,
    )
    weight_decay: float = option(0.0, title=_("Weight decay"), help=_("Decay of AdamW."), ge=0, le=1)
    max_grad_norm: float = option(
        1.0, title=_("Gradient limit"), help=_("Gradients are scaled down to this norm."), gt=0, le=1000
    )


class SftConfig(Group):
    """Supervised fine-tuning, used by jobs of kind `sft`."""

    batch_size: int = option(
        64, title=_("Batch size"), help=_("Conversations in one step."), unit=_("rows"), ge=1, le=4096
    )
    max_length: int = option(
        512,
        title=_("Row tokens at most"),
        help=_("Longer conversations are left out and counted."),
        unit=_("tokens"),
        ge=16,
        le=262144,
    )
