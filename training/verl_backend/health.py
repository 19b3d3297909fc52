"""Whether updates move the weights at all: what pauses a run on one device pauses one of verl's, too."""

from __future__ import annotations

import math
from collections.abc import Callable

from training.algorithms.updates import SKIPS_IN_A_ROW, Still
from training.config import RunConfig
from training.errors import NoGradient, NotFinite
from training.journal import Event, UpdateSkipped


class Health:
    """Looks at each update of a run."""

    def __init__(self, config: RunConfig, write: Callable[[Event], None]) -> None:
        self._config, self._write = config, write
        self._still, self._skipped = Still(), 0

    def look(self, step: int, loss: float, grad_norm: float) -> None:
        """Raise ``NotFinite`` or ``NoGradient`` once nothing has been learned for as long as the job allows.

        verl leaves the weights as they are where the gradient's norm is no finite number.
        """
        if not math.isfinite(grad_norm):
            self._skipped += 1
            self._write(UpdateSkipped(step=step, what="gradient", in_a_row=self._skipped))
        else:
            self._skipped = 0
        if self._skipped >= SKIPS_IN_A_ROW:
            raise NotFinite(
                f"The gradient was not finite in {self._skipped} updates in a row (up to step {step}); none of them "
                "moved the weights.",
                hint="Lower the learning rate or the gradient limit, or look at the data of these steps; then resume.",
            )
        count, most = self._still.saw({"loss": loss, "grad_norm": grad_norm}), self._config.no_gradient_updates
        if 0 < most <= count:
            raise NoGradient(
                f"Loss and gradient were exactly 0 in {count} updates in a row (up to step {step}), so nothing is "
                "learned.",
                hint="Resume allows as many updates again; run.no_gradient_updates: 0 lets the run continue anyway.",
            )
