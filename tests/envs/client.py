"""A server process and a websocket client, as the tests use them."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from websockets.asyncio.client import ClientConnection, connect

ROOT = Path(__file__).resolve().parents[2]
START_TIMEOUT_S = 60
TEST_TIMEOUT_S = 60


@dataclass
class Server:
    """A running server of the tools environment."""

    process: subprocess.Popen[bytes]
    log: Path
    port: int
    token: str | None = None

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{self.port}/ws"

    def health(self) -> dict[str, Any]:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=5) as answer:
            return json.load(answer)

    def wait_for_sessions(self, wanted: int, within_s: float) -> float:
        """Seconds until so many sessions are open."""
        started = time.monotonic()
        while self.health()["sessions"] != wanted:
            assert time.monotonic() - started < within_s, f"{self.health()['sessions']} sessions after {within_s} s"
            time.sleep(0.05)
        return time.monotonic() - started


@contextmanager
def running_server(
    folder: Path, *options: str, token: str | None = None, module: str = "envs.tools", before: str = ""
) -> Iterator[Server]:
    """Start a server on a free port and end it afterwards. ``before`` is Python that runs first, to shorten limits."""
    log = folder / "server.log"
    start = (
        ["-c", f"{before}\nfrom {module}.__main__ import main\nraise SystemExit(main())"] if before else ["-m", module]
    )
    words = [sys.executable, *start, "--port", "0", *options]
    if token is not None:
        (folder / "token").write_text(f"{token}\n")
        words += ["--token-file", str(folder / "token")]
    with log.open("wb") as stderr:
        process = subprocess.Popen(words, cwd=ROOT, stderr=stderr)
    try:
        yield Server(process, log, port_of(log, process), token)
    finally:
        process.terminate()
        process.wait(10)


def run_module(module: str, *words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """The output of a server's command."""
    return subprocess.run(
        [sys.executable, "-m", module, *words],
        cwd=ROOT,
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def port_of(log: Path, process: subprocess.Popen[bytes]) -> int:
    """The port that a server says it listens on, once it does."""
    ends_at = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < ends_at and process.poll() is None:
        for line in log.read_text().splitlines():
            if '"server.listening"' in line:
                return int(json.loads(line)["port"])
        time.sleep(0.1)
    raise AssertionError(f"the server did not start: {log.read_text()}")


class Session:
    """One websocket session."""

    def __init__(self, websocket: ClientConnection) -> None:
        self.websocket = websocket

    async def send(self, frame: Any) -> dict[str, Any]:
        """Send a frame, raw when it is text or bytes, and read the answer."""
        await self.websocket.send(frame if isinstance(frame, str | bytes) else json.dumps(frame))
        return await self.receive()

    async def receive(self) -> dict[str, Any]:
        return json.loads(await self.websocket.recv())

    async def reset(self, task: dict[str, Any] | None = None, seed: int = 0) -> dict[str, Any]:
        return _data(await self.send({"type": "reset", "data": {"task": task or {}, "seed": seed}}))

    async def step(self, message: str = "", *calls: tuple[str, dict[str, Any]], **more: Any) -> dict[str, Any]:
        tool_calls = [{"id": f"c{n}", "name": name, "arguments": args} for n, (name, args) in enumerate(calls)]
        return _data(await self.send({"type": "step", "data": {"message": message, "tool_calls": tool_calls, **more}}))


def _data(answer: dict[str, Any]) -> dict[str, Any]:
    assert answer["type"] == "observation", answer
    return answer["data"]


@asynccontextmanager
async def session(server: Server, **headers: str) -> Any:
    """Open a session; the token goes along unless other headers are given."""
    if server.token is not None and not headers:
        headers = {"Authorization": f"Bearer {server.token}"}
    async with connect(server.url, additional_headers=headers, open_timeout=30, max_size=None) as websocket:
        yield Session(websocket)


def run(test: Coroutine[Any, Any, Any], limit_s: float = TEST_TIMEOUT_S) -> Any:
    """Run an asynchronous test body; nothing waits without end."""

    async def limited() -> Any:
        async with asyncio.timeout(limit_s):
            return await test

    return asyncio.run(limited())


def error_code(answer: dict[str, Any]) -> str:
    assert answer["type"] == "error", answer
    assert "Traceback" not in answer["data"]["message"]
    assert answer["data"]["message"]
    return answer["data"]["code"]
