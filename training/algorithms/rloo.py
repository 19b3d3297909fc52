"""RLOO: our rollouts, and TRL's GRPO trainer with advantages of its own (``leave_one_out``)."""

from __future__ import annotations

from typing import Any

from training.algorithms.grpo import run_on_rollouts
from training.algorithms.job import Job
from training.config import JobConfig
from training.policy.engine import Engine
from training.rollout.scoring import Scorer


def run_rloo(job: Job, *, scorer: Scorer | None = None, engine: Engine | None = None) -> None:
    """Train by RLOO from the job's config. Raises typed errors, ``StopRequested`` among them.

    ``scorer`` and ``engine`` replace the configured rewards and the in-process sampler, for tests.
    """
    from training.algorithms.leave_one_out import RlooTrainer

    run_on_rollouts(job, RlooTrainer, _arguments, scorer=scorer, engine=engine)


def _arguments(config: JobConfig) -> dict[str, Any]:
    return {
        "loss_type": "luspo",
        # With advantages of tokens each has to have a ratio of its own; it is 1, and the derivative is the same.
        "importance_sampling_level": "sequence" if config.rloo.credit == "rollout" else "token",
        "scale_rewards": "none",
        "beta": config.rloo.beta,
    }
