"""A proxy in front of the tests' S3 server that fails in one way at a time."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Literal

Fault = Literal["", "away", "silent", "slow", "full", "refusing", "lying"]
SLOW_S, SILENT_S = 3.0, 150.0


class Proxy(ThreadingHTTPServer):
    """``fault`` may be set at any time; ``done`` counts the answers that it spoiled."""

    daemon_threads = True
    fault: Fault = ""

    def __init__(self, host: str, server: str) -> None:
        self.server_host, self.server_port_there = server.removeprefix("http://").rsplit(":", 1)
        self.done = Counter[str]()
        super().__init__((host, 0), Handler)
        self.url = f"http://{host}:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    server: Proxy

    def handle(self) -> None:
        """One that its other end breaks is no error of ours."""
        with suppress(ConnectionError):
            super().handle()

    def log_message(self, *args: object) -> None:
        """No line for each request."""

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        fault, writes = self.server.fault, self.command in {"PUT", "POST"}
        if fault:
            self.server.done[fault] += 1
        if fault == "silent":
            time.sleep(SILENT_S)
        if fault in {"away", "silent"}:
            self.close_connection = True
            return
        if fault == "slow":
            time.sleep(SLOW_S)
        if fault == "full" and writes:
            return self._send(507, b"<Error><Code>InsufficientStorage</Code></Error>", {})
        if fault == "refusing":
            return self._send(403, b"<Error><Code>RequestTimeTooSkewed</Code></Error>", {})
        there = HTTPConnection(self.server.server_host, int(self.server.server_port_there), timeout=60)
        there.request(self.command, self.path, body, dict(self.headers.items()))
        answer = there.getresponse()
        data = answer.read()
        if fault == "lying" and self.command == "GET" and answer.status in {200, 206} and _is_object(self.path):
            data = data[:-1] + bytes([data[-1] ^ 1]) if data else data
        self._send(answer.status, data, dict(answer.getheaders()))
        there.close()

    def _send(self, status: int, data: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        kept = {name: value for name, value in headers.items() if name.lower() not in {"connection", "date", "server"}}
        if self.command != "HEAD":
            kept["Content-Length"] = str(len(data))
        for name, value in kept.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _answer


def _is_object(path: str) -> bool:
    """Not a list, nor what says whose the store is."""
    return "list-type" not in path and not path.endswith("site.json")


@contextmanager
def proxy_to(server: str, host: str) -> Iterator[Proxy]:
    """A proxy on a free port of this host."""
    made = Proxy(host, server)
    threading.Thread(target=made.serve_forever, daemon=True).start()
    try:
        yield made
    finally:
        made.shutdown()
        made.server_close()
