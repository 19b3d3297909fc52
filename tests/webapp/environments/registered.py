"""Environments with servers that answer, without any server."""

from __future__ import annotations

from typing import Any

from training.config import JobConfig
from webapp.environments.models import Environment, ReplicaState

HEALTH = {"name": "webshop", "version": "2", "sessions": 10, "slots": 16}


def answering(environment: Environment, count: int, port: int = 9000) -> None:
    for number in range(1, count + 1):
        environment.replicas.create(
            number=number, url=f"http://127.0.0.1:{port + number}", state=ReplicaState.HEALTHY, health=HEALTH
        )


def job_in(make_dataset: Any, environment: Environment) -> JobConfig:
    return JobConfig(
        data={"train": make_dataset(name="d").reference},
        environment={"name": environment.reference},
        rollout={"prompts_per_step": 4, "num_generations": 8},
    )  # type: ignore[arg-type]
