"""A server that plays the services, channels that post to it, and workers that work when a test says so."""

from __future__ import annotations

import itertools
import json
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

import pytest

from tests.working import at_once
from webapp.common import work
from webapp.people.notifications.channels import channel_create
from webapp.people.notifications.events import notify
from webapp.people.notifications.models import Channel, Delivery, Event, Kind, Reader
from webapp.people.teams.models import Project, User
from webapp.runs.models import Run

EVENTS = ["run_succeeded", "run_failed", "run_paused", "evaluation_ready"]


class Got(NamedTuple):
    """One request as the service read it."""

    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Service:
    """What it was sent, and what it answers: the answers in turn, the last one always. ``hold`` makes it hang."""

    def __init__(self) -> None:
        self.got: list[Got] = []
        self.answers: list[tuple[int, dict[str, str], bytes]] = [(200, {}, b"ok")]
        self.hold, self.released = False, threading.Event()
        self.port = 0

    def say(self, *answers: tuple[int, Mapping[str, str], bytes | str | dict[str, Any]]) -> None:
        """Answer so from now on."""
        made = []
        for status, headers, body in answers:
            text = json.dumps(body) if isinstance(body, dict) else body
            made.append((status, dict(headers), text.encode() if isinstance(text, str) else text))
        self.answers = made

    def url(self, path: str = "/hook/abc?access_token=s3cret-in-url") -> str:
        return f"http://127.0.0.1:{self.port}{path}"


@pytest.fixture
def service(settings: Any) -> Iterator[Service]:
    """The server, at an address that may be reached."""
    state = Service()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            state.got.append(Got(self.path, dict(self.headers), body))
            if state.hold:
                state.released.wait(30)
                return
            answer = state.answers.pop(0) if len(state.answers) > 1 else state.answers[0]
            self.send_response(answer[0])
            for name, value in answer[1].items():
                self.send_header(name, value)
            if answer[0] != 204:
                self.send_header("Content-Length", str(len(answer[2])))
            self.end_headers()
            self.wfile.write(b"" if answer[0] == 204 else answer[2])

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    state.port = server.server_address[1]
    settings.OUTBOUND_ALLOW = [*settings.OUTBOUND_ALLOW, f"127.0.0.1:{state.port}"]
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield state
    state.released.set()
    server.shutdown()
    server.server_close()


@pytest.fixture
def free_port(settings: Any) -> int:
    """A port where nothing listens, at an address that may be reached."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = int(sock.getsockname()[1])
    settings.OUTBOUND_ALLOW = [*settings.OUTBOUND_ALLOW, f"127.0.0.1:{port}"]
    return port


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Workers are asked for here, and come when ``work_off`` is called."""
    return at_once(monkeypatch)


@pytest.fixture
def make_channel(service: Service, project: Project, alice: User) -> Callable[..., Channel]:
    """``make_channel(kind="slack", **fields)``: one that posts to the service."""
    numbers = itertools.count(1)

    def make(kind: str = "slack", **over: Any) -> Channel:
        fields = {"name": f"room-{next(numbers)}", "url": service.url(), "events": EVENTS, "language": "en"}
        return channel_create(**({"project": project, "user": alice, "kind": kind} | fields | over))

    return make


@pytest.fixture
def happened(make_run: Callable[..., Run], bob: User) -> Callable[..., Event]:
    """``happened(kind, **notify options)``: an event of a run of bob's."""

    def make(kind: Kind = Kind.RUN_SUCCEEDED, run: Run | None = None, **over: Any) -> Event:
        about = run or make_run(created_by=bob)
        fields: dict[str, Any] = {"key": f"{about.pk}:{kind}", "person_id": about.created_by_id, "facts": {}}
        return notify(kind, about, **(fields | over))

    return make


def work_off(*models: type[work.Work]) -> None:
    """Workers do what is waiting and due, by default events and then deliveries."""
    for model in models or (Event, Delivery, Reader):
        for item in list(model._default_manager.filter(state__in=model.OPEN, token="")):
            work.do(model._meta.label_lower, str(item.pk))
