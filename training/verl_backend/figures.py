"""The figures of a step under our names: of verl's, and of the facts that came with its rows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from training.config import JobConfig
from training.errors import Boundary, TiltyardError
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
