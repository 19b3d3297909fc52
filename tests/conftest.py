"""Fixtures for every test: the cast, tiny builders, real servers, a real browser.

alice owns the team, bob edits, rita reads, charlie is a stranger. Builders make the smallest valid object; every field
can be given by name. PostgreSQL and Redis were started by ``tests/plugin.py``.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.contrib.auth.hashers import PBKDF2PasswordHasher
from django.db import connections
from django.test import Client
from django.utils import timezone
from whitenoise.middleware import WhiteNoiseMiddleware

from tests.logins import aged
from tests.plugin import template_ready
from training.config import JobConfig
from webapp.datasets.models import Dataset, DatasetState
from webapp.environments.models import Environment, ReplicaState
from webapp.people.teams.models import Membership, Project, Role, Team, User
from webapp.rewards.models import RewardSpec
from webapp.runs.models import Run

pytest_plugins = ["tests.processes", "tests.servers", "tests.browsers", "tests.evaluations", "tests.emptying"]
ROOT = Path(__file__).resolve().parents[1]
ROW = {
    "messages": [
        {"role": "user", "content": "What is 2 + 3?"},
        {"role": "assistant", "content": "2 + 3 is 5."},
    ],
}
# One round in place of a million, because logging in is rarely what a test is about; real servers accept it as well.
HASHED = PBKDF2PasswordHasher().encode("correct horse battery staple", "salt", iterations=1)
COMPONENTS = [{"name": "env_success", "weight": 1.0, "params": {}}]


@pytest.fixture(scope="session", autouse=True)
def _static_files_looked_up_once() -> Iterator[None]:
    """Every test client has middleware of its own, and WhiteNoise's looks at each static file: 20 ms a client."""
    found: dict[str, Any] = {}
    look = WhiteNoiseMiddleware.add_files_from_finders

    def once(self: WhiteNoiseMiddleware) -> None:
        if not found:
            look(self)
            found.update(self.files)
        self.files = dict(found)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(WhiteNoiseMiddleware, "add_files_from_finders", once)
        yield


@pytest.fixture(scope="session")
def django_db_modify_db_settings(django_db_modify_db_settings_parallel_suffix: None) -> None:
    """The workers' databases are copies of one that was migrated for all of them."""
    if template := template_ready():
        connections["default"].settings_dict["TEST"]["TEMPLATE"] = template


# --- The cast -------------------------------------------------------------------------------------------------------
@pytest.fixture
def data_dir() -> Path:
    """The data folder that settings point at; shared by the tests of this process."""
    return Path(settings.DATA_DIR)


def _person(name: str) -> User:
    return User.objects.create(username=name, email=f"{name}@example.org", password=HASHED)


@pytest.fixture
def team(db: None) -> Team:
    """The team of alice, bob and rita."""
    return Team.objects.create(name="Knights")


@pytest.fixture
def project(team: Team) -> Project:
    """A project of the team."""
    return Project.objects.create(team=team, name="Joust", slug="joust")


def _member(team: Team, name: str, role: Role) -> User:
    user = _person(name)
    Membership.objects.create(team=team, user=user, role=role)
    return user


@pytest.fixture
def alice(team: Team) -> User:
    """Owner."""
    return _member(team, "alice", Role.OWNER)


@pytest.fixture
def bob(team: Team) -> User:
    """Editor."""
    return _member(team, "bob", Role.EDITOR)


@pytest.fixture
def rita(team: Team) -> User:
    """Viewer."""
    return _member(team, "rita", Role.VIEWER)


@pytest.fixture
def charlie(db: None) -> User:
    """A stranger: owner of another team with another project."""
    user = _person("charlie")
    other = Team.objects.create(name="Strangers")
    Membership.objects.create(team=other, user=user, role=Role.OWNER)
    Project.objects.create(team=other, name="Elsewhere", slug="elsewhere")
    return user


@pytest.fixture
def elsewhere(charlie: User) -> Project:
    """The stranger's project."""
    return Project.objects.get(slug="elsewhere")


@pytest.fixture
def client_for() -> Callable[..., Client]:
    """``client_for(user)``: a browser of theirs, in which they have just logged in, or more than fifteen minutes ago
    (``old=True``); ``client_for(None)`` is anonymous. CSRF is enforced on request."""

    def make(user: User | None, *, old: bool = False, **options: Any) -> Client:
        client = Client(**options)
        if user is not None:
            client.force_login(user)
        return aged(client) if old and user else client

    return make


# --- Builders -------------------------------------------------------------------------------------------------------
Builder = Callable[..., Any]


@pytest.fixture
def make_dataset(project: Project) -> Builder:
    """``make_dataset(lines=[…], **fields)``: a ready dataset with its rows on disk."""
    numbers = itertools.count(1)

    def make(lines: list[dict[str, Any]] | None = None, **over: Any) -> Dataset:
        rows = [ROW] * 3 if lines is None else lines
        text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        fields = {
            "project": project,
            "name": f"data-{next(numbers)}",
            "file_name": "data.jsonl",
            "state": DatasetState.READY,
            "rows": len(rows),
            "bytes": len(text.encode()),
        }
        dataset = Dataset.objects.create(**(fields | over))
        dataset.rows_path.parent.mkdir(parents=True, exist_ok=True)
        dataset.rows_path.write_text(text)
        dataset.upload_path.write_text(text)
        return dataset

    return make


@pytest.fixture
def make_reward_spec(project: Project) -> Builder:
    """``make_reward_spec(**fields)``: one component, weight 1."""
    numbers = itertools.count(1)

    def make(**over: Any) -> RewardSpec:
        fields = {"project": project, "name": f"reward-{next(numbers)}", "components": COMPONENTS}
        return RewardSpec.objects.create(**(fields | over))

    return make


@pytest.fixture
def make_environment(project: Project) -> Builder:
    """``make_environment(**fields)``: registered and healthy, at the tools server's address (started or not).

    One of another ``kind`` has no replica: it was not started.
    """
    numbers = itertools.count(1)

    def make(**over: Any) -> Environment:
        url = f"http://127.0.0.1:{os.environ['TILTYARD_TEST_TOOLS_PORT']}"
        fields = {
            "project": project,
            "name": f"tools-{next(numbers)}",
            "url": url,
            "server_name": "tools",
            "healthy": True,
            "checked_at": timezone.now(),
        }
        environment = Environment.objects.create(**(fields | over))
        if not environment.launched:
            state = ReplicaState.HEALTHY if environment.healthy else ReplicaState.UNHEALTHY
            environment.replicas.create(number=1, url=environment.url, state=state, health=environment.health)
        return environment

    return make


@pytest.fixture
def make_run(project: Project) -> Builder:
    """``make_run(**fields)``: a draft with the default config; ``config`` may be a ``JobConfig`` or its dict."""
    numbers = itertools.count(1)

    def make(**over: Any) -> Run:
        config = over.pop("config", None) or JobConfig()
        plain = config.model_dump(mode="json") if isinstance(config, JobConfig) else config
        fields = {
            "project": project,
            "name": f"run-{next(numbers)}",
            "kind": plain.get("kind", "grpo"),
            "config": plain,
            "total_steps": plain.get("run", {}).get("max_steps", 100),
        }
        return Run.objects.create(**(fields | over))

    return make


@pytest.fixture(autouse=True)
def _no_leftover_language() -> Iterator[None]:
    """A test that activates Chinese must not turn the next one Chinese."""
    from django.utils import translation

    yield
    translation.deactivate_all()
