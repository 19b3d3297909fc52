"""Small servers of other people's protocols, written from their documents, and the faults that any server can have."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlsplit

from envs.wire import Observation, ResetRequest, StepRequest, ToolCall
from training.config import EnvironmentConfig
from training.rollout.protocols import open_session


class Asked(NamedTuple):
    """A request as a test server sees it."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: Any


class Reply(NamedTuple):
    """An answer: a status, a value that becomes JSON (bytes stay), and headers."""

    status: int
    value: Any
    headers: dict[str, str] = {}


Raw = Callable[[BaseHTTPRequestHandler], None]
Answer = Callable[[Asked], Reply | Raw]


@contextlib.contextmanager
def http_server(answer: Answer, tls: ssl.SSLContext | None = None) -> Iterator[str]:
    """An HTTP server whose ``answer`` gives each reply, or writes to the socket itself. Yields its URL."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def handle_any(self) -> None:
            size = int(self.headers.get("Content-Length") or 0)
            raw = self.rfile.read(size)
            parts = urlsplit(self.path)
            headers = {name.lower(): value for name, value in self.headers.items()}
            asked = Asked(
                self.command, parts.path, dict(parse_qsl(parts.query)), headers, json.loads(raw) if raw else None
            )
            reply = answer(asked)
            if not isinstance(reply, Reply):
                self.close_connection = True
                with contextlib.suppress(OSError):
                    reply(self)
                return
            body = reply.value if isinstance(reply.value, bytes) else json.dumps(reply.value).encode()
            self.send_response(reply.status)
            headers = {"Content-Type": "application/json", "Content-Length": str(len(body)), **reply.headers}
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            with contextlib.suppress(OSError):
                self.wfile.write(body)

        do_GET = do_POST = do_DELETE = handle_any

        def log_message(self, *args: Any) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


# --- Faults that any server can have --------------------------------------------------------------------------------
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


def hang(handler: BaseHTTPRequestHandler) -> None:
    """Never answer."""
    time.sleep(3)


def drip(handler: BaseHTTPRequestHandler) -> None:
    """Send one byte each 50 ms."""
    handler.wfile.write(HEAD + b"Content-Length: 1000\r\n\r\n")
    for _ in range(60):
        handler.wfile.write(b" ")
        time.sleep(0.05)


def hang_up(handler: BaseHTTPRequestHandler) -> None:
    """Close without a word."""
    handler.connection.close()


def half(handler: BaseHTTPRequestHandler) -> None:
    """Close in the middle of the body."""
    handler.wfile.write(HEAD + b'Content-Length: 1000\r\n\r\n{"state": ')


def flood(handler: BaseHTTPRequestHandler) -> None:
    """Send two gigabytes, as long as anybody listens."""
    handler.wfile.write(HEAD + b"Content-Length: 2147483648\r\n\r\n")
    for _ in range(2048):
        handler.wfile.write(b" " * (1 << 20))


def garbage(handler: BaseHTTPRequestHandler) -> None:
    """Speak something that is not HTTP."""
    handler.wfile.write(b"SSH-2.0-OpenSSH_9\r\n")


def five_megabytes(asked: Asked) -> Reply:
    """A body above the limit of 4 MB."""
    return Reply(200, b'"' + b"x" * (5 << 20) + b'"')


# --- Playing ---------------------------------------------------------------------------------------------------------
def settings(url: str, protocol: str, **over: Any) -> EnvironmentConfig:
    """A config with limits short enough for tests."""
    values = {"connect_timeout_s": 1, "reset_timeout_s": 1, "step_timeout_s": 1, **over}
    return EnvironmentConfig(url=url, protocol=protocol, **values)  # type: ignore[arg-type]


def play(
    config: EnvironmentConfig, turns: list[StepRequest], task: dict[str, Any] | None = None, seed: int = 1
) -> list[Observation]:
    """One episode: the observations of reset and of each turn."""

    async def run() -> list[Observation]:
        session = await open_session(config)
        try:
            seen = [await session.reset(ResetRequest(task=task or {}, seed=seed, episode_id="e1"))]
            for turn in turns:
                seen.append(await session.step(turn))
            assert len(session.latencies) == len(seen) and session.failures == 0
            return seen
        finally:
            await session.close()

    return asyncio.run(run())


def say(text: str) -> StepRequest:
    """A turn that is only text."""
    return StepRequest(message=text)


def call(name: str, **arguments: Any) -> StepRequest:
    """A turn that is one call."""
    return StepRequest(tool_calls=[ToolCall(id="c1", name=name, arguments=arguments)])
