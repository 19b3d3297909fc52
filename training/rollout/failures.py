"""When failed rollouts pause a run: too large a share of them, over too many steps in a row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from training.config import RolloutConfig
from training.errors import Boundary, RolloutEnded, StopRequested, TiltyardError, TooManyFailures
from training.events import Event, Held
from training.rollout.finished import Rollout

BAD_STEP_S = 20.0
"""A bad step that took less is followed by a wait for the rest, so that an outage of seconds costs no run."""


class FailureShare:
    """Counts the bad steps of a run. ``rest`` waits so many seconds, and says whether the run was asked to stop."""

    def __init__(self, limit: RolloutConfig, write: Callable[[Event], None], rest: Callable[[float], bool]) -> None:
        self._limit, self._write, self._rest = limit, write, rest
        self._bad_steps: list[Counter[Boundary]] = []

    def check(self, step: int, rollouts: Sequence[Rollout], took_s: float) -> None:
        """Count a step. Raises ``TooManyFailures``, or ``StopRequested`` while it waits."""
        errors = [error for r in rollouts if (error := r.trajectory.error) and not isinstance(error, RolloutEnded)]
        if len(errors) <= self._limit.failure_pause_share * len(rollouts):
            self._bad_steps.clear()
            return
        self._bad_steps.append(Counter(error.boundary for error in errors))
        if len(self._bad_steps) >= self._limit.failure_pause_steps:
            raise self._too_many(errors[0])
        if took_s < BAD_STEP_S:
            self._hold_back(step, errors[0], BAD_STEP_S - took_s)

    def _too_many(self, example: TiltyardError) -> TooManyFailures:
        worst, count = sum(self._bad_steps, Counter()).most_common(1)[0]
        error = TooManyFailures(
            f"More than {self._limit.failure_pause_share:.0%} of the rollouts failed "
            f"in {len(self._bad_steps)} steps in a row; "
            f"{count} failures at the boundary '{worst}'. One of the last: {example.message}",
            hint=example.hint or f"Fix the {worst}, then resume the run.",
        )
        error.boundary = worst
        return error

    def _hold_back(self, step: int, example: TiltyardError, seconds: float) -> None:
        """Wait after a step that failed at once: what made it fail may pass, and the next one would fail as well."""
        left = self._limit.failure_pause_steps - len(self._bad_steps)
        patience_s = (left - 1) * BAD_STEP_S
        tries = len(self._bad_steps)
        self._write(Held(step=step, error=example.info, tries=tries, next_try_s=seconds, patience_left_s=patience_s))
        if self._rest(seconds):
            raise StopRequested("The run was asked to stop.")
        self._write(Held(step=step))
