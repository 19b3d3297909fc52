"""What the client sends again is done once, whether its connection broke or its first call is still being answered."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from tiltyard_client.api import Refused, Tiltyard, Unreachable
from tiltyard_client.connection import Connection

IN_PROGRESS = (409, b'{"ok": false, "code": "in_progress", "message": "wait", "detail": null, "request_id": "r"}')
DONE = (201, b'{"id": "r1"}')
AWAY = (503, b'{"ok": false, "code": "unavailable", "message": "away", "detail": null, "request_id": "r"}')
BROKEN = (0, b"")  # the line is cut before the answer
Site = Callable[..., tuple[Tiltyard, list[tuple[str, bytes]]]]


@pytest.fixture
def answering(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """``answering(answer, …)``: a client of a server that answers so, one after the other, and what that heard."""
    monkeypatch.setattr("tiltyard_client.connection.PAUSES_S", (0.01, 0.01))
    servers: list[ThreadingHTTPServer] = []

    def start(*answers: Any) -> tuple[Tiltyard, list[tuple[str, bytes]]]:
        heard: list[tuple[str, bytes]] = []

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"] or 0))
                heard.append((self.headers.get("Idempotency-Key", ""), body))
                status, text, *wait = answers[min(len(heard), len(answers)) - 1]
                self.close_connection = True
                if status:
                    self.send_response(status)
                    self.send_header("Content-Length", str(len(text)))
                    for seconds in wait:
                        self.send_header("Retry-After", seconds)
                    self.end_headers()
                    self.wfile.write(text)

            do_GET = do_POST

            def log_message(self, *_words: Any) -> None:
                """Nothing."""

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        servers.append(server)
        return Tiltyard(f"http://127.0.0.1:{server.server_port}", "t", "joust"), heard

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


CALLS: dict[str, Callable[[Tiltyard], Any]] = {
    "launch": lambda site: site.launch("night", config={}),
    "resume": lambda site: site.act("r", "resume"),
    "clone": lambda site: site.clone("r", step=3, name="b", config={}),
    "batch": lambda site: site.batch("tag", ["r"], add=["best"]),
    "suite": lambda site: site.suite_play("s", "model:m"),
    "sweep": lambda site: site.sweep_create("rates", {}),
    "continue": lambda site: site.rollout_continue("r", 1, "model:m", 4),
    "push": lambda site: site.model_push("m", "team/m"),
    "rescore": lambda site: site.rescore(["a"], "reward:s@1"),
    "chat": lambda site: site.chat("model:m"),
    "say": lambda site: site.say("c", "Hello"),
    "upload": lambda site: site.upload(io.BytesIO(b"rows"), "rows.jsonl", "rows"),
    "import": lambda site: site.run_import([("a.log", io.BytesIO(b"rows"))]),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_call_that_broke_or_found_no_database_is_sent_again_under_its_key(name: str, answering: Site) -> None:
    site, heard = answering(BROKEN, IN_PROGRESS, AWAY, DONE)
    assert CALLS[name](site) == {"id": "r1"}
    keys = {key for key, _body in heard}
    assert len(heard) == 4 and len(keys) == 1 and len(keys.pop()) == 32
    if name in ("upload", "import"):
        assert all(b"rows\r\n" in body for _key, body in heard), "the file was read from its beginning again"
    CALLS[name](site)
    assert heard[-1][0] != heard[0][0], "each call has a key of its own"


@pytest.mark.timeout(60)  # one that never gives up hangs
def test_it_gives_up(answering: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site, heard = answering(BROKEN)
    with pytest.raises(Unreachable):
        site.say("c", "Hello")
    assert len(heard) == 3
    monkeypatch.setattr("tiltyard_client.connection.PATIENCE_S", 0.05)
    site, heard = answering(IN_PROGRESS)
    with pytest.raises(Refused, match="wait"):
        site.say("c", "Hello")
    assert len(heard) > 1


def test_a_question_is_asked_again_while_the_database_is_away(answering: Site) -> None:
    site, heard = answering(AWAY, AWAY, DONE)
    assert site.me() == {"id": "r1"} and len(heard) == 3
    site, heard = answering(AWAY)
    with pytest.raises(Refused, match="away"):
        site.me()
    assert len(heard) == 3, "it gives up"
    for broken in (BROKEN, (507, AWAY[1])):
        site, heard = answering(broken, DONE)
        with pytest.raises((Unreachable, Refused)):
            site.me()
        assert len(heard) == 1, "a site that is gone, or whose disk is full, is named at once"


def test_what_may_not_be_sent_twice_is_sent_once(answering: Site) -> None:
    site, heard = answering(AWAY, DONE)
    with pytest.raises(Refused, match="away"):
        site.act("r", "stop")
    assert len(heard) == 1


def test_completion_does_not_wait_for_the_database(answering: Site) -> None:
    site, heard = answering(AWAY, (200, b'{"items": []}'))
    quick = Connection(site.url, "t", "joust", retry=False)
    with pytest.raises(Refused, match="away"):
        quick.rows("/projects")
    assert len(heard) == 1


def test_it_waits_as_long_as_it_is_asked(answering: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr("tiltyard_client.connection.time.sleep", slept.append)
    site, _heard = answering((409, IN_PROGRESS[1], "7"), (409, IN_PROGRESS[1], "soon"), DONE)
    site.say("c", "Hello")
    site, _heard = answering((503, AWAY[1], "5"), AWAY, DONE)
    site.me()
    assert slept == [7.0, 0.01, 5.0, 0.01]


def test_a_refusal_is_no_reason_to_ask_again(answering: Site) -> None:
    site, heard = answering((409, b'{"ok": false, "code": "conflict", "message": "no", "detail": null}'))
    with pytest.raises(Refused, match="no"):
        site.say("c", "Hello")
    assert len(heard) == 1


def test_what_stops_and_pauses_needs_no_key(answering: Site) -> None:
    site, heard = answering(DONE)
    site.act("r", "stop")
    assert heard[0][0] == ""
