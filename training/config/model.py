"""The model, its data, and the optimiser."""

from __future__ import annotations

from typing import ClassVar, Literal

from training.config.option import Group, option
from training.words import OptionError, _, sentence


class ModelConfig(Group):
    """The model that is trained, and how it is held in memory."""

    source: str = option(
        "starter",
        title=_("Base model"),
        help=_(
            "The model to train: `starter` builds a tiny one from scratch, or a registered model, "
            "a Hugging Face id, or a local folder with safetensors weights."
        ),
        basic=True,
        widget="model",
        min_length=1,
        max_length=500,
    )
    revision: str = option(
        "",
        title=_("Revision"),
        help=_("Commit of a Hugging Face model. Empty uses the newest one and records which it was."),
        max_length=64,
        pattern=r"^[A-Za-z0-9._/-]*$",
    )
    dtype: Literal["auto", "float32", "bfloat16"] = option(
        "auto",
        title=_("Number format"),
        help=_(
            "Precision of the weights. `auto` is float32, except below a LoRA adapter on a GPU, where it is "
            "bfloat16: small updates of all weights would be lost in bfloat16's rounding."
        ),
    )
    quantization: Literal["none", "nf4"] = option(
        "none",
        title=_("Quantised base"),
        help=_(
            "Hold the base below a LoRA adapter in 4 bits (QLoRA): a quarter of bfloat16's memory, and slower steps. "
            "Needs a CUDA GPU. The merged model is made of the base as it was."
        ),
        choices={"none": _("no"), "nf4": _("4 bits, NF4")},
    )
    attention: Literal["auto", "sdpa", "eager", "flash_attention_2"] = option(
        "auto",
        title=_("Attention"),
        help=_(
            "The implementation of attention in training. `auto` is PyTorch's own where the model supports it. "
            "FlashAttention 2 needs a CUDA GPU with bfloat16 and the package flash-attn."
        ),
        choices={
            "auto": _("what suits the model"),
            "sdpa": _("PyTorch's own"),
            "eager": _("written out: slow, for comparison"),
            "flash_attention_2": "FlashAttention 2",
        },
    )
    gradient_checkpointing: bool = option(
        False,
        title=_("Gradient checkpointing"),
        help=_("Recompute activations in the backward pass: about 30% slower, far less memory."),
    )
    lora_rank: int = option(
        0,
        title=_("LoRA rank"),
        help=_("Rank of a LoRA adapter that is trained instead of all weights; 0 trains all weights."),
        ge=0,
        le=512,
        basic=True,
    )
    lora_alpha: int = option(
        0,
        title=_("LoRA alpha"),
        help=_("The adapter counts alpha / rank; 0 is twice the rank, so that it counts 2 whatever its rank."),
        ge=0,
        le=1024,
    )
    lora_rslora: bool = option(
        False,
        title=_("rsLoRA"),
        help=_("The adapter counts alpha / √rank, so that a high rank learns as fast as a low one. Needs an alpha."),
    )
    lora_dropout: float = option(
        0.0, title=_("LoRA dropout"), help=_("Share of the adapter's inputs that is dropped in training."), ge=0, lt=1
    )
    lora_targets: str = option(
        "all-linear",
        title=_("LoRA targets"),
        help=_("Layers that get an adapter: `all-linear`, or names separated by commas, such as `q_proj,v_proj`."),
        min_length=1,
        max_length=500,
        pattern=r"^[A-Za-z0-9_.-]+(,[A-Za-z0-9_.-]+)*$",
    )

    @property
    def adapter_alpha(self) -> int:
        """LoRA's alpha as the adapter has it."""
        return self.lora_alpha or 2 * self.lora_rank

    @property
    def from_hub(self) -> bool:
        """Whether the source is the id of a Hugging Face model, where no folder has its name."""
        return self.source.count("/") == 1 and not self.source.startswith((".", "/", "~")) and ":" not in self.source


class DataConfig(Group):
    """What the model is trained on."""

    train: str = option(
        "",
        title=_("Training dataset"),
        help=_("One task per row. A registered dataset, or the path of a JSONL file of conversations."),
        basic=True,
        widget="dataset",
        max_length=500,
    )
    max_rows: int = option(
        0,
        title=_("Rows used at most"),
        help=_("Only the first rows are used; 0 uses all."),
        unit=_("rows"),
        ge=0,
    )
    shuffle: bool = option(True, title=_("Shuffle"), help=_("Draw the rows in a random order set by the seed."))
    draw: Literal["order", "pass_rate"] = option(
        "order",
        title=_("Drawing of tasks"),
        help=_(
            "The tasks that a run plays next where it learns from rollouts: every task equally often, or those that "
            "are solved sometimes more often. Solved and hopeless ones are then drawn less, but never left out."
        ),
        choices={
            "order": _("one after another, all of them before any comes again"),
            "pass_rate": _("by their own pass rate: those that are solved sometimes are drawn more"),
        },
    )
    draw_even_share: float = option(
        0.1,
        title=_("Drawn evenly"),
        help=_(
            "With tasks drawn by pass rate: this share of the chances is the same for all tasks; 1 draws all evenly."
        ),
        unit=_("share"),
        ge=0,
        le=1,
    )
    draw_prior: float = option(
        1.0,
        title=_("Weight of the prior"),
        help=_(
            "With tasks drawn by pass rate: a task that was never played counts as half solved, as if by so many "
            "rollouts. The lower, the sooner a task counts as solved or hopeless."
        ),
        unit=_("rollouts"),
        ge=0.01,
        le=100,
    )
    draw_half_life: int = option(
        50,
        title=_("Half-life of evidence"),
        help=_(
            "With tasks drawn by pass rate: after so many samplings a rollout counts half, because the policy has "
            "changed since; so every task is tried again. 0: all always count the same."
        ),
        unit=_("samplings"),
        ge=0,
        le=1_000_000,
    )

    def check_draw(self, learns: bool) -> None:
        """Raise ``OptionError`` where tasks cannot be drawn so. ``learns``: whether the job learns from rollouts."""
        if self.draw == "order":
            return
        if not learns:
            text = _("only a run that learns from rollouts sees how often a task is solved: choose one after another")
            raise OptionError("data.draw", sentence(text))
        if not self.shuffle:
            text = _("tasks that are drawn by their pass rate have no order of the file: turn this on")
            raise OptionError("data.shuffle", sentence(text))


# What moves the weights, and in what batches.

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
