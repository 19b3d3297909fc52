"""The player of a job's model."""

from __future__ import annotations

from training.config import JobConfig
from training.policy.engine import Engine
from training.rollout.family import read_by
from training.rollout.replicas import Replicas
from training.rollout.tokens import ChatTemplate
from training.rollout.trajectory import Player


def make_player(config: JobConfig, engine: Engine, template: ChatTemplate) -> Player:
    """Who plays the rollouts of a job: the engine, against the job's environment where it has one."""
    return Player(
        engine=engine,
        template=template,
        parse=read_by(template.family, config),
        rollout=config.rollout,
        environment=config.environment,
        open_session=Replicas(config.environment).open if config.environment.url else None,
    )
