"""The outcome of a rollout's task: one vocabulary, decided in one place, when the rollout ends.

The environment's verdict decides; where it gave none, a reward component that judges the task (the list of
``training/rewards/verdict.py``), and ``Rollout.judged_by`` names it. 1 or more is solved, between 0 and 1 partly, 0 or
less failed. A rollout that failed outside the policy is excluded, even with a verdict.
"""

from __future__ import annotations

from collections.abc import Mapping

from training.rewards.verdict import verdict_of
from webapp.common.outcomes import Outcome, outcome_of
from webapp.runs.config import all_components, config_of
from webapp.runs.models import Run
from webapp.runs.rollouts.models import Rollout, RolloutStatus

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
