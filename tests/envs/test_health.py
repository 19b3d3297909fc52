"""The healthcheck of the containers: who is healthy, and when what hangs is ended."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest

from envs.base import health
from tests.processes import port_is_free
from webapp.common.host import free_port


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[tuple[int, int]]:
    """What would have been killed, in a container whose first process is the engine's."""
    killed: list[tuple[int, int]] = []
    (tmp_path / "comm").write_text("docker-init\n")
    monkeypatch.setattr(health, "FIRST", tmp_path / "comm")
    monkeypatch.setattr(health.os, "kill", lambda pid, number: killed.append((pid, number)))
    return killed


@pytest.fixture
def place() -> Iterator[str]:
    """Something that takes connections."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


def aged(path: Path, seconds: float) -> None:
    os.utime(path, (time.time() - seconds,) * 2)


def look(folder: Path, *needs: str) -> int:
    return health.main(["--file", str(folder / "alive"), "--needs", *needs], folder)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The scratch folder of a container that was healthy, and whose process has not been heard of since."""
    (tmp_path / "alive").touch()
    assert look(tmp_path) == 0
    aged(tmp_path / "alive", health.YOUNG_S + 5)
    return tmp_path


def test_what_hangs_long_enough_is_ended_once(folder: Path, place: str, ended: list[tuple[int, int]]) -> None:
    assert look(folder, place) == 1
    aged(folder / "unhealthy-since", health.HANGS_S - 5)
    assert look(folder, place) == 1 and ended == []
    aged(folder / "unhealthy-since", health.HANGS_S)
    assert look(folder, place) == 1 and ended == [(-1, signal.SIGKILL)]
    assert look(folder, place) == 1 and len(ended) == 1, "the next start has a clean record"


def test_a_sign_of_life_forgets_what_was(folder: Path, place: str, ended: list[tuple[int, int]]) -> None:
    look(folder, place)
    aged(folder / "unhealthy-since", health.HANGS_S * 2)
    (folder / "alive").touch()
    assert look(folder, place) == 0
    aged(folder / "alive", health.YOUNG_S + 5)
    assert look(folder, place) == 1 and ended == []


def test_a_start_takes_as_long_as_it_takes(tmp_path: Path, place: str, ended: list[tuple[int, int]]) -> None:
    assert look(tmp_path, place) == 1
    aged(tmp_path / "unhealthy-since", health.HANGS_S * 9)
    assert look(tmp_path, place) == 1 and ended == []


def test_while_what_it_needs_is_away_nothing_is_counted(folder: Path, place: str, ended: list[tuple[int, int]]) -> None:
    """A worker sends no heartbeat without its broker, and its run must not end for that."""
    look(folder, place)
    aged(folder / "unhealthy-since", health.HANGS_S * 2)
    assert look(folder, place, f"127.0.0.1:{free_port()}") == 1
    assert look(folder, place) == 1 and ended == [], "counted from zero after its return"


def test_kubernetes_ends_nothing_while_what_it_needs_is_away(folder: Path, place: str) -> None:
    """It ends what is not healthy by itself, also a training worker that waits for Redis."""
    words = ["--file", str(folder / "alive"), "--alive", "--needs", place]
    assert health.main(words, folder) == 1, "what it needs is there: it hangs"
    assert health.main([*words, f"127.0.0.1:{free_port()}"], folder) == 0
    (folder / "alive").touch()
    assert health.main(words, folder) == 0


@pytest.mark.parametrize("first", ["systemd", "python", ""])
def test_outside_of_a_container_of_ours_nothing_is_ended(
    folder: Path, ended: list[tuple[int, int]], first: str
) -> None:
    (folder / "comm").write_text(first)
    look(folder)
    aged(folder / "unhealthy-since", health.HANGS_S * 2)
    assert look(folder) == 1 and ended == []


@pytest.mark.parametrize(("status", "healthy"), [(200, True), (302, True), (400, True), (500, False), (503, False)])
def test_any_answer_but_a_servers_error_is_health(tmp_path: Path, status: int, healthy: bool) -> None:
    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.end_headers()

    with HTTPServer(("127.0.0.1", 0), Answer) as server:
        Thread(target=server.handle_request, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/login/"
        assert health.main(["--url", url], tmp_path) == (0 if healthy else 1)


def test_a_closed_port_is_none(tmp_path: Path) -> None:
    port = free_port()
    assert port_is_free(port) and health.main(["--url", f"http://127.0.0.1:{port}/"], tmp_path) == 1


def test_it_runs_as_a_file_without_any_package(tmp_path: Path) -> None:
    """In the images of the environments, every few seconds."""
    (tmp_path / "alive").touch()
    argv = [sys.executable, "-I", "-S", str(health.__file__), "--file", str(tmp_path / "alive")]
    env = {"PATH": os.environ["PATH"], "TMPDIR": str(tmp_path)}
    assert subprocess.run(argv, env=env, cwd=tmp_path, timeout=30).returncode == 0
