"""Loaded before Django's settings (``-p tests.plugin`` in pyproject.toml): starts a real PostgreSQL and Redis.

Both live in a folder of this session and die with it, by the kernel's hand if pytest is killed; so `--reuse-db` only
saves dropping databases that go anyway. With pytest-xdist the controller starts them, and each worker gets its
own database (pytest-django's suffix), Redis database and data folder, and is forked from a process that has imported
what takes longest to import (``tests/forks.py``).
"""

from __future__ import annotations

import atexit
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest

from tests import pure
from tests.forks import Loader, forked_trainers
from tests.pure import pytest_collectstart, pytest_runtest_teardown, set_library_environment
from webapp.common.env import secret_key
from webapp.common.host import Embedded
from webapp.ops.catalogues import catalogues_compile

__all__ = ["pytest_collectstart", "pytest_runtest_teardown"]
ROOT = Path(__file__).resolve().parents[1]
TEMPLATE = "tiltyard_template"
FOLDER_VARIABLE = "TILTYARD_TEST_FOLDER"
REDIS_VARIABLE = "TILTYARD_TEST_REDIS_URL"
COMPILING_VARIABLE = "TILTYARD_TEST_COMPILING"
FIRST_WORKER = "gw0"
LOADER_LIMIT_S = 120.0
NO_CHROMIUM = "needs Chromium on the PATH, and libatomic (Debian: apt-get install chromium-headless-shell libatomic1)"


def _start_services() -> None:
    """In the controller (or the only process): start both, and tell the workers where they are."""
    folder = Path(tempfile.mkdtemp(prefix="tiltyard-tests-"))
    services = Embedded(folder)
    owner = os.getpid()

    def stop() -> None:
        if os.getpid() == owner:  # not in a forked child of a test
            services.stop()
            shutil.rmtree(folder, ignore_errors=True)

    atexit.register(stop)
    services.start()
    catalogues_compile(Path(__file__).resolve().parents[1] / "locale")
    os.environ[FOLDER_VARIABLE] = str(folder)
    os.environ[REDIS_VARIABLE] = services.redis_url
    os.environ["DATABASE_URL"] = services.database_url


def _data_folder(name: str) -> Path:
    """A data folder of this run of the tests. All have one secret key, as the hosts of a site have: what the template's
    migrations encrypt, every worker reads."""
    root = Path(os.environ[FOLDER_VARIABLE])
    folder, key = root / name, root / "secret_key"
    folder.mkdir(mode=0o700, exist_ok=True)
    secret_key(key, "TILTYARD_SECRET_KEY")
    if key.exists() and not (folder / key.name).exists():
        shutil.copy(key, folder)
    return folder


def _start_template() -> None:
    """Migrate one database for all workers, while they import the tests; ``template_ready`` waits for it."""
    folder, url = _data_folder("template"), urlsplit(os.environ["DATABASE_URL"])
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {TEMPLATE}")
    places = {"DATABASE_URL": url._replace(path=f"/{TEMPLATE}").geturl(), "TILTYARD_DATA_DIR": str(folder)}
    process = subprocess.Popen(
        [sys.executable, "manage.py", "migrate", "-v0", "--skip-checks"], cwd=ROOT, env={**os.environ, **places}
    )

    def wait() -> None:
        (folder.parent / "migrated").write_text(str(process.wait()))

    threading.Thread(target=wait, name="template", daemon=True).start()


def template_ready(seconds: float = 240.0) -> str:
    """The name of the migrated database; empty where each process has to migrate its own."""
    done = Path(os.environ[FOLDER_VARIABLE]) / "migrated"
    if "PYTEST_XDIST_WORKER" not in os.environ:
        return ""
    until = time.monotonic() + seconds
    while time.monotonic() < until and not (done.exists() and done.read_text()):
        time.sleep(0.1)
    return TEMPLATE if done.exists() and done.read_text() == "0" else ""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes(config: pytest.Config, specs: Sequence[Any]) -> None:
    """In the controller, before it starts the workers: have them forked. Where that fails, they start as ever."""
    if sys.platform != "linux":
        return
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # the workers would set it later than they have torch
    loader = Loader("worker")
    config.add_cleanup(loader.end)
    if loader.ready(wait_s=LOADER_LIMIT_S):
        forked = ExitStack()
        forked.enter_context(forked_trainers(loader))
        config.add_cleanup(forked.close)  # so late, because a worker that crashes has a successor
        for spec in specs:
            spec.python = shlex.join([sys.executable, "-m", "tests.worker"])


def uncompiled(tests: Path) -> bool:
    """Whether pytest has not compiled any of these tests yet, as in a fresh clone, and will keep what it compiles."""
    return not sys.dont_write_bytecode and next(tests.rglob("test_*-pytest-*.pyc"), None) is None


def wait_until_compiled(seconds: float = 120.0) -> None:
    """In a fresh clone: let the first worker compile all tests, ten seconds of processor time, rather than each worker
    at the same time."""
    if COMPILING_VARIABLE in os.environ and os.environ.get("PYTEST_XDIST_WORKER", FIRST_WORKER) != FIRST_WORKER:
        until = time.monotonic() + seconds
        while time.monotonic() < until and not _compiled().exists():
            time.sleep(0.1)


def _compiled() -> Path:
    return Path(os.environ[FOLDER_VARIABLE]) / "compiled"


def pytest_collection_finish() -> None:
    """All tests are imported, or have failed to be."""
    pure.pytest_collection_finish()
    if os.environ.get("PYTEST_XDIST_WORKER") == FIRST_WORKER:
        _compiled().touch()


def _set_environment() -> None:
    """In every process: what settings read. Each worker has its own Redis database and data folder."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "")
    folder = _data_folder(worker or "main")
    (folder / "static").mkdir(exist_ok=True)
    number = int(worker.removeprefix("gw")) + 1 if worker else 0
    os.environ |= {
        "REDIS_URL": os.environ[REDIS_VARIABLE].removesuffix("/0") + f"/{number}",
        "TILTYARD_DATA_DIR": str(folder),
        "TILTYARD_DATABASE_POOL": "0",  # a pool would keep a test's database from being dropped; servers have one
    }
    set_library_environment()


@pytest.hookimpl(wrapper=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> Iterator[None]:
    """A wrapper runs before pytest-django's own implementation, which reads the settings."""
    begins = FOLDER_VARIABLE not in os.environ
    if begins:
        _start_services()
    _set_environment()
    if begins and getattr(early_config.known_args_namespace, "numprocesses", None):
        if uncompiled(ROOT / "tests"):
            os.environ[COMPILING_VARIABLE] = "1"
        _start_template()
    wait_until_compiled()
    return (yield)


def pytest_unconfigure(config: pytest.Config) -> None:
    """The last line says what a missing Chromium left out: dots do not."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    skipped = reporter.stats.get("skipped", []) if reporter is not None else []
    left_out = sum(isinstance(report.longrepr, tuple) and NO_CHROMIUM in report.longrepr[2] for report in skipped)
    if left_out and "PYTEST_XDIST_WORKER" not in os.environ:
        print(f"{left_out} browser tests were left out: {NO_CHROMIUM}.")
