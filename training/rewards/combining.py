"""From raw component values to one reward and to the advantages of a group, and which component each part is of."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from training.config import AdvantageScale, RewardComponent, RewardSchedule

# Group statistics as TRL 1.16 computes them (``grpo_trainer.py``, ``sum_then_normalize``), for the journal.
#
# The group baseline of GRPO: Shao et al. 2024, *DeepSeekMath*. Written in plain Python so that recorded rollouts can be
# re-weighed without torch. Rewards of a run are bounded (``envs.wire.MAX_REWARD``); recorded ones of other trainers may
# be any float, so nothing here raises: sums and squares of huge ones are taken after scaling, and what is not finite
# stays so.

SCALE_EPSILON = 1e-4
ZERO_VARIANCE_TOLERANCE = 1e-6
_LARGE = 1e100
"""Beyond this, squares and sums are taken of scaled values."""


class GroupStatistics(NamedTuple):
    """Advantages by index (``None`` for excluded rollouts), mean and standard deviation of the rewards, and whether the
    group is learned from."""

    advantages: list[float | None]
    mean: float | None
    std: float | None
    zero_variance: bool
    teaches: bool = True


def mean_of(values: Sequence[float]) -> float:
    """Mean of at least one value; NaN where one of them is not finite."""
    if not all(map(math.isfinite, values)):
        return math.nan
    scale = _scale(values)
    return math.fsum(value / scale for value in values) / len(values) * scale


def reward_mean(rewards: Sequence[float | None]) -> float | None:
    """Mean of the rewards that exist."""
    known = [reward for reward in rewards if reward is not None]
    return mean_of(known) if known else None


def reward_std(rewards: Sequence[float | None]) -> float | None:
    """Standard deviation with Bessel's correction, or ``None`` with fewer than two rewards."""
    known = [reward for reward in rewards if reward is not None]
    if len(known) < 2:
        return None
    mean, scale = mean_of(known), _scale(known)
    if math.isnan(mean):
        return math.nan
    squares = math.fsum((reward / scale - mean / scale) ** 2 for reward in known)
    return math.sqrt(squares / (len(known) - 1)) * scale


def _scale(values: Sequence[float]) -> float:
    largest = max(map(abs, values))
    return largest if math.isfinite(largest) and largest > _LARGE else 1.0


def group_statistics(
    rewards: Sequence[float | None],
    *,
    scale: AdvantageScale = "group",
    batch_std: float | None = None,
) -> GroupStatistics:
    """Advantages of one group: ``(r - mean) / (std + 1e-4)``, where ``std`` is the group's, the batch's, or absent.

    ``leave_one_out`` is RLOO's: the reward less the mean of the others', which is ``n / (n - 1)`` times ``r - mean``.
    With ``values``, PPO's, rollouts have none: tokens have, by what was expected of them. Equal rewards teach then too.
    With a single reward left in the group its standard deviation is undefined and TRL's advantage becomes 0.
    ``zero_variance`` is our own figure: TRL's compares float32 noise with 0 and so misses equal groups.
    """
    mean, std = reward_mean(rewards), reward_std(rewards)
    known = [reward for reward in rewards if reward is not None]
    divisor = {"group": std, "batch": batch_std}.get(scale)
    of_others = len(known) / (len(known) - 1) if len(known) > 1 else 0.0
    advantages: list[float | None] = []
    for reward in rewards:
        if reward is None or mean is None or scale == "values":
            advantages.append(None)
        elif scale == "none":
            advantages.append(reward - mean)
        elif scale == "leave_one_out":
            advantages.append((reward - mean) * of_others)
        else:
            advantages.append(0.0 if divisor is None else (reward - mean) / (divisor + SCALE_EPSILON))
    flat = scale != "values" and (not known or max(known) - min(known) <= ZERO_VARIANCE_TOLERANCE)
    return GroupStatistics(advantages, mean, std, flat)


# From raw component values to one reward, and to the advantages of a group.
#
# A component's *term* is its raw value, clipped, then scaled, times the factor of its schedule; it is 0 where its gate
# is closed, and absent where the row is not of its categories. The reward is the sum of weights times terms. Terms
# follow from the raw values alone, so recorded rollouts are weighed again without scoring them again.

SCHEDULES_ENDED = 2**31 - 1
"""The step that an evaluation weighs at: its steps overlap, so a schedule would pay by the moment a rollout ended."""
Aggregation = Literal["sum_then_normalize", "normalize_then_sum"]
Scale = Literal["group", "batch", "none"]
Terms = Mapping[str, float] | None
"""Terms by component; ``None`` for an excluded rollout."""


def counts_for(component: RewardComponent, categories: set[str]) -> bool:
    """Whether a component is computed for a row of these categories."""
    return not component.categories or not categories.isdisjoint(component.categories)


def factor(schedule: RewardSchedule | None, step: int) -> float:
    """The factor of a schedule on the weight at a step; 1 without one."""
    if schedule is None:
        return 1.0
    if step >= schedule.end:
        return schedule.last
    if schedule.kind == "step" or step <= schedule.begin:
        return schedule.first
    way = (step - schedule.begin) / (schedule.end - schedule.begin)
    return schedule.first + way * (schedule.last - schedule.first)


def term_of(item: RewardComponent, parts: Mapping[str, float], step: int = 0) -> float | None:
    """The shaped value of a component before its weight; ``None`` where it has none."""
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
    """Values less their mean over their standard deviation; 0 where one is missing or is alone."""
    known = [value for value in values if value is not None]
    std = reward_std(values)
    if std is None:
        return [0.0] * len(values)
    mean = mean_of(known)
    return [0.0 if value is None else (value - mean) / (std + SCALE_EPSILON) for value in values]


# The advantage of a group's rollouts, split by reward component: small signed numbers that add up to it.
#
# An advantage is linear in the terms wherever the reward is their weighted sum, so the split is exact: the share of
# component c in rollout i is ``(w_c · t_ci − mean_j w_c · t_cj) / d``, where ``d`` is what the run divides by
# (``group_statistics``). A component that is absent in a rollout adds 0 to its reward, as in ``combining.total_of``.
# With ``normalize_then_sum`` the terms are those normalised within their group, and mean and ``d`` are the batch's.
#
# What a recorded reward has besides the weighted sum (another trainer's components, say) is a share of its own:
# ``REST``.

REST = ""
REST_TOLERANCE = 1e-6
"""Terms by component; ``None`` for a rollout without a reward."""


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
    """The names of a reward's shares, and the shares of each reward: its components', and the rest if there is any."""
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
    """The factor of a difference from the mean: 0 where nothing can be said of the spread."""
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
    """Whether values are the same, as far as rewards are distinguished."""
    return not values or max(values) - min(values) <= ZERO_VARIANCE_TOLERANCE


def is_phantom(rewards: Sequence[float | None], verdicts: Sequence[float | None]) -> bool:
    """Whether rewards differ although the outcome of all rollouts with a reward is known and the same: then shaping
    alone makes the spread, and the group teaches its form. The reward lab's ``phantom_of``, of one group."""
    pairs = [(reward, verdict) for reward, verdict in zip(rewards, verdicts, strict=True) if reward is not None]
    known = [verdict for _reward, verdict in pairs if verdict is not None]
    return not is_flat([reward for reward, _verdict in pairs]) and len(known) == len(pairs) and is_flat(known)
