"""The optimiser of a job, and figures of an update from those of its micro batches."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any, Literal

import torch
from torch import Tensor

from training.algorithms.loading import BITSANDBYTES
from training.config import JobConfig
from training.errors import ConfigError

# The optimiser of a job, as the trainer takes it.

# --- Moments --------------------------------------------------------------------------------------------------------
# AdamW whose moments take less room on the device: in bfloat16, or in the processor's memory.
#
# The update is AdamW's (Loshchilov and Hutter 2019) in float32, whatever its moments are kept in.
#
# - *bfloat16*: a second moment moves by a thousandth in an update (β₂ 0.999), and bfloat16 knows steps of a 256th:
#   rounded to the nearest it would never move again. So it is rounded up or down at random, by how near each is; the
# mean stays.
# - *offload*: a weight's moments travel to the device for its update and back. What is there at once are those of one
#   weight tensor, the largest at most.

MOMENTS = ("exp_avg", "exp_avg_sq")
_HALF_BITS = 16
"""The bits of a float32 that bfloat16 does not have."""


class SmallAdamW(torch.optim.Optimizer):
    """``dtype``: of the moments; ``offload`` keeps them in the processor's memory."""

    def __init__(
        self,
        params: Iterable[Any],
        *,
        lr: float,
        betas: tuple[float, float],
        eps: float,
        dtype: torch.dtype = torch.float32,
        offload: bool = False,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})
        self._dtype, self._offload = dtype, offload

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:  # type: ignore[override]
        """One update of every weight that has a gradient."""
        loss = closure() if closure is not None else None
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._update(parameter, group)
        return loss

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """As saved: torch would bring moments to the weights' device and precision."""
        super().load_state_dict(state_dict)
        for parameter, state in self.state.items():
            for name in MOMENTS:
                state[name] = state[name].to(self._device_of(parameter), self._dtype)

    def _device_of(self, parameter: Tensor) -> torch.device:
        return torch.device("cpu") if self._offload else parameter.device

    def _update(self, parameter: Tensor, group: dict[str, Any]) -> None:
        state = self.state[parameter]
        if not state:
            state["step"] = 0
            for name in MOMENTS:
                state[name] = torch.zeros(parameter.shape, dtype=self._dtype, device=self._device_of(parameter))
        state["step"] += 1
        beta1, beta2 = group["betas"]
        grad = parameter.grad.float()  # type: ignore[union-attr]
        first, second = (state[name].to(parameter.device, torch.float32) for name in MOMENTS)
        first = first.lerp(grad, 1 - beta1)
        second = second * beta2 + (1 - beta2) * grad * grad
        root = (second / (1 - beta2 ** state["step"])).sqrt_().add_(group["eps"])
        moved = parameter.float() * (1 - group["lr"] * group["weight_decay"])
        parameter.copy_(moved.addcdiv_(first, root, value=-group["lr"] / (1 - beta1 ** state["step"])))
        state["exp_avg"].copy_(first)
        state["exp_avg_sq"].copy_(rounded_at_random(second) if self._dtype == torch.bfloat16 else second)


def rounded_at_random(values: Tensor) -> Tensor:
    """float32 values as bfloat16, up or down with a chance by how near each is. Draws from torch's own generator."""
    noise = torch.randint_like(values, 1 << _HALF_BITS, dtype=torch.int32)
    bits = (values.contiguous().view(torch.int32) + noise) & -(1 << _HALF_BITS)
    return bits.view(torch.float32).to(torch.bfloat16)


OPTION = "optim.optimizer"
OF_TRANSFORMERS = {
    "adamw_8bit": "adamw_bnb_8bit",
    "paged_adamw": "paged_adamw_32bit",
    "paged_adamw_8bit": "paged_adamw_8bit",
    "adafactor": "adafactor",
}
"""Those that the trainer makes by itself, by transformers' name."""
OURS: dict[str, dict[str, Any]] = {"adamw_bf16": {"dtype": torch.bfloat16}, "adamw_offload": {"offload": True}}


def optimizer_arguments(config: JobConfig, device: str) -> dict[str, Any]:
    """Arguments of ``transformers.TrainingArguments``. Raises ``ConfigError`` for one that cannot be made here."""
    chosen = config.optim
    if chosen.optimizer in chosen.of_bitsandbytes:
        _require_bitsandbytes(chosen.optimizer, device)
    named = OF_TRANSFORMERS.get(chosen.optimizer)
    settings = {"adam_beta1": chosen.beta1, "adam_beta2": chosen.beta2, "adam_epsilon": chosen.epsilon}
    return settings | ({"optim": named} if named else {})


def use_optimizer(trainer: Any, config: JobConfig) -> None:
    """Have the trainer make one of ours, where the job wants it."""
    chosen = config.optim
    if chosen.optimizer in OURS:
        settings = {"lr": config.learning_rate, "betas": (chosen.beta1, chosen.beta2), "eps": chosen.epsilon}
        trainer.optimizer_cls_and_kwargs = (SmallAdamW, settings | OURS[chosen.optimizer])


def _require_bitsandbytes(name: str, device: str) -> None:
    if device != "cuda":
        hint = "Choose adamw, adamw_bf16 or adafactor, or a CUDA device."
        raise ConfigError(f"{name} is bitsandbytes', which needs a CUDA GPU.", option=OPTION, hint=hint)
    if find_spec("bitsandbytes") is None:
        raise ConfigError(f"{name} needs bitsandbytes, which is not installed.", option=OPTION, hint=f"{BITSANDBYTES}.")


# Figures of an update from those of its micro batches.
#
# TRL appends a figure for each micro batch and averages them, so that a micro batch of one long rollout counts as much
# as one of sixty short ones, and the figure depends on how rows were dealt. Here each is weighed by what it is a mean
# of.

