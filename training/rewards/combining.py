"""From raw component values to one reward, and to the advantages of a group.

A component's *term* is its raw value, clipped, then scaled, times the factor of its schedule; it is 0 where its gate is
closed, and absent where the row is not of its categories. The reward is the sum of weights times terms. Terms follow
from the raw values alone, so recorded rollouts are weighed again without scoring them again.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal

from training.config import RewardComponent, RewardSchedule
from training.rewards.advantages import SCALE_EPSILON, group_statistics, mean_of, reward_std

SCHEDULES_ENDED = 2**31 - 1
"""The step that an evaluation weighs at: its steps overlap, so a schedule would pay by the moment a rollout ended."""
Aggregation = Literal["sum_then_normalize", "normalize_then_sum"]
Scale = Literal["group", "batch", "none"]
Terms = Mapping[str, float] | None
"""Terms by component; ``None`` stands for an excluded rollout."""


def counts_for(component: RewardComponent, categories: set[str]) -> bool:
    """Whether a component is computed for a row of these categories."""
    return not component.categories or not categories.isdisjoint(component.categories)


def factor(schedule: RewardSchedule | None, step: int) -> float:
    """What a schedule multiplies the weight by at a step; 1 without one."""
    if schedule is None:
        return 1.0
    if step >= schedule.end:
        return schedule.last
    if schedule.kind == "step" or step <= schedule.begin:
        return schedule.first
    way = (step - schedule.begin) / (schedule.end - schedule.begin)
    return schedule.first + way * (schedule.last - schedule.first)


def term_of(item: RewardComponent, parts: Mapping[str, float], step: int = 0) -> float | None:
    """What a component's raw value becomes before its weight; ``None`` where it has none."""
    value = parts.get(item.name)
    if value is None:
        return None
    if item.gate is not None and not parts.get(item.gate.component, -math.inf) > item.gate.above:
        return 0.0
    if item.clip is not None:
        value = min(max(value, item.clip[0]), item.clip[1])
    if item.scale is not None:
        value = (value - item.scale[0]) / (item.scale[1] - item.scale[0])
    return value if item.schedule is None else value * factor(item.schedule, step)


def terms_of(parts: Mapping[str, float], components: Sequence[RewardComponent], step: int = 0) -> dict[str, float]:
    """The terms of the components that have a raw value."""
    terms = ((item.name, term_of(item, parts, step)) for item in components)
    return {name: term for name, term in terms if term is not None}


def total_of(terms: Mapping[str, float], components: Sequence[RewardComponent]) -> float:
    """The weighted sum of the terms; beyond the range of a float, NaN."""
    try:
        return math.fsum(item.weight * terms[item.name] for item in components if item.name in terms)
    except (OverflowError, ValueError):  # a sum beyond the range, or of opposite infinities
        return math.nan


def advantages(
    rollouts: Sequence[Terms],
    components: Sequence[RewardComponent],
    group_size: int,
    *,
    aggregation: Aggregation = "sum_then_normalize",
    scale: Scale = "group",
) -> list[float | None]:
    """The advantages of a batch of whole groups as TRL 1.16 computes them; ``None`` for excluded rollouts.

    ``normalize_then_sum`` compares each term within its group, sums, and then compares within the batch; ``scale`` has
    no part in it.
    """
    if len(rollouts) % group_size:
        raise ValueError("The batch does not consist of whole groups.")
    if aggregation == "sum_then_normalize":
        rewards = [None if terms is None else total_of(terms, components) for terms in rollouts]
        batch_std = reward_std(rewards) if scale == "batch" else None
        found: list[float | None] = []
        for start in range(0, len(rewards), group_size):
            group = rewards[start : start + group_size]
            found += group_statistics(group, scale=scale, batch_std=batch_std).advantages
        return found
    sums = _summed(rollouts, components, group_size)
    return group_statistics(sums, scale="group").advantages


def _summed(rollouts: Sequence[Terms], components: Sequence[RewardComponent], size: int) -> list[float | None]:
    """Weighted sums of terms that were normalised within their groups."""
    sums: list[float | None] = [None if terms is None else 0.0 for terms in rollouts]
    for item in components:
        for start in range(0, len(rollouts), size):
            values = [None if terms is None else terms.get(item.name) for terms in rollouts[start : start + size]]
            for offset, value in enumerate(normalised(values)):
                so_far = sums[start + offset]
                if so_far is not None:
                    sums[start + offset] = so_far + item.weight * value
    return sums


def normalised(values: Sequence[float | None]) -> list[float]:
    """Values less their mean over their standard deviation; 0 where one is missing or stands alone."""
    known = [value for value in values if value is not None]
    std = reward_std(values)
    if std is None:
        return [0.0] * len(values)
    mean = mean_of(known)
    return [0.0 if value is None else (value - mean) / (std + SCALE_EPSILON) for value in values]
