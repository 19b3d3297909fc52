"""The figures of one step's rollouts, under our metric names. A figure that cannot be computed is left out, never 0."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence

from training.config import RewardComponent, Signal
from training.rewards.base import ENVIRONMENT
from training.rewards.combining import ZERO_VARIANCE_TOLERANCE, GroupStatistics, reward_std, term_of
from training.rollout.trajectory import Rollout

SUCCESS_PART = ENVIRONMENT


def step_figures(rollouts: Sequence[Rollout], groups: Sequence[GroupStatistics]) -> dict[str, float]:
    """Counts, shares (0 to 1), turns and seconds of one step."""
    kept = [rollout.trajectory for rollout in rollouts if rollout.parts is not None]
    latencies = [second for rollout in rollouts for second in rollout.trajectory.latencies]
    excluded = len(rollouts) - len(kept)
    figures = {
        "rollouts/excluded": float(excluded),
        "rollouts/excluded_share": excluded / len(rollouts),
        "groups/zero_variance_share": sum(group.zero_variance for group in groups) / len(groups),
        "env/errors": float(sum(rollout.trajectory.env_errors for rollout in rollouts)),
    }
    if kept:
        figures["rollouts/truncated_share"] = sum(t.status == "truncated" for t in kept) / len(kept)
        figures["rollouts/turns_mean"] = sum(t.turns for t in kept) / len(kept)
        if excluded:  # TRL would count the stand-in rows of excluded rollouts as completions of length 0
            lengths = [t.sampled_tokens for t in kept]
            figures["completions/mean_length"] = sum(lengths) / len(lengths)
            figures["completions/min_length"] = float(min(lengths))
            figures["completions/max_length"] = float(max(lengths))
    offered = [t for t in kept if t.tools]
    if offered:
        figures["rollouts/calls_mean"] = sum(t.tool_calls()[0] for t in offered) / len(offered)
    successes = [t.env_parts[SUCCESS_PART] for t in kept if SUCCESS_PART in t.env_parts]
    if successes:
        figures["rollouts/task_success"] = sum(successes) / len(successes)
    if latencies:
        figures["env/latency_p50"] = percentile(latencies, 0.50)
        figures["env/latency_p95"] = percentile(latencies, 0.95)
    return figures


def part_figures(
    names: Sequence[str], part_of: Callable[[int], str], batch: Sequence[Rollout], played: Sequence[Rollout]
) -> dict[str, float]:
    """Of each part of a mix: its share of the rollouts that are learned from and their mean reward, and how many of all
    that were ``played`` solved their task. ``part_of`` names the part of a row."""
    figures: dict[str, float] = {}
    rewards: dict[str, list[float]] = {name: [] for name in names}
    solved: dict[str, list[float]] = {name: [] for name in names}
    for rollout in batch:
        if rollout.reward is not None:
            rewards[part_of(rollout.row)].append(rollout.reward)
    for rollout in played:
        if rollout.parts is not None and SUCCESS_PART in rollout.trajectory.env_parts:
            solved[part_of(rollout.row)].append(rollout.trajectory.env_parts[SUCCESS_PART])
    count = sum(len(values) for values in rewards.values())
    for name in names:
        if count:
            figures[f"parts/{name}/share"] = len(rewards[name]) / count
        for what, values in (("reward", rewards[name]), ("success", solved[name])):
            if values:
                figures[f"parts/{name}/{what}"] = sum(values) / len(values)
    return figures


def judge_figures(before: Counter[str], after: Counter[str]) -> dict[str, float]:
    """The use of judges between two counts: ``judge/requests``, ``judge/cost`` and so on; empty without judges."""
    return {f"judge/{name}": float(after[name] - before[name]) for name in after} if after != before else {}


def percentile(values: Sequence[float], share: float) -> float:
    """Nearest-rank percentile of at least one value."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def sample_figures(
    rollouts: Sequence[Rollout], group_size: int, components: Sequence[RewardComponent], step: int
) -> dict[str, float]:
    """What a trainer would add about rewards and lengths, and how often the best of a group is good.

    ``groups/pass_share`` counts groups with at least one success among those whose environment reports success.
    """
    kept = [rollout for rollout in rollouts if rollout.parts is not None and rollout.reward is not None]
    if not kept:
        return {}
    figures = _spread("completions/{}_length", [float(rollout.trajectory.sampled_tokens) for rollout in kept])
    rewards = [rollout.reward for rollout in kept if rollout.reward is not None]
    figures["reward"] = sum(rewards) / len(rewards)
    if (std := reward_std(list(rewards))) is not None:
        figures["reward_std"] = std
    for item in components:
        terms = [term_of(item, rollout.parts or {}, step) for rollout in kept]
        known = [term for term in terms if term is not None]
        if known:
            figures[f"rewards/{item.name}/mean"] = sum(known) / len(known)
    groups = [rollouts[start : start + group_size] for start in range(0, len(rollouts), group_size)]
    best = [max(found) for group in groups if (found := [r.reward for r in group if r.reward is not None])]
    figures["groups/best_reward_mean"] = sum(best) / len(best)
    passed = [max(found) >= 1.0 for group in groups if (found := _successes(group))]
    if passed:
        figures["groups/pass_share"] = sum(passed) / len(passed)
    return figures


def _successes(group: Sequence[Rollout]) -> list[float]:
    kept = (rollout.trajectory.env_parts for rollout in group if rollout.parts is not None)
    return [parts[SUCCESS_PART] for parts in kept if SUCCESS_PART in parts]


def _spread(name: str, values: list[float]) -> dict[str, float]:
    means = {"mean": sum(values) / len(values), "min": min(values), "max": max(values)}
    return {name.format(what): value for what, value in means.items()}


# Which groups are learned from.
#
# A group whose rewards are equal has no advantage, and yet the KL and entropy terms of its tokens move the weights. One
# whose rollouts all failed may differ in shaping terms only, and then teaches to fail more nicely. ``rewards.signal``
# says which groups count; the others' rollouts are masked, as truncated ones are.


def teaches(members: Sequence[Rollout], statistics: GroupStatistics, signal: Signal) -> bool:
    """Whether a group is learned from. Where the environment gives no outcome, its rewards have to differ."""
    if signal == "all":
        return True
    outcomes = outcomes_of(members)
    if signal == "outcome" and outcomes:
        return max(outcomes) - min(outcomes) > ZERO_VARIANCE_TOLERANCE
    return not statistics.zero_variance


def outcomes_of(members: Sequence[Rollout]) -> list[float]:
    """The environment's outcomes of the group's rollouts, excluded ones left out; none where it gives no outcome."""
    kept = [rollout.trajectory.env_parts for rollout in members if rollout.parts is not None]
    return [parts[SUCCESS_PART] for parts in kept if SUCCESS_PART in parts]


def without_signal(statistics: GroupStatistics) -> GroupStatistics:
    """The statistics of a group that is not learned from: its advantages are 0."""
    zeros = [None if advantage is None else 0.0 for advantage in statistics.advantages]
    return statistics._replace(advantages=zeros, teaches=False)
