"""Processes that tests start, and the real data that they read. Nothing here knows Django."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path

import pytest

from tests.forks import OWN, Loader, forked_trainers, plain_trainers
from webapp.common.host import die_with_parent

ROOT = Path(__file__).resolve().parents[1]
SEED_DATA = ROOT.parent / "shared" / "data"
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


@pytest.fixture(scope="session", autouse=True)
def _trainers_are_forked() -> Iterator[None]:
    """A trainer, or a short command of ours, that a test starts is forked from a process that has imported what it
    imports; trainers not where there is a CUDA device, which forks cannot share."""
    if sys.platform != "linux":
        yield
        return
    names = ["light"] if Path("/dev/nvidiactl").exists() else ["heavy", "light"]
    with ExitStack() as stack:
        for name in names:
            loader = OWN.get(name) or Loader(name)
            stack.callback(loader.end)
            stack.enter_context(forked_trainers(loader))
        yield


@pytest.fixture(autouse=True)
def _plain_starts(request: pytest.FixtureRequest) -> Iterator[None]:
    """Slow tests and those with the marker start trainers plainly."""
    plain = any(request.node.get_closest_marker(name) for name in ("slow", "plain_start"))
    with plain_trainers() if plain else nullcontext():
        yield


def port_is_free(port: int) -> bool:
    """Whether nothing listens on this loopback port."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


@pytest.fixture(scope="session")
def seed_data() -> Path:
    """The seeds' sample data next to the repository; tests that need it are skipped where it is not."""
    if not SEED_DATA.is_dir():
        pytest.skip(f"needs the seeds' data in {SEED_DATA}")
    return SEED_DATA
