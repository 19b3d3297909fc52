"""`manage.py up` as a person runs it: real processes, ended by pid."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import psutil
import psycopg
import pytest

from tests.processes import port_is_free
from webapp.common.host import Known, Ledger, alive, end, family, free_port

ROOT = Path(__file__).resolve().parents[3]
LIMIT_S = 300.0  # a busy machine migrates for a minute; `up` itself waits as long as there is progress
OURS = ("DATABASE_URL", "REDIS_URL", "TILTYARD_OUTBOUND_ALLOW", "TILTYARD_PORT", "PYTEST_CURRENT_TEST")


class Upped:
    """One `up` process and what it printed."""

    def __init__(self, data: Path, port: int, *more: str) -> None:
        self.data, self.port = data, port
        self.log = data.parent / f"up-{time.monotonic_ns()}.log"
        env = {name: value for name, value in os.environ.items() if name not in OURS}
        env |= {"TILTYARD_DATA_DIR": str(data), "LANG": "C.UTF-8", "LC_ALL": "C.UTF-8"}
        with self.log.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "manage.py", "up", "--port", str(port), *more],
                cwd=ROOT,
                env=env,
                stdout=output,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )

    @property
    def output(self) -> str:
        return self.log.read_text()

    def wait_ready(self) -> Upped:
        self.wait_for(lambda: "This link logs you in" in self.output)
        return self

    def wait_for(self, check: Callable[[], bool], limit_s: float = LIMIT_S) -> None:
        deadline = time.monotonic() + limit_s
        while not check():
            assert self.process.poll() is None, self.output
            assert time.monotonic() < deadline, self.output
            time.sleep(0.1)

    def family(self) -> set[Known]:
        return family(self.process.pid)

    def stop(self, number: signal.Signals = signal.SIGINT) -> int:
        self.process.send_signal(number)
        return self.process.wait(timeout=LIMIT_S)


def log_in_once(link: str) -> None:
    """Open the link, press its button, and find it used up for the next browser."""
    for expected in (200, 410):
        with httpx.Client(follow_redirects=False) as browser:
            page = browser.get(link)
            assert page.status_code == expected
            if expected == 200:
                token = re.search(r'name="csrfmiddlewaretoken" value="(\w+)"', page.text)
                assert token is not None
                answer = browser.post(link, data={"csrfmiddlewaretoken": token[1]})
                assert answer.status_code == 302, answer.text
                assert browser.cookies["tiltyard"]


@pytest.fixture
def up() -> Iterator[Callable[..., Upped]]:
    """``up()`` starts one on the test's own data folder and port; what is left at the end is ended by pid."""
    folder = Path(tempfile.mkdtemp(prefix="tiltyard-tests-"))
    port, started, seen = free_port(), [], set()

    def start() -> Upped:
        one = Upped(folder / "data", port)
        started.append(one)
        return one

    yield start
    for one in started:
        if one.process.poll() is None:
            seen |= one.family()
            one.stop(signal.SIGTERM)
        file = one.data / "processes.json"
        if file.exists():
            seen |= set(Ledger(file).read())
    left = alive(seen)
    end(left, grace_s=5)
    shutil.rmtree(folder, ignore_errors=True)
    assert not left


def check_static_files(origin: str) -> None:
    """Under `up` nothing was compressed, and browsers asked for every file again after a minute."""
    page = httpx.get(f"{origin}/login/").text
    files = re.findall(r'(?:src|href)="(/static/[^"#]+)"', page)
    assert len(files) > 8 and all(re.search(r"\.[0-9a-f]{12}\.", file) for file in files)
    for file in files:
        answer = httpx.get(origin + file, headers={"Accept-Encoding": "gzip"})
        assert "immutable" in answer.headers["Cache-Control"]
        packed = answer.headers.get("Content-Encoding") == "gzip" or answer.content.startswith(b"wOF2")
        assert packed or len(answer.content) < 1_000, file


def check_environments(one: Upped) -> None:
    """Seven of nine programs had the operator's whole environment. ``up`` itself is the operator's own."""
    known, up_itself = {}, psutil.Process(one.process.pid)
    for process in up_itself.children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            command = process.cmdline()
            if command != up_itself.cmdline():  # one that it has just forked is still `up`, until its program is there
                known[process.pid, " ".join(command)] = set(process.environ())
    for name in ("AWS_SECRET_ACCESS_KEY", "OTHER_SECRET"):
        assert [who for who, has in known.items() if name in has] == []
    for name in ("HF_TOKEN", "WANDB_API_KEY"):  # supervisord hands on what its programs may have
        having = [command for (_pid, command), has in known.items() if name in has]
        assert having and [who for who in having if not re.search("supervisord|-Q (train|endpoint) ", who)] == []
    served = [has for (_pid, command), has in known.items() if "postgres" in command or "redis" in command]
    assert len(served) > 2 and not [has for has in served if any(name.startswith("TILTYARD_") for name in has)]


