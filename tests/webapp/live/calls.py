"""GETs of scripts that wait at the whole application, with short rhythms and a run to wait for."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from asgiref.testing import ApplicationCommunicator

from tests.webapp.live.conftest import Watched, in_db
from training import journal
from webapp.asgi import application
from webapp.live import waiting
from webapp.people.teams.models import User
from webapp.people.teams.tokens import token_create

SSE = "text/event-stream"


@pytest.fixture(autouse=True)
def rhythm(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Short rhythms, and no one waits any more at the end."""
    for name, seconds in {"LOOK_S": 0.3, "GATHER_S": 0.05, "RECHECK_S": 0.3, "BEAT_S": 0.5}.items():
        monkeypatch.setattr(waiting, name, seconds)
    yield
    assert not waiting._waiting


@pytest.fixture
def watched(watched: Watched) -> Watched:
    """A claimed run, with what was written at its claim."""
    watched.run.refresh_from_db()
    return watched


class Call(ApplicationCommunicator):
    """One GET of a script at the whole application, as the web server calls it."""

    def __init__(self, run: object, query: str = "", user: User | None = None, **headers: str) -> None:
        self.token, text = token_create(user=user, name=uuid.uuid4().hex, role="viewer") if user else (None, "")
        named = {"host": "127.0.0.1", **({"authorization": f"Bearer {text}"} if text else {}), **headers}
        path = f"/api/v1/runs/{getattr(run, 'pk', run)}/events"
        scope = {
            "type": "http",
            "http_version": "1.1",
            "method": "GET",
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "headers": [(name.replace("_", "-").encode(), value.encode()) for name, value in named.items()],
            "client": ("127.0.0.1", 5),
            "server": ("127.0.0.1", 80),
        }
        super().__init__(application, scope)
        self.path, self.status, self.headers, self.text, self.open = path, 0, {}, "", True

    async def ask(self) -> Call:
        await self.send_input({"type": "http.request", "body": b"", "more_body": False})
        return self

    async def take(self, within_s: float = 10) -> None:
        """The next message of the answer."""
        message = await self.receive_output(within_s)
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {name.decode().lower(): value.decode() for name, value in message["headers"]}
        else:
            self.text += message.get("body", b"").decode()
            self.open = message.get("more_body", False)

    async def answer(self, within_s: float = 10) -> Any:
        """All of it, as JSON."""
        while self.open:
            await self.take(within_s)
        await self.wait(5)
        return json.loads(self.text)

    async def until(self, part: str, within_s: float = 10) -> None:
        """Read the stream until this came."""
        async with asyncio.timeout(within_s):
            while part not in self.text:
                await self.take(within_s)

    async def leave(self) -> None:
        """The client hangs up."""
        await self.send_input({"type": "http.disconnect"})
        await self.wait(5)


make = in_db(Call)


async def all_wait(*calls: Call) -> None:
    """Ask, and go on once all of them wait."""
    wanted = waiting._waiting.total() + len(calls)
    for call in calls:
        await call.ask()
    async with asyncio.timeout(10):
        while waiting._waiting.total() < wanted:  # noqa: ASYNC110 - what counts is the server's own count
            await asyncio.sleep(0.01)


async def say(watched: Watched, *texts: str) -> None:
    await in_db(watched.say)(*(journal.LogLine(level="info", message=text) for text in texts))
