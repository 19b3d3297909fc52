"""The optimiser of a job, as the trainer takes it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from training.algorithms.loading import BITSANDBYTES
from training.config import JobConfig
from training.errors import ConfigError

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
