"""A run whose journal the test writes, watched by sockets on the real Redis layer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from asgiref.testing import ApplicationCommunicator
from channels.db import database_sync_to_async
from channels.routing import URLRouter
from django.utils import timezone

from training import journal as j
from training import journal as run_events
from webapp.common import serving
from webapp.common.storage import attempt_dir
from webapp.engine import attempts as leases
from webapp.engine.projection import Projector
from webapp.live import consumers, feed
from webapp.people.teams.models import User
from webapp.runs.answers import LIVE
from webapp.runs.models import Run
from webapp.runs.states import RunState
from webapp.sockets import websocket_urlpatterns

IDENTITY = {
    "points": ("name", "step"),
    "rollouts": ("id",),
    "turns": ("rollout", "number"),
    "groups": ("attempt", "step", "group"),
    "events": ("seq",),
    "checkpoints": ("id",),
}


def points_of(curves: dict[str, Any]) -> list[dict[str, Any]]:
    """The points of the curves of a frame."""
    made = []
    for name, curve in curves.items():
        for at, (step, value) in enumerate(zip(curve["steps"], curve["values"], strict=True)):
            attempt = curve["attempts"][at] if isinstance(curve["attempts"], list) else curve["attempts"]
            made.append({"attempt": attempt, "step": step, "name": name, "value": value})
    return made


class Tab:
    """What a browser keeps: rows by their identity, the last word wins. Docs/live.md has the same rules."""

    def __init__(self) -> None:
        self.seq, self.run, self.frames = -1, {}, []
        self.whole: set[int] = set()
        self.rows: dict[str, dict[Any, Any]] = {key: {} for key in LIVE}

    def take(self, frame: dict[str, Any]) -> None:
        self.frames.append(frame)
        if frame["type"] == "snapshot":
            self.rows, self.whole = {key: {} for key in LIVE}, set()
        if frame["type"] not in {"snapshot", "changes", "step", "curves"}:
            return
        if "run" in frame:
            self.seq, self.run = frame["seq"], frame["run"]
        if frame["type"] == "step":
            self.whole.add(frame["step"])
        rows = {"points": points_of(frame.get("curves", {}))} | frame
        for key in LIVE:
            for row in rows.get(key, []):
                identity = tuple(row[part] for part in IDENTITY[key])
                old = self.rows[key].get(identity)
                if old is None or key != "points" or row["attempt"] >= old["attempt"]:
                    self.rows[key][identity] = row

    def requests(self) -> list[dict[str, Any]]:
        """What the first frame left out: the newest step's turns, and every curve in full."""
        first = self.frames[0]
        wanted: list[dict[str, Any]] = [{"type": "curves", "names": sorted(first["names"])}] if first["names"] else []
        return wanted + ([{"type": "step", "step": first["step"]}] if first["step"] is not None else [])

    def answered(self) -> bool:
        """Whether the answers to ``requests`` are here."""
        types = [frame["type"] for frame in self.frames]
        return all(request["type"] in types for request in self.requests())

    def shown(self) -> dict[str, Any]:
        """The state in the shape of a fresh tab that has asked for all: the newest step's rollouts, the last events."""
        rollouts = list(self.rows["rollouts"].values())
        newest = max(((row["attempt"], row["step"]) for row in rollouts), default=None)
        kept = [row for row in rollouts if (row["attempt"], row["step"]) == newest]
        ids = {row["id"] for row in kept}
        groups = [row for row in self.rows["groups"].values() if (row["attempt"], row["step"]) == newest]
        turns = [row for row in self.rows["turns"].values() if row["rollout"] in ids]
        lists = {
            "points": list(self.rows["points"].values()),
            "rollouts": kept,
            "turns": turns,
            "groups": groups,
            "events": sorted(self.rows["events"].values(), key=lambda row: row["seq"])[-50:],
            "checkpoints": list(self.rows["checkpoints"].values()),
        }
        return {key: sorted(rows, key=lambda row: json.dumps(row, sort_keys=True)) for key, rows in lists.items()}


