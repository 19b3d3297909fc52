"""Changes that a page proposes for a clone or a child, by the name that its address gives them."""

from __future__ import annotations

from collections.abc import Callable

from training.config import JobConfig

HELD_OUT_SHARE = 0.2
EVALUATIONS = 5
REFILL_ROUNDS = 2


def change(config: JobConfig, name: str) -> None:
    """Make the change in the config that a form begins with; a name that nothing has changes nothing."""
    if made := CHANGES.get(name):
        made(config)


def _slower(config: JobConfig) -> None:
    config.optim.learning_rate = config.learning_rate / 2


def _longer(config: JobConfig) -> None:
    config.run.max_steps *= 2


def _refill(config: JobConfig) -> None:
    config.rollout.refill_rounds = max(config.rollout.refill_rounds, REFILL_ROUNDS)


def _outcome(config: JobConfig) -> None:
    config.rewards.signal = "outcome"


def _room(config: JobConfig) -> None:
    config.rollout.max_turn_tokens *= 2
    config.rollout.max_completion_tokens *= 2


def _held_out(config: JobConfig) -> None:
    config.evaluate.every = max(1, config.run.max_steps // EVALUATIONS)
    if not config.evaluate.data:
        config.evaluate.share = config.evaluate.share or HELD_OUT_SHARE


CHANGES: dict[str, Callable[[JobConfig], None]] = {
    "slower": _slower,
    "longer": _longer,
    "refill": _refill,
    "outcome": _outcome,
    "room": _room,
    "held-out": _held_out,
}
"""Half the learning rate; twice the steps; other tasks for groups without spread; learning only from groups with both
outcomes; twice the tokens; tasks that are held out and evaluated on."""
