"""The test harness itself: real services, the cast, builders, servers, browser."""

from __future__ import annotations

import os
import stat
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import redis
from django.conf import settings
from django.db import connection

from webapp.people.teams.access import role_in
from webapp.people.teams.models import Project, Role, User

if TYPE_CHECKING:
    from playwright.sync_api import Page


def test_the_cast_has_its_roles(alice: User, bob: User, rita: User, charlie: User, project: Project) -> None:
    assert [role_in(user, project) for user in (alice, bob, rita, charlie)] == [
        Role.OWNER,
        Role.EDITOR,
        Role.VIEWER,
        None,
    ]


def test_builders_make_saved_objects(
    make_dataset: Callable[..., Any],
    make_run: Callable[..., Any],
    make_reward_spec: Callable[..., Any],
    make_environment: Callable[..., Any],
) -> None:
    dataset = make_dataset()
    assert dataset.rows_path.read_text().count("\n") == dataset.rows == 3
    assert [make_run().name, make_run(name="x").name] == ["run-1", "x"]
    assert make_reward_spec().pk
    assert make_environment().healthy


@pytest.mark.django_db
def test_postgres_is_real_and_private() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SHOW server_version_num")
        assert int(cursor.fetchone()[0]) >= 150000
    assert connection.settings_dict["NAME"].startswith("test_")
    folder = Path(os.environ["TILTYARD_TEST_FOLDER"])
    for private in (folder / "postgres", folder / "redis", Path(settings.DATA_DIR)):
        assert stat.S_IMODE(private.stat().st_mode) == 0o700


def test_redis_is_real_and_wants_a_password() -> None:
    with redis.Redis.from_url(settings.REDIS_URL) as client:
        assert client.ping()
        assert client.config_get("maxmemory-policy")["maxmemory-policy"] == "noeviction"
    address, number = settings.REDIS_URL.rsplit("@", 1)[1].split("/")
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    assert int(number) == (int(worker[2:]) + 1 if worker else 0)
    with redis.Redis.from_url(f"redis://{address}/0") as stranger, pytest.raises(redis.AuthenticationError):
        stranger.ping()


def test_the_tools_server_answers(tools_server: str) -> None:
    with urllib.request.urlopen(f"{tools_server}/health", timeout=5) as answer:
        assert answer.status == 200


@pytest.mark.browser
def test_a_browser_reaches_the_site(page: Page) -> None:
    response = page.goto("/")
    assert response is not None
    assert response.status < 500