Unit = Literal["tokens", "ratios", "rows"]
MEANS: dict[str, Unit] = {
    "entropy": "tokens",
    "kl": "tokens",
    "clip_ratio/low_mean": "ratios",
    "clip_ratio/high_mean": "ratios",
    "clip_ratio/region_mean": "ratios",
    "cispo_clip_ratio": "ratios",
    "vespo/phi_seq_mean": "rows",
}
"""What TRL 1.16 takes a figure's mean over; ``ratios`` are tokens, or rows where the ratio is of the whole rollout."""
EXTREMES = {"clip_ratio/low_min": min, "clip_ratio/high_max": max}


class UpdateFigures:
    """The figures of the update being made."""

    def __init__(self, *, ratio_of_rows: bool = False) -> None:
        self._ratio_of_rows = ratio_of_rows
        self._weights: dict[str, float] = {}

    @contextmanager
    def of_micro_batch(self, metrics: dict[str, Any], inputs: dict[str, Any]) -> Iterator[None]:
        """Within the block one micro batch appends to ``metrics["train"]``; afterwards they are the update's so far."""
        whole, metrics["train"] = metrics["train"], defaultdict(list)
        try:
            yield
        finally:
            found, metrics["train"] = metrics["train"], whole
        tokens = float((inputs["completion_mask"] * inputs.get("tool_mask", 1)).sum())
        weights: dict[Unit, float] = {"tokens": tokens, "rows": float(len(inputs["advantages"]))}
        weights["ratios"] = weights["rows" if self._ratio_of_rows else "tokens"]
        for name, values in found.items():
            if name in MEANS:
                self.add(whole, name, values[0], weights[MEANS[name]])
            elif name in EXTREMES:
                whole[name] = [EXTREMES[name](whole[name] + values)]
            else:
                whole[name] += values

    def add(self, metrics: dict[str, list[float]], name: str, value: float, weight: float) -> None:
        """Add a mean over ``weight`` things to the one of all before, which ``metrics`` holds; TRL empties it after an
        update."""
        before = self._weights.get(name, 0.0) if metrics[name] else 0.0
        self._weights[name] = whole = before + weight
        if whole > 0:
            metrics[name] = [((metrics[name][0] * before if before else 0.0) + value * weight) / whole]


# --- Finite ---------------------------------------------------------------------------------------------------------
# No update from a loss or gradient that is not finite: one NaN would poison weights and AdamW's state for good.
#
# 1. ``training_step`` notes a loss that is not finite, and hands 0 on: the trainer sums losses for its log, where a NaN
#    would never leave again. The step's own ``loss`` is journalled as NaN.
# 2. ``_get_grad_norm`` notes a norm that is not finite; clipping would have spread it over all gradients.
# 3. Before the optimiser's step the gradients of such an update are dropped: weights, momentum and AdamW's step counts
#    stay as they are. The update counts as a step, so the schedule of the learning rate continues.
# 4. ``SKIPS_IN_A_ROW`` such updates end the run with ``NotFinite``, which pauses it.
# 5. Updates whose loss and gradient are exactly 0 are counted too (``Still``): a policy that a too large update has
#    destroyed is finite, and teaches nothing any more.

SKIPS_IN_A_ROW = 3
STILL_IS_SAID = 3
"""Updates in a row without a gradient after which the log says so."""
NO_CHOICE = 0.05
"""Nats of entropy a token below which a policy that has no gradient has no choice left either."""


class Finite:
    """The loss and norm of the update being made, and how many in a row were not finite."""

    def __init__(self) -> None:
        self._loss: Any = None
        self._norm: Any = None
        self.in_a_row = 0

    def saw_loss(self, loss: Any) -> Any:
        """Note the loss of a micro batch; returns it, or 0 where it is not finite. Nothing waits for the device."""
        import torch

        bad = ~torch.isfinite(loss)
        self._loss = bad if self._loss is None else self._loss | bad
        return torch.where(bad, torch.zeros_like(loss), loss)

    def saw_norm(self, norm: Any) -> None:
        """Note the norm of the update's gradients."""
        self._norm = norm

    def verdict(self) -> Literal["loss", "gradient"] | None:
        """The part of the update that was not finite, if any. The next update begins with nothing seen."""
        loss = self._loss is not None and bool(self._loss)
        gradient = self._norm is not None and not math.isfinite(float(self._norm))
        self._loss = self._norm = None
        self.in_a_row = self.in_a_row + 1 if loss or gradient else 0
        return "loss" if loss else "gradient" if gradient else None


class Still:
    """How many updates in a row had a loss and a gradient of exactly 0: float noise of a healthy one is never 0."""

    def __init__(self) -> None:
        self.in_a_row = 0

    def saw(self, figures: dict[str, float]) -> int:
        """Count an update by its metrics; a gradient that was not measured is none that is 0."""
        still = figures.get("loss") == 0 and figures.get("grad_norm") == 0
        self.in_a_row = self.in_a_row + 1 if still else 0
        return self.in_a_row


class FiniteUpdates:
    """Mixin of a ``transformers.Trainer``: gives ``finite`` each loss and each gradient norm."""

    finite: Finite

    def training_step(self, *args: Any, **kwargs: Any) -> Any:
        """One micro batch, forward and backward."""
        return self.finite.saw_loss(super().training_step(*args, **kwargs))  # type: ignore[misc]

    def _get_grad_norm(self, *args: Any, **kwargs: Any) -> Any:
        norm = super()._get_grad_norm(*args, **kwargs)  # type: ignore[misc]
        self.finite.saw_norm(norm)
        return norm