class Watched:
    """A running run and its journal."""

    def __init__(self, run: Run) -> None:
        lease = leases.claim(run.pk)
        assert lease is not None
        self.run, self.lease = run, lease
        self.journal = j.Journal(attempt_dir(run.pk, lease.attempt))
        self.projector = Projector(lease)

    def say(self, *events: run_events.Event) -> None:
        for event in events:
            self.journal.write(event)
        self.projector.drain()
        self.run.refresh_from_db()

    def step(self, step: int, rollouts: int = 2) -> None:
        """One whole step."""
        names = [f"{step}-{index}" for index in range(rollouts)]
        self.say(run_events.PhaseChanged(phase="generating", step=step))
        for index, name in enumerate(names):
            self.say(run_events.RolloutStarted(rollout=name, step=step, group=0, index=index))
            self.say(run_events.TurnAdded(rollout=name, turn=0, messages=[{"role": "user", "content": "中 </script>"}]))
            self.say(run_events.RolloutFinished(rollout=name, status="completed", reward=0.5, parts={"a": None}))
        self.say(
            run_events.GroupScored(
                step=step,
                group=0,
                rollouts=names,
                advantages=[None] * rollouts,
                reward_mean=None,
                reward_std=None,
                zero_variance=False,
            ),
            run_events.Metrics(step=step, values={"reward": step / 10, "loss": float("nan")}),
        )


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Short rhythms, no messages to workers, and no connections left behind."""
    monkeypatch.setattr("webapp.engine.history._send_message", lambda row: False)
    for name, seconds in {"frame_s": 0.05, "look_s": 0.4}.items():
        monkeypatch.setattr(consumers.RunConsumer, name, seconds)
    for name, seconds in {"BEAT_S": 0.5, "RECHECK_S": 0.3}.items():
        monkeypatch.setattr(consumers, name, seconds)
    monkeypatch.setattr(feed, "SNAPSHOT_KEEP_S", 0.0)  # a test's next tab expects what it has just written
    yield
    serving.close_connections()
    consumers._sockets.clear()


@pytest.fixture
def watched(make_run: Callable[..., Run], transactional_db: None) -> Iterator[Watched]:
    """A claimed run."""
    found = Watched(make_run(state=RunState.QUEUED, queued_at=timezone.now()))
    yield found
    found.journal.close()


class Wire(ApplicationCommunicator):
    """The client's end of one socket (that of ``channels.testing`` needs Daphne)."""

    def __init__(self, application: Any, path: str, headers: list[tuple[bytes, bytes]] | None = None) -> None:
        path, _, query = path.partition("?")
        scope = {
            "type": "websocket",
            "path": path,
            "query_string": query.encode(),
            "headers": headers or [],
            "subprotocols": [],
        }
        super().__init__(application, scope)

    async def connect(self, within_s: float = 5) -> tuple[bool, int | None]:
        """Whether the server accepted, else its close code."""
        await self.send_input({"type": "websocket.connect"})
        answer = await self.receive_output(within_s)
        return answer["type"] == "websocket.accept", answer.get("code")

    async def send_to(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        """Send one frame."""
        await self.send_input({"type": "websocket.receive", "text": text_data, "bytes": bytes_data})

    async def disconnect(self) -> None:
        """Close our end and wait for the server to be done."""
        await self.send_input({"type": "websocket.disconnect", "code": 1000})
        await self.wait(5)


class Socket(Wire):
    """A tab's connection, without the origin and session layers."""

    def __init__(self, run_id: object, user: User | None, query: str = "") -> None:
        super().__init__(URLRouter(websocket_urlpatterns), f"/ws/runs/{run_id}/{query}")
        self.scope["user"] = user
        self.tab = Tab()

    async def frame(self, within_s: float = 5) -> dict[str, Any]:
        """The next frame; ``parse_constant`` refuses NaN and infinities, as ``JSON.parse`` does."""
        message = await self.receive_output(within_s)
        assert message["type"] == "websocket.send", message
        text = message["text"]
        assert len(text) <= 4 << 20

        def refuse(word: str) -> None:
            raise AssertionError(f"{word} is no JSON")

        frame = json.loads(text, parse_constant=refuse)
        self.tab.take(frame)
        return frame

    async def until(self, check: Callable[[], bool], within_s: float = 8) -> None:
        """Take frames until ``check`` holds."""
        async with asyncio.timeout(within_s):
            while not check():
                await self.frame(within_s)

    async def complete(self) -> None:
        """Ask for what a first frame leaves out: the newest step's turns, and every curve."""
        for request in self.tab.requests():
            await self.send_to(json.dumps(request))
        await self.until(self.tab.answered)

    async def closed(self, within_s: float = 5) -> int:
        """Wait for the close and return its code."""
        async with asyncio.timeout(within_s):
            while True:
                message = await self.receive_output(within_s)
                if message["type"] == "websocket.close":
                    return int(message["code"])


in_db = database_sync_to_async
