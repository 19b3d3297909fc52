"""Changes that a page proposes for a clone or a child, by the name that its address gives them."""

from __future__ import annotations

from collections.abc import Callable

from training.config import JobConfig

HELD_OUT_SHARE = 0.2
EVALUATIONS = 5
REFILL_ROUNDS = 2


def change(config: JobConfig, name: str) -> None:
    """Make the named change in the config that a form begins with; an unknown name changes nothing."""
    if made := CHANGES.get(name):
        made(config)


def _halve_learning_rate(config: JobConfig) -> None:
    config.optim.learning_rate = config.learning_rate / 2


def _double_steps(config: JobConfig) -> None:
    config.run.max_steps *= 2


def _set_refill_rounds(config: JobConfig) -> None:
    config.rollout.refill_rounds = max(config.rollout.refill_rounds, REFILL_ROUNDS)


def _set_outcome_signal(config: JobConfig) -> None:
    config.rewards.signal = "outcome"


def _double_token_limits(config: JobConfig) -> None:
    config.rollout.max_turn_tokens *= 2
    config.rollout.max_completion_tokens *= 2


def _held_out(config: JobConfig) -> None:
    config.evaluate.every = max(1, config.run.max_steps // EVALUATIONS)
    if not config.evaluate.data:
        config.evaluate.share = config.evaluate.share or HELD_OUT_SHARE


CHANGES: dict[str, Callable[[JobConfig], None]] = {
    "slower": _halve_learning_rate,
    "longer": _double_steps,
    "refill": _set_refill_rounds,
    "outcome": _set_outcome_signal,
    "room": _double_token_limits,
    "held-out": _held_out,
}
"""Half the learning rate; twice the steps; other tasks for groups of zero variance; learning only from groups with both
outcomes; twice the tokens; tasks that are held out and evaluated on."""
