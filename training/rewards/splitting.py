"""The advantage of a group's rollouts, split by reward component: small signed numbers that add up to it.

An advantage is linear in the terms wherever the reward is their weighted sum, so the split is exact: the share of
component c in rollout i is ``(w_c · t_ci − mean_j w_c · t_cj) / d``, where ``d`` is what the run divides by
(``group_statistics``). A component that is absent in a rollout adds 0 to its reward, as in ``combining.total_of``. With
``normalize_then_sum`` the terms are those normalised within their group, and mean and ``d`` are the batch's.

What a recorded reward has beside the weighted sum (another trainer's components, say) is a share of its own: ``REST``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from training.config import AdvantageScale, RewardComponent
from training.rewards.advantages import (
    SCALE_EPSILON,
    ZERO_VARIANCE_TOLERANCE,
    group_statistics,
    mean_of,
    reward_mean,
    reward_std,
)
from training.rewards.combining import normalised

REST = ""
REST_TOLERANCE = 1e-6
Terms = Mapping[str, float] | None
"""Terms by component; ``None`` stands for a rollout without a reward."""


class Split(NamedTuple):
    """Advantages of a group and their shares, one entry a rollout, ``None`` where it has no reward.

    ``names`` are the components that have a share, the last one ``REST`` where rewards are more than their terms.
    """

    names: list[str]
    shares: list[list[float] | None]
    advantages: list[float | None]


def split_group(
    rewards: Sequence[float | None],
    terms: Sequence[Terms],
    components: Sequence[RewardComponent],
    *,
    scale: AdvantageScale,
    batch_std: float | None = None,
) -> Split | None:
    """The split where rewards are summed first; ``None`` where rollouts have no advantage (``values``, PPO's)."""
    if scale == "values":
        return None
    advantages = group_statistics(rewards, scale=scale, batch_std=batch_std).advantages
    names, added = _added(rewards, terms, components)
    factor = _factor(rewards, scale, batch_std)
    means = [mean_of(column) if column else 0.0 for column in _columns(added, len(names))]
    shares = [
        None if row is None else [factor * (value - mean) for value, mean in zip(row, means, strict=True)]
        for row in added
    ]
    return Split(names, shares, advantages)


def _added(
    rewards: Sequence[float | None], terms: Sequence[Terms], components: Sequence[RewardComponent]
) -> tuple[list[str], list[list[float] | None]]:
    """What each component adds to each reward, and what the reward has beside that."""
    items = [item for item in components if any(found and item.name in found for found in terms)]
    added: list[list[float] | None] = []
    rests: list[float] = []
    for reward, found in zip(rewards, terms, strict=True):
        if reward is None:
            added.append(None)
            continue
        row = [item.weight * (found or {}).get(item.name, 0.0) for item in items]
        rests.append(reward - math.fsum(row))
        added.append([*row, rests[-1]])
    if any(abs(rest) > REST_TOLERANCE for rest in rests):
        return [*(item.name for item in items), REST], added
    return [item.name for item in items], [None if row is None else row[:-1] for row in added]


def _columns(rows: Sequence[list[float] | None], width: int) -> list[list[float]]:
    known = [row for row in rows if row is not None]
    return [[row[at] for row in known] for at in range(width)]


def _factor(rewards: Sequence[float | None], scale: AdvantageScale, batch_std: float | None) -> float:
    """What a difference from the mean is multiplied by: 0 where nothing can be said of the spread."""
    known = sum(reward is not None for reward in rewards)
    if scale == "none":
        return 1.0
    if scale == "leave_one_out":
        return known / (known - 1) if known > 1 else 0.0
    std = reward_std(rewards) if scale == "group" else batch_std
    return 0.0 if std is None else 1.0 / (std + SCALE_EPSILON)


def split_batch(groups: Sequence[Sequence[Terms]], components: Sequence[RewardComponent], at: int) -> Split:
    """The split of group ``at`` of a batch under ``normalize_then_sum``."""
    items = [item for item in components if any(found and item.name in found for found in groups[at])]
    normal = {item.name: [_normal(group, item) for group in groups] for item in components}
    sums = [
        [
            None if found is None else math.fsum(item.weight * normal[item.name][g][i] for item in components)
            for i, found in enumerate(group)
        ]
        for g, group in enumerate(groups)
    ]
    flat = [value for group in sums for value in group]
    std, mean = reward_std(flat), reward_mean(flat)
    factor = 0.0 if std is None else 1.0 / (std + SCALE_EPSILON)
    means = {item.name: _batch_mean(groups, normal[item.name]) for item in items}
    shares: list[list[float] | None] = [
        None
        if found is None
        else [factor * item.weight * (normal[item.name][at][i] - means[item.name]) for item in items]
        for i, found in enumerate(groups[at])
    ]
    advantages = [None if value is None or mean is None else factor * (value - mean) for value in sums[at]]
    return Split([item.name for item in items], shares, advantages)


def _normal(group: Sequence[Terms], item: RewardComponent) -> list[float]:
    return normalised([None if found is None else found.get(item.name) for found in group])


def _batch_mean(groups: Sequence[Sequence[Terms]], normal: Sequence[Sequence[float]]) -> float:
    """The mean over the rollouts that have a reward."""
    known = [
        value
        for group, row in zip(groups, normal, strict=True)
        for found, value in zip(group, row, strict=True)
        if found is not None
    ]
    return mean_of(known) if known else 0.0


def is_flat(values: Sequence[float]) -> bool:
    """Whether values are the same, as far as rewards are told apart."""
    return not values or max(values) - min(values) <= ZERO_VARIANCE_TOLERANCE


def is_phantom(rewards: Sequence[float | None], verdicts: Sequence[float | None]) -> bool:
    """Whether rewards differ although the outcome of all rollouts with a reward is known and the same: then shaping
    alone makes the spread, and the group teaches its form. The reward lab's ``phantom_of``, of one group."""
    pairs = [(reward, verdict) for reward, verdict in zip(rewards, verdicts, strict=True) if reward is not None]
    known = [verdict for _reward, verdict in pairs if verdict is not None]
    return not is_flat([reward for reward, _verdict in pairs]) and len(known) == len(pairs) and is_flat(known)
