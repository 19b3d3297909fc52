"""Fixtures that start real processes of ours: the tools environment server, the web server."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import pytest
from django.conf import settings
from django.db import connection

from webapp.common.host.embedded import die_with_parent, free_port
from webapp.ops.programs import web_program

ROOT = Path(__file__).resolve().parents[1]
START_LIMIT_S = 60.0
STOP_LIMIT_S = 15.0


def wait_for_http(url: str, child: subprocess.Popen[bytes], log: Path, *, limit_s: float = START_LIMIT_S) -> None:
    """Wait until the address answers anything; a dead child or the limit fails the test with the log's end."""
    deadline = time.monotonic() + limit_s
    while child.poll() is None and time.monotonic() < deadline:
        try:
            urllib.request.urlopen(url, timeout=2).close()
            return
        except urllib.error.HTTPError:
            return
        except OSError:
            time.sleep(0.1)
    pytest.fail(f"{url} does not answer; log:\n{log.read_text()[-3000:]}")


@contextmanager
def running(argv: list[str], log: Path, env: dict[str, str] | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """A child in its own process group that dies with us."""
    with log.open("wb") as file:
        child = subprocess.Popen(
            argv,
            cwd=ROOT,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            start_new_session=True,
            preexec_fn=die_with_parent,
        )
    try:
        yield child
    finally:
        child.terminate()
        try:
            child.wait(timeout=STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait(timeout=STOP_LIMIT_S)


@pytest.fixture(scope="session")
def tools_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of a running ``python -m envs.tools``; outbound checks allow its address."""
    port = int(os.environ["TILTYARD_TEST_TOOLS_PORT"])
    log = tmp_path_factory.mktemp("tools") / "log"
    with running([sys.executable, "-m", "envs.tools", "--port", str(port)], log) as child:
        url = f"http://127.0.0.1:{port}"
        wait_for_http(f"{url}/health", child, log)
        yield url


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


@pytest.fixture(scope="session")
def site(django_db_setup: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of a web server as `up` starts it, on this session's test database; use it with ``transactional_db``."""
    port = free_port()
    log = tmp_path_factory.mktemp("site") / "log"
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


def port_is_free(port: int) -> bool:
    """Whether nothing listens on this loopback port."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0
