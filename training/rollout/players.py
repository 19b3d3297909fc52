"""The player of a job's model."""

from __future__ import annotations

from collections.abc import Sequence

from training.config import JobConfig
from training.policy.engine import Engine
from training.rollout.family import read_by
from training.rollout.replicas import Replicas
from training.rollout.tokens import ChatTemplate
from training.rollout.trajectory import Player


def make_players(configs: Sequence[JobConfig], engine: Engine, template: ChatTemplate) -> list[Player]:
    """A player for each part of a mix. Parts with one environment share its slots."""
    servers: dict[str, Replicas] = {}
    return [
        make_player(
            config,
            engine,
            template,
            servers.setdefault(config.environment.model_dump_json(), Replicas(config.environment)),
        )
        for config in configs
    ]


def make_player(config: JobConfig, engine: Engine, template: ChatTemplate, servers: Replicas | None = None) -> Player:
    """Who plays the rollouts of a job: the engine, against the job's environment where it has one, on its ``servers``
    where somebody else plays there too."""
    return Player(
        engine=engine,
        template=template,
        parse=read_by(template.family, config),
        rollout=config.rollout,
        environment=config.environment,
        open_session=(servers or Replicas(config.environment)).open if config.environment.url else None,
    )
