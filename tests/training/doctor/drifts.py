"""Faults that come little by little, or that only a whole run shows: 300 healthy steps, and one fault of each kind."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

from tests.training.doctor.planted import STEPS as SHORT
from tests.training.doctor.planted import Fault, curve, healthy_step
from training.doctor.digest import StepFacts

STEPS = 300


def long_healthy(seed: int = 1, steps: int = STEPS) -> Iterator[StepFacts]:
    """The healthy run at a fifth of its pace; half of the reward is paid for the answer and little for its form."""
    draw = random.Random(seed)
    for step in range(1, steps + 1):
        facts = healthy_step(max(1, step * SHORT // steps), draw)
        parts = {"rewards/correct/mean": facts.metrics["rollouts/task_success"], "rewards/format/mean": 0.9}
        yield replace(facts, step=step, metrics=facts.metrics | parts)


class Drift(NamedTuple):
    """``fault`` changes each step from the first on; the advisory opens between the two steps."""

    code: str
    fault: Fault
    after: int
    before: int


def curves(**values: Callable[[StepFacts], float]) -> Fault:
    named = {name.replace("__", "/"): value for name, value in values.items()}
    return lambda facts: replace(facts, metrics=facts.metrics | {name: value(facts) for name, value in named.items()})


def ramp(low: float, high: float) -> Callable[[StepFacts], float]:
    return lambda facts: low + (high - low) * facts.step / STEPS


def from_step(step: int, before: float, since: float) -> Callable[[StepFacts], float]:
    return lambda facts: since if facts.step >= step else before


def around(level: float, much: float) -> Callable[[StepFacts], float]:
    """Noise that is the same each time."""
    return lambda facts: level + much * (random.Random(facts.step).random() - 0.5)


def _stops_learning(facts: StepFacts) -> StepFacts:
    level = 0.3 + 0.3 * min(facts.step, 120) / 120 + 0.02 * (random.Random(facts.step).random() - 0.5)
    return replace(facts, metrics=facts.metrics | {"rollouts/task_success": level})


def _paid(facts: StepFacts, success: float) -> StepFacts:
    """The reward rises by too little in 64 steps to be noticed; held-out tasks are played every 25 steps."""
    kept = {name: value for name, value in facts.metrics.items() if name != "heldout/success"}
    kept["reward"] = 0.3 + 0.5 * facts.step / STEPS
    if facts.step % 25 == 0:
        kept["heldout/success"] = success
    return replace(facts, metrics=kept)


def _past_its_best(facts: StepFacts) -> StepFacts:
    """Success rises to 50% and falls to 30%, which is more than it was at first."""
    return _paid(facts, 0.5 - 0.4 * max(0, 150 - facts.step) / 150 - 0.2 * max(0, facts.step - 150) / 150)


def _never_better(facts: StepFacts) -> StepFacts:
    return _paid(facts, 0.4 + 0.01 * (facts.step % 2))


def _farmed(facts: StepFacts) -> StepFacts:
    """The part about the answer rises to 0.4 and stops; then form is learned, to the full."""
    correct = 0.1 + 0.3 * min(facts.step, 100) / 100 + 0.01 * (random.Random(facts.step).random() - 0.5)
    form = min(1.0, 0.2 + 0.8 * max(0, facts.step - 100) / 60)
    return replace(facts, metrics=facts.metrics | {"rewards/correct/mean": correct, "rewards/format/mean": form})


DRIFTS = [
    Drift("plateau", _stops_learning, 150, 220),
    Drift("slowing", curves(timing__step=ramp(20, 60)), 160, 240),
    Drift("wasted_hours", curves(timing__step=lambda _: 100.0, groups__zero_variance_share=lambda _: 0.4), 90, 90),
    Drift(
        "dominant_part",
        curves(rewards__correct__mean=around(0.03, 0.01), rewards__format__mean=around(0.95, 0.1)),
        100,
        100,
    ),
    Drift("dominant_part", _farmed, 160, 240),
    Drift(
        "dominant_part",
        curves(
            rewards__correct__mean=lambda _: 0.1,
            rewards__correct__std=lambda _: 0.1,
            rewards__format__mean=lambda _: 0.5,
            rewards__format__std=lambda _: 0.25,
        ),
        100,
        100,
    ),
    Drift("kl_drift", curves(kl=ramp(0, 1.5)), 201, 206),
    Drift("no_spread", curve("groups/zero_variance_share", from_step(100, 0.2, 0.6)), 135, 140),
    Drift("truncation", curve("rollouts/truncated_share", from_step(100, 0.0, 0.25)), 137, 141),
    Drift("truncation", curve("rollouts/truncated_share", ramp(0.0, 0.48)), 150, 152),
    Drift(
        "length_explosion",
        curves(completions__mean_length=ramp(100, 400), heldout__success=around(0.4, 0.02)),
        150,
        200,
    ),
    Drift("over_optimisation", _past_its_best, 275, 300),
    Drift("over_optimisation", _never_better, 75, 150),
    Drift("gradient_spike", curve("grad_norm", lambda facts: 0.4 * 1.04 ** max(0, facts.step - 120)), 180, 280),
]
