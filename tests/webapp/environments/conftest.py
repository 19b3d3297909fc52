"""Servers that answer what a test says, and environments that are started here."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.core.cache import cache

from tests.webapp.environments.registered import HEALTH
from webapp.common.outbound import Reply
from webapp.environments import checks, services
from webapp.environments.models import Environment, Kind
from webapp.people.teams.models import Project, User


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """``serve(health, validate)``: what every server answers."""
    cache.clear()

    def set_answers(health: Any = HEALTH, validate: Any = None, status: int = 200) -> None:
        def fetch(url: str, **_how: Any) -> Reply:
            if url.endswith("/validate"):
                return Reply(status, json.dumps(validate or {"ok": True, "episodes": 4, "gold_reward": 1.0}).encode())
            if isinstance(health, Exception):
                raise health
            return Reply(200, json.dumps(health).encode())

        monkeypatch.setattr(checks, "fetch", fetch)

    return set_answers


@pytest.fixture
def launch(project: Project, bob: User) -> Callable[..., Environment]:
    def make(**over: Any) -> Environment:
        fields = {"name": "mine", "kind": Kind.PROCESS, "program": "tools", "slots": 8}
        return services.environment_launch(project=project, user=bob, **(fields | over))

    return make


@pytest.fixture
def data(tmp_path: Path, settings: Any) -> Path:
    """The data folder, with one of everything that may lie in it."""
    root = tmp_path / "data"
    for name in ("webshop", "toolbench/tools", "toolbench/cache/Weather", "--host", ".hidden"):
        (root / name).mkdir(parents=True)
    (root / "queries.json").write_text("[]")
    (root / "toolbench/tools/deep.json").write_text("[]")
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.json").write_text("{}")
    (root / "way-out").symlink_to(outside)
    (root / "leak.json").symlink_to(outside / "secret.json")
    (root / "same").symlink_to(root / "webshop")
    settings.ENVIRONMENT_DATA_DIR = root
    return root
