"""What moves the weights, and in what batches."""

from __future__ import annotations

from typing import ClassVar, Literal

from training.config.option import Group, option
from training.words import _

Optimizer = Literal[
    "adamw", "adamw_bf16", "adamw_offload", "adamw_8bit", "paged_adamw", "paged_adamw_8bit", "adafactor"
]
BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8


class OptimConfig(Group):
    """The optimiser (AdamW) and its batch."""

    of_bitsandbytes: ClassVar[frozenset[str]] = frozenset({"adamw_8bit", "paged_adamw", "paged_adamw_8bit"})
    learning_rate: float = option(
        0.0,
        title=_("Learning rate"),
        help=_(
            "Step size. 0 uses the default of the method: 1e-6 for GRPO, RLOO, PPO and DPO (1e-5 with LoRA), 2e-5 "
            "for SFT (2e-4 with LoRA). The tiny starter model uses 1e-3."
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
    max_tokens_per_micro_batch: int = option(
        0,
        title=_("Tokens of a micro batch"),
        help=_(
            "Instead of a number of rollouts: as many as together, each padded to the longest, have at most so many "
            "tokens. Short rollouts then share a pass, and a long one has its own. 0 goes by rollouts."
        ),
        unit=_("tokens"),
        ge=0,
        le=16_777_216,
    )
    packing: bool = option(
        False,
        title=_("Pack rollouts"),
        help=_(
            "The rollouts of a micro batch follow each other in one row without any padding, and do not see each "
            "other: the same gradient. With a limit of tokens a micro batch then holds so many real ones. Models whose "
            "layers would mix up the rollouts are refused when the run starts."
        ),
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
    optimizer: Optimizer = option(
        "adamw",
        title=_("Optimiser"),
        help=_("The optimiser that updates the weights; the memory of a job shows what it keeps for each of them."),
        choices={
            "adamw": _("AdamW, two moments in the precision of the weights"),
            "adamw_bf16": _("AdamW, moments in bfloat16, the second rounded at random: half as much"),
            "adamw_offload": _("AdamW, moments in the processor's memory: slower updates"),
            "adamw_8bit": _("AdamW, moments in 8 bits (bitsandbytes, CUDA): a quarter"),
            "paged_adamw": _("AdamW, moments that leave the GPU when it is full (bitsandbytes, CUDA)"),
            "paged_adamw_8bit": _("both of the last two (bitsandbytes, CUDA)"),
            "adafactor": _("Adafactor: sums of rows and columns, no momentum: hardly anything"),
        },
    )
    beta1: float = option(
        BETA1, title="β₁", help=_("How much of the mean gradient stays in an update of AdamW."), ge=0, lt=1
    )
    beta2: float = option(
        BETA2, title="β₂", help=_("How much of the mean squared gradient stays in an update of AdamW."), gt=0, lt=1
    )
    epsilon: float = option(
        EPSILON, title="ε", help=_("Added to the root of the squared gradients that AdamW divides by."), gt=0, le=1
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
