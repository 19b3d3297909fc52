"""Figures of rollouts: the signal of a group, how rare a rollout is, its outcome, and groups that a person chose."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from training.rewards.base import verdict_of
from training.rewards.combining import is_flat, is_phantom
from webapp.common.words import Outcome, outcome_of
from webapp.runs.config import all_components, config_of
from webapp.runs.models import Run
from webapp.runs.rollouts.models import Rollout, RolloutStatus

# The learning signal of a group: whether its rewards differ, and whether the outcomes of the task do.


class Signal(NamedTuple):
    """``rewards`` and ``verdicts`` by rollout, ``None`` where there is none. ``flat``: all rollouts are equally
    good; ``phantom``: only shaping makes them differ."""

    rewards: list[float | None]
    verdicts: list[float | None]
    flat: bool
    phantom: bool


def signal_of(rollouts: Sequence[Rollout], functions: Mapping[str, str]) -> Signal:
    """The signal of one group, which must be whole; ``functions`` are those of the run's components. One in which a
    rollout is still in flight has none yet."""
    rewards = [None if item.status == RolloutStatus.EXCLUDED else item.reward for item in rollouts]
    verdicts = [_verdict_value(item, functions) for item in rollouts]
    known = [reward for reward in rewards if reward is not None]
    over = all(item.status != RolloutStatus.RUNNING for item in rollouts)
    return Signal(rewards, verdicts, over and len(known) > 1 and is_flat(known), over and is_phantom(rewards, verdicts))


def _verdict_value(rollout: Rollout, functions: Mapping[str, str]) -> float | None:
    found = verdict_of(rollout.env_parts, rollout.parts, functions)
    return found.value if found else None


# How rare a rollout is in its group: the rarest are shown first.

NEAR = 0.5  # rewards at most this many standard deviations apart are alike


class Played(NamedTuple):
    """A rollout that counts in its group."""

    outcome: str
    reward: float


def surprises(group: Sequence[Played | None]) -> list[float | None]:
    """Bits of surprise: the negative binary logarithm of the share of the group that is like the rollout.

    Alike are rollouts of the same outcome whose rewards lie at most ``NEAR`` standard deviations of the group's rewards
    apart; each is like itself. So the only one of eight that solved its task has 3 bits, and all have 0 where all have
    the same result. ``None`` is for a rollout without a reward: it has no surprise and is not counted.
    """
    known = [item for item in group if item is not None and math.isfinite(item.reward)]
    rewards = [item.reward for item in known]
    near = NEAR * statistics.pstdev(rewards) if rewards else 0.0
    found: list[float | None] = []
    for item in group:
        if item is None or not math.isfinite(item.reward):
            found.append(None)
            continue
        alike = sum(each.outcome == item.outcome and abs(each.reward - item.reward) <= near for each in known)
        found.append(math.log2(len(known) / alike))
    return found


# What a turn adds to its rollout, so that lists need not read turns: the tools it called, how much was written.

NAME_MAX = 120
TOOLS_MAX = 50  # of one rollout, each once
INT_MAX = 2**31 - 1


def note(rollout: Rollout, messages: list[dict[str, Any]], number: int) -> None:
    """Keep it; the rollout is not saved. Turn 0 is the prompt, which the policy did not write."""
    for message in messages if number > 0 else ():
        if message.get("role") != "assistant":
            continue
        rollout.characters = min(rollout.characters + len(message.get("content") or ""), INT_MAX)
        for call in message.get("tool_calls") or ():
            name = str(call.get("name", ""))[:NAME_MAX]
            if name and name not in rollout.tools and len(rollout.tools) < TOOLS_MAX:
                rollout.tools = [*rollout.tools, name]


# The outcome of a rollout's task: one vocabulary, decided in one place, when the rollout ends.
#
# The environment's verdict decides; where it gave none, a reward component that judges the task (the list of
# ``training/rewards/base.py``), and ``Rollout.judged_by`` names it. 1 or more is solved, between 0 and 1 partly, 0
# or less failed. A rollout that failed outside the policy is excluded, even with a verdict.

JUDGED_BY_MAX = 64


def judge_functions(run: Run) -> dict[str, str]:
    """The function of each of the run's reward components; empty where its config cannot be read."""
    return {part.name: part.registered for part in all_components(config_of(run))}


def decide(rollout: Rollout, functions: Mapping[str, str]) -> None:
    """Give a rollout the outcome that follows from its status and what judged it; it is not saved."""
    rollout.judged_by = ""
    if rollout.status == RolloutStatus.RUNNING:
        rollout.outcome = Outcome.IN_FLIGHT
    elif rollout.status == RolloutStatus.EXCLUDED:
        rollout.outcome = Outcome.EXCLUDED
    else:
        verdict = verdict_of(rollout.env_parts, rollout.parts, functions)
        rollout.outcome = outcome_of(verdict.value if verdict else None)
        rollout.judged_by = verdict.by[:JUDGED_BY_MAX] if verdict else ""


Group = tuple[int, int]
"""Its step and its number."""


def groups_write(path: Path, groups: Collection[Group]) -> None:
    """Keep them; the folder is made."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    path.write_text(json.dumps(sorted(groups)))


def groups_read(path: Path) -> frozenset[Group]:
    """Those that were kept."""
    return frozenset((step, group) for step, group in json.loads(path.read_text()))
