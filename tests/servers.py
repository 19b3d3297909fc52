"""Fixtures that start the web server and workers, on the database of this session."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import pytest
from django.conf import settings
from django.db import connection

from tests.processes import running, wait_for_http
from webapp.common.host import free_port
from webapp.ops.programs import web_program


@pytest.fixture
def child_env() -> Callable[..., dict[str, str]]:
    """``child_env(**extra)``: the environment of a child process that shall see this test's database.

    Its settings must be those of the test (call it inside one that uses ``transactional_db``: a child cannot see an
    open transaction).
    """
    return make_child_env


def make_child_env(**extra: str) -> dict[str, str]:
    """As the fixture."""
    parts = urlsplit(os.environ["DATABASE_URL"])
    url = urlunsplit(parts._replace(path=f"/{connection.settings_dict['NAME']}"))
    places = {"DATABASE_URL": url, "TILTYARD_DATA_DIR": str(settings.DATA_DIR)}
    return {**os.environ, **places, "TILTYARD_DATABASE_POOL": "20", **extra}


SITE_LOG = pytest.StashKey[Path]()
LOG_LINES = 30


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show the end of the web server's log, and its last warnings, with a test that failed on it."""
    report = yield
    log = item.config.stash.get(SITE_LOG, None)
    if report.failed and log is not None and "site" in getattr(item, "fixturenames", ()):
        lines = log.read_text().splitlines()
        warnings = [line for line in lines[:-LOG_LINES] if " WARNING " in line or " ERROR " in line]
        report.sections.append(("log of the web server", "\n".join([*warnings[-LOG_LINES:], *lines[-LOG_LINES:]])))
    return report


@pytest.fixture(scope="session")
def site(django_db_setup: None, tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Iterator[str]:
    """URL of a web server as `up` starts it, on this session's test database; use it with ``transactional_db``."""
    port = free_port()
    log = pytestconfig.stash[SITE_LOG] = tmp_path_factory.mktemp("site") / "log"
    argv = web_program("127.0.0.1", port, behind_proxy=False).argv
    with running(argv, log, make_child_env(TILTYARD_PORT=str(port), TILTYARD_CUSTOM_REWARDS="true")) as child:
        wait_for_http(f"http://127.0.0.1:{port}/", child, log)
        yield f"http://127.0.0.1:{port}"


@contextmanager
def celery_processes(folder: Path, **settings: str) -> Iterator[None]:
    """A worker that trains, one for endpoints, one for short work, and the clockwork, on this test's database; logs
    in ``folder``."""
    celery = [sys.executable, "-m", "celery", "-A", "webapp"]
    worker = [*celery, "worker", "--without-gossip", "--without-mingle", "--pool", "prefork", "-c", "1"]
    env = make_child_env(**settings)
    with (
        running([*worker, "-Q", "train", "-n", "train@%h"], folder / "train.log", env),
        running([*worker, "-Q", "endpoint", "-n", "endpoint@%h"], folder / "endpoint.log", env),
        running([*worker, "-Q", "short,long", "-n", "short@%h"], folder / "short.log", env),
        running([sys.executable, "manage.py", "run_clockwork"], folder / "clock.log", env),
    ):
        yield


@pytest.fixture
def workers(tmp_path: Path) -> Iterator[None]:
    """The Celery workers and the clockwork."""
    with celery_processes(tmp_path):
        yield
