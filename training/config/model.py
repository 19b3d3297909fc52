"""What is trained, and on what."""

from __future__ import annotations

from typing import Literal

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
