"""The player of a job's model."""

from __future__ import annotations

from training.config import JobConfig
from training.policy.engine import Engine
from training.rollout.dialects import choose_dialect
from training.rollout.replicas import Replicas
from training.rollout.tokens import Template
from training.rollout.trajectory import Player


def make_player(config: JobConfig, engine: Engine, template: Template) -> Player:
    """Who plays the rollouts of a job: the engine, against the job's environment where it has one."""
    return Player(
        engine=engine,
        template=template,
        parse=choose_dialect(config),
        rollout=config.rollout,
        environment=config.environment,
        open_session=Replicas(config.environment).open if config.environment.url else None,
    )
