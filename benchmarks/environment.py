"""Environment servers as processes, for the benchmarks."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import httpx

ROOT = Path(__file__).resolve().parents[1]
START_LIMIT_S = 120


class Server(NamedTuple):
    """A server that answers: its URL, its process id, and what it took until it did."""

    url: str
    pid: int
    start_s: float = 0.0

    @property
    def resident_mb(self) -> float:
        """Memory that it holds now, in MB."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0]) / 1024


@contextlib.contextmanager
def environment_server(name: str, *options: str) -> Iterator[Server]:
    """``python -m envs.<name>`` on a free port until the block ends."""
    with _served(["-m", f"envs.{name}"], options) as server:
        yield server


@contextlib.contextmanager
def script_server(path: Path, *options: str) -> Iterator[Server]:
    """The same of an environment that is a script."""
    with _served([str(path)], options) as server:
        yield server


@contextlib.contextmanager
def _served(program: list[str], options: tuple[str, ...]) -> Iterator[Server]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    words = [sys.executable, *program, "--port", str(port), "--log-level", "error", *options]
    began = time.monotonic()
    server = subprocess.Popen(words, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}"
    try:
        _wait(url, server)
        yield Server(url, server.pid, time.monotonic() - began)
    finally:
        server.terminate()
        server.wait(timeout=10)


def _wait(url: str, server: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + START_LIMIT_S
    while time.monotonic() < end and server.poll() is None:
        with contextlib.suppress(httpx.HTTPError):
            if httpx.get(f"{url}/health", timeout=1).status_code == 200:
                return
        time.sleep(0.02)
    raise RuntimeError("The environment server did not start.")
