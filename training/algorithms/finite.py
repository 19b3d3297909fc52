"""No update from a loss or gradient that is not finite: one NaN would poison weights and AdamW's state for good.

1. ``training_step`` notes a loss that is not finite, and hands 0 on: the trainer sums losses for its log, where a NaN
   would never leave again. The step's own ``loss`` is journalled as NaN.
2. ``_get_grad_norm`` notes a norm that is not finite; clipping would have spread it over all gradients.
3. Before the optimiser's step the gradients of such an update are dropped: weights, momentum and AdamW's step counts
   stay as they are. The update counts as a step, so the schedule of the learning rate goes on.
4. ``SKIPS_IN_A_ROW`` such updates end the run with ``NotFinite``, which pauses it.
5. Updates whose loss and gradient are exactly 0 are counted too (``Still``): a policy that a too large update has
   destroyed is finite, and teaches nothing any more.
"""

from __future__ import annotations

import math
from typing import Any, Literal

SKIPS_IN_A_ROW = 3
STILL_IS_SAID = 3
"""Updates in a row without a gradient after which the log says so."""
NO_CHOICE = 0.05
"""Nats of entropy a token below which a policy that has no gradient has no choice left either."""


class Finite:
    """What was seen in the update being made, and how many in a row were not finite."""

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
        """What of the update was not finite, if anything. The next update begins with nothing seen."""
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
        """Count an update by its metrics; a gradient that nobody measured is none that is 0."""
        still = figures.get("loss") == 0 and figures.get("grad_norm") == 0
        self.in_a_row = self.in_a_row + 1 if still else 0
        return self.in_a_row


class FiniteUpdates:
    """Mixin of a ``transformers.Trainer``: tells ``finite`` about each loss and each gradient norm."""

    finite: Finite

    def training_step(self, *args: Any, **kwargs: Any) -> Any:
        """One micro batch, forward and backward."""
        return self.finite.saw_loss(super().training_step(*args, **kwargs))  # type: ignore[misc]

    def _get_grad_norm(self, *args: Any, **kwargs: Any) -> Any:
        norm = super()._get_grad_norm(*args, **kwargs)  # type: ignore[misc]
        self.finite.saw_norm(norm)
        return norm
