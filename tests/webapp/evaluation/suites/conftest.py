"""An environment to be measured on, and parts of suites that play in it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from webapp.environments.models import Environment


@pytest.fixture
def place(make_environment: Callable[..., Environment]) -> Environment:
    made = make_environment(name="arena")
    Environment.objects.filter(pk=made.pk).update(health={"name": "arena", "version": "1.4.0", "status": "healthy"})
    return made


@pytest.fixture
def part(tasks: Any, place: Environment) -> Callable[..., dict[str, Any]]:
    def make(title: str = "tasks", weight: float = 1.0, **groups: Any) -> dict[str, Any]:
        config = {
            "kind": "evaluate",
            "data": {"train": tasks.reference},
            "environment": {"name": place.reference},
            "rollout": {"num_generations": 2},
        }
        return {"title": title, "weight": weight, "config": config | groups}

    return make