@pytest.mark.timeout(900)
def test_up_starts_stops_and_finds_its_data_again(up: Callable[..., Upped], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_SECRET_ACCESS_KEY", "OTHER_SECRET", "HF_TOKEN", "WANDB_API_KEY"):
        monkeypatch.setenv(name, f"canary of {name}")
    first = up().wait_ready()
    check_environments(first)
    services = json.loads((first.data / "services.json").read_text())
    assert set(services) == {"database_url", "redis_url", "tools_url", "tools_address", "tools_token"}
    assert (first.data / "services.json").stat().st_mode & 0o777 == 0o600
    assert re.search(rf"Open  http://127\.0\.0\.1:{first.port}/login/[\w-]{{43}}/", first.output)
    log_in_once(re.search(r"http://\S+/login/[\w-]+/", first.output)[0])  # type: ignore[index]
    check_static_files(f"http://127.0.0.1:{first.port}")
    spawned = re.findall(r"spawned: '([\w-]+)'", (first.data / "logs" / "supervisord.log").read_text())
    assert spawned[:3] == ["postgres", "redis", "web"], "the first page waits for no worker"
    with psycopg.connect(services["database_url"]) as connection:
        assert connection.execute("SELECT username FROM teams_user").fetchall() == [("admin",)]
        ids = connection.execute("SELECT id FROM teams_project").fetchall()
    second = up()
    assert second.process.wait(timeout=60) == 1
    assert f"already runs on this data folder, at http://127.0.0.1:{first.port}" in second.output
    members = first.family()
    assert len(members) > 8
    assert first.stop() == 0
    assert alive(members) == []
    assert port_is_free(first.port)
    assert not (first.data / "processes.json").exists()
    again = up().wait_ready()
    services = json.loads((again.data / "services.json").read_text())
    with psycopg.connect(services["database_url"]) as connection:
        assert connection.execute("SELECT id FROM teams_project").fetchall() == ids
    members = again.family()
    assert again.stop(signal.SIGTERM) == 0
    assert alive(members) == []


def test_a_busy_port_is_a_clear_sentence(up: Callable[..., Upped]) -> None:
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        one = up()
        taken.bind(("127.0.0.1", one.port))
        taken.listen()
        assert one.process.wait(timeout=60) == 1
    assert f"Port {one.port} is in use by another program." in one.output
    assert "up --port" in one.output
    assert "Traceback" not in one.output


@pytest.mark.slow
@pytest.mark.chaos
def test_after_kill_9_the_next_start_recovers(up: Callable[..., Upped]) -> None:
    first = up().wait_ready()
    members = first.family() - {Known(first.process.pid, psutil.Process(first.process.pid).create_time())}
    first.process.kill()
    first.process.wait()
    second = up().wait_ready()  # at once: what the kernel's signal has not ended yet is ended by us
    assert alive(one for one in members if one.pid != first.process.pid) == []
    assert second.stop() == 0


@pytest.mark.slow
@pytest.mark.chaos
def test_after_kill_9_of_up_and_of_its_manager_the_next_start_recovers(up: Callable[..., Upped]) -> None:
    first = up().wait_ready()
    manager = int((first.data / "supervisord.pid").read_text())
    members = [one for one in first.family() if one.pid not in {first.process.pid, manager}]
    first.wait_for(lambda: len(Ledger(first.data / "processes.json").read()) >= len(members))
    os.kill(first.process.pid, signal.SIGSTOP)  # it must not tidy up when its manager goes
    os.kill(manager, signal.SIGKILL)
    first.process.kill()
    first.process.wait()
    assert alive(members)
    second = up().wait_ready()
    assert re.search(r"Ending \d+ left-over processes", second.output)
    assert alive(members) == []
    assert second.stop() == 0


@pytest.mark.slow
@pytest.mark.chaos
def test_a_crashed_process_is_started_again(up: Callable[..., Upped]) -> None:
    one = up().wait_ready()
    time.sleep(3)
    worker = int((one.data / "ready" / "worker-short").read_text())
    os.kill(worker, signal.SIGKILL)
    one.wait_for(lambda: "worker-short had ended and was started again" in one.output, 30)
    one.wait_for(lambda: int((one.data / "ready" / "worker-short").read_text()) != worker, 30)
    members = one.family()
    assert one.stop() == 0
    assert alive(members) == []
