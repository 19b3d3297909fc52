"""The figures of a step under our names: of verl's, and of the facts that came with its rows. Also whether its update
moved the weights at all: what pauses a run on one device pauses one of verl's."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from training.algorithms.updates import SKIPS_IN_A_ROW, Still
from training.config import JobConfig, RunConfig
from training.errors import Boundary, NoGradient, NotFinite, TiltyardError
from training.journal import Event, UpdateSkipped
from training.rewards.combining import group_statistics
from training.rewards.scoring import components_of
from training.rollout.figures import sample_figures, step_figures
from training.rollout.trajectory import Rollout, Trajectory

OURS = {
    "actor/loss": "loss",
    "actor/grad_norm": "grad_norm",
    "actor/kl": "kl",
    "actor/lr": "learning_rate",
    "actor/entropy": "entropy",
    "actor/clipped": "clip_ratio/region_mean",
    "actor/clipped_low": "clip_ratio/low_mean",
    "actor/clipped_high": "clip_ratio/high_mean",
    "timing_s/step": "timing/step",
    "timing_s/gen": "timing/generation",
    "timing_s/update": "timing/training",
    "timing_s/update_weights": "sampling/sync_seconds",
}
"""verl's names of figures, or of what our loss and our trainer add to them, and ours."""


def renamed(figures: Mapping[str, Any]) -> dict[str, float]:
    """verl's figures that we have names for; one that is no finite number is left out."""
    found = {ours: figures[theirs] for theirs, ours in OURS.items() if theirs in figures}
    return {name: float(value) for name, value in found.items() if math.isfinite(value)}


def played_figures(rollouts: Sequence[Rollout], config: JobConfig, step: int) -> dict[str, float]:
    """Figures of a step's rollouts, group after group. Those that need the messages are left out."""
    size = config.group_size
    groups = [rollouts[begin : begin + size] for begin in range(0, len(rollouts), size)]
    statistics = [group_statistics([rollout.reward for rollout in group]) for group in groups]
    return step_figures(rollouts, statistics) | sample_figures(rollouts, size, components_of([config]), step)


def rollout_of(fact: Mapping[str, Any]) -> Rollout:
    """The rollout that the facts are of, without what was said in it."""
    names = ("status", "turns", "env_parts", "env_errors", "latencies", "sampled", "ended")
    kept = {name: fact[name] for name in names}
    error = made_of(fact["error"]) if fact["error"] is not None else None
    played = Trajectory(mask=[1] * fact["tokens"], error=error, **kept)
    return Rollout(fact["name"], fact["row"], played, fact["parts"], fact["reward"])


def fatal_of(facts: Sequence[Mapping[str, Any]]) -> TiltyardError | None:
    """The error that ends the run, as the first process that met one has it."""
    return next((made_of(fact["fatal"]) for fact in facts if "fatal" in fact), None)


def made_of(values: Mapping[str, Any]) -> TiltyardError:
    """The error that another process has handed over as plain values."""
    error = TiltyardError(values["message"], hint=values["hint"])
    error.code, error.boundary, error.pauses = values["code"], Boundary(values["boundary"]), values["pauses"]
    return error


# Whether updates move the weights at all: what pauses a run on one device pauses one of verl's, too.


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
