"""verl counts samplings, a run counts updates of the weights: each number in terms of the other.

Sampling ``n`` (from 1) makes ``updates`` of a run's steps, of which the first names its rollouts, as on one device.
"""

from __future__ import annotations

import math

from training.config import JobConfig


def first_step(sampling: int, updates: int) -> int:
    """The step of a sampling's first update."""
    return (sampling - 1) * updates + 1


def steps_of(sampling: int, updates: int) -> range:
    """The steps that a sampling makes."""
    first = first_step(sampling, updates)
    return range(first, first + updates)


def sampled_for(step: int, updates: int) -> int:
    """The step whose rollouts ``step`` learns from: the first of its sampling."""
    return step - (step - 1) % updates


def warmup_steps(config: JobConfig) -> int:
    """Over how many steps the learning rate rises; a constant one does not."""
    chosen = config.optim
    if chosen.schedule == "constant":
        return 0
    return chosen.warmup_steps or round(chosen.warmup_share * config.run.max_steps)


def rate_of(config: JobConfig, step: int) -> float:
    """The learning rate of a step's update, by verl's constant and cosine schedules."""
    done, rises = step - 1, warmup_steps(config)
    if done < rises:
        return config.learning_rate * done / rises
    if config.optim.schedule != "cosine":
        return config.learning_rate
    share = (done - rises) / max(1, config.run.max_steps - rises)
    return config.learning_rate * max(0.0, 0.5 * (1 + math.cos(math.pi * share)))
