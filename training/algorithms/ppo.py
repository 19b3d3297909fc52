"""PPO: our rollouts, and TRL's GRPO trainer with a value head (``actor_critic``).

Proximal Policy Optimization: Schulman et al. 2017. The rollouts, rewards, journal and clipped loss are GRPO's; what a
token is worth is told by values that are learned beside the policy, not by the other rollouts of its task.
"""

from __future__ import annotations

from typing import Any

from training.algorithms.grpo import run_on_rollouts
from training.algorithms.job import Job
from training.config import JobConfig
from training.policy.engine import Engine
from training.rollout.scoring import Scorer


def run_ppo(job: Job, *, scorer: Scorer | None = None, engine: Engine | None = None) -> None:
    """Train by PPO from the job's config. Raises typed errors, ``StopRequested`` among them.

    ``scorer`` and ``engine`` replace the configured rewards and sampler, for tests.
    """
    from training.algorithms.actor_critic import ActorCriticTrainer

    def make(*args: Any, **given: Any) -> ActorCriticTrainer:
        trainer = ActorCriticTrainer(*args, config=job.config, **given)
        if not job.config.ppo.critic_learning_rate:
            job.resolved["ppo.critic_learning_rate"] = f"{trainer.head_rate:.3g}"
        return trainer

    run_on_rollouts(job, make, clipped_arguments, scorer=scorer, engine=engine)


def clipped_arguments(config: JobConfig) -> dict[str, Any]:
    """The part of TRL's ``GRPOConfig`` that says what is minimised beside the value loss."""
    options = config.ppo
    return {
        # TRL asks for two at least; the trainer is told the real number once the whole step has been divided.
        "num_generations": config.rollouts_per_step,
        "num_iterations": options.num_iterations,
        "beta": options.beta,
        "epsilon": options.epsilon,
        "entropy_coef": options.entropy_coef,
        "loss_type": "dapo",
        "scale_rewards": "none",
    }
