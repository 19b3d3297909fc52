"""The figures of one step's rollouts, under our metric names. A figure that cannot be computed is left out, never 0."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from training.rollout.advantages import GroupStatistics

if TYPE_CHECKING:
    from training.rollout.collector import Rollout

SUCCESS_PART = "task_success"


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
    successes = [t.env_parts[SUCCESS_PART] for t in kept if SUCCESS_PART in t.env_parts]
    if successes:
        figures["rollouts/task_success"] = sum(successes) / len(successes)
    if latencies:
        figures["env/latency_p50"] = percentile(latencies, 0.50)
        figures["env/latency_p95"] = percentile(latencies, 0.95)
    return figures


def judge_figures(before: Counter[str], after: Counter[str]) -> dict[str, float]:
    """What judges were asked between two counts: ``judge/requests``, ``judge/cost`` and so on; empty without judges."""
    return {f"judge/{name}": float(after[name] - before[name]) for name in after} if after != before else {}


def percentile(values: Sequence[float], share: float) -> float:
    """Nearest-rank percentile of at least one value."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]
