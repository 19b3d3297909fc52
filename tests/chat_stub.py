"""A real server that answers chat completions as a test sets."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest


class Stub(ThreadingHTTPServer):
    """An endpoint that gives the answers of a test: ``replies`` in turn, and the last one ever after."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.replies: list[tuple[int, bytes, dict[str, str]]] = [says("It is done.")]
        self.asked: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self.models: list[str] = []
        self.delay_s = 0.0
        self.pause_s = 0.02
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    def reply(self, _body: dict[str, Any]) -> tuple[int, bytes, dict[str, str]]:
        """What it answers to this request."""
        return self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]


class _Handler(BaseHTTPRequestHandler):
    server: Stub

    def do_GET(self) -> None:
        """The list of models, where there is one."""
        listed = json.dumps({"object": "list", "data": [{"id": name} for name in self.server.models]}).encode()
        self._answer(*((200, listed, {}) if self.server.models else (404, b"", {})))

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self.server.lock:
            self.server.keys.append(self.headers.get("Authorization"))
            if body["messages"][0]["content"] == "Say OK.":
                status, data, headers = self.server.replies[0] if self.server.replies[0][0] == 401 else says("OK")
            else:
                self.server.asked.append(body)
                status, data, headers = self.server.reply(body)
        time.sleep(self.server.delay_s)
        self._answer(status, data, headers)

    def _answer(self, status: int, data: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        streamed = "text/event-stream" in headers.get("Content-Type", "")
        length = {} if streamed else {"Content-Length": str(len(data))}
        for name, value in {**length, **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        for piece in data.split(b"<pause>") if streamed else [data]:
            self.wfile.write(piece)
            self.wfile.flush()
            time.sleep(self.server.pause_s if streamed else 0)

    def log_message(self, *_: Any) -> None:
        pass


def says(content: Any, finish: str = "stop", **message: Any) -> tuple[int, bytes, dict[str, str]]:
    choice = {"message": {"role": "assistant", "content": content, **message}, "finish_reason": finish}
    used = {"prompt_tokens": 100, "completion_tokens": 7}
    return 200, json.dumps({"choices": [choice], "usage": used}).encode(), {}


def streams(*events: Any, end: str = "data: [DONE]\n\n") -> tuple[int, bytes, dict[str, str]]:
    """A reply in pieces with a pause after each: texts, or whole events as a server would write them."""
    lines = []
    for event in events:
        piece = {"choices": [{"delta": {"content": event}}]} if isinstance(event, str) else event
        lines.append(f"data: {json.dumps(piece)}\n\n<pause>")
    return 200, ("".join(lines) + end).encode(), {"Content-Type": "text/event-stream; charset=utf-8"}


def call(text: str, **more: Any) -> dict[str, Any]:
    return {
        "id": "c9",
        "type": "function",
        "function": {"name": "echo", "arguments": json.dumps({"text": text})},
    } | more


@pytest.fixture
def stub() -> Iterator[Stub]:
    """A server that runs."""
    server = Stub()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
