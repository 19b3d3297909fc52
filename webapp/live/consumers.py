"""The live view of one run: a snapshot, then changes by ``seq`` (docs/live.md has the frames and close codes)."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime
from typing import Any, NamedTuple
from urllib.parse import parse_qs
from uuid import UUID

from training.plain import number_in
from webapp.live.feed import Read, RunGone, feed
from webapp.live.snapshot import CURVES_ASKED_MAX, NAME_MAX
from webapp.live.watching import BAD_FRAME, GONE, TOO_MANY, Closed, Watcher
from webapp.runs.models import Run

CLIENT_FRAME_BYTES = 4096
CURVE_REQUESTS_MAX = 16
STEP_MAX = 2**31 - 1
_sockets: Counter[UUID] = Counter()


class CurvesAsked(NamedTuple):
    """Curves that a tab asks for: all of them, or their part between two steps."""

    names: tuple[str, ...]
    first: int | None
    last: int | None


class RunConsumer(Watcher):
    """One tab that watches one run. Each frame has a higher ``seq`` than the one before."""

    model, argument, action, sockets = Run, "run_id", "pump", _sockets
    frame_s, look_s = 0.05, 2.0

    def begin(self) -> None:
        """Begin with nothing sent and nothing requested."""
        self.seq, self.started = 0, False
        self.wanted_step: int | None = None
        self.wanted_curves: list[CurvesAsked] = []

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        """A ping, or a request for a step or for curves; anything else closes the socket."""
        frame = _client_frame(text_data)
        if frame is None:
            await self.close(BAD_FRAME)
        elif frame["type"] == "ping":
            await self._send('{"type":"pong"}')
        else:
            if frame["type"] == "step":
                self.wanted_step = frame["step"]
            elif len(self.wanted_curves) < CURVE_REQUESTS_MAX:
                self.wanted_curves.append(CurvesAsked(tuple(frame["names"]), frame.get("first"), frame.get("last")))
            else:
                await self.close(TOO_MANY)
                return
            self.wake.set()

    async def tell(self) -> None:
        """The first frame, or what has changed since the last."""
        try:
            if not self.started:
                after, least = self._address_number("after"), self._address_number("least") or 0
                await self._send_read(await feed().first(self.watched, after, least))
                self.started = True
            await self._catch_up()
        except RunGone as exc:
            raise Closed(GONE) from exc

    async def _catch_up(self) -> None:
        if self.wanted_step is not None:
            step, self.wanted_step = self.wanted_step, None
            for text in (await feed().step(self.watched, step, self.seq)).texts:
                await self._send(text)
        while self.wanted_curves:
            asked = self.wanted_curves.pop(0)
            for text in (await feed().curves(self.watched, asked.names, self.seq, asked.first, asked.last)).texts:
                await self._send(text)
        while True:
            read, stale = await feed().changes(self.watched, self.seq)
            await self._send_read(read)
            if stale:
                self.wake.set()
            if not read.more:
                return

    async def _send_read(self, read: Read) -> None:
        for text in read.texts:
            await self._send(text)
        self.seq = read.seq

    async def beat(self) -> None:
        """Send the present row of the run."""
        try:
            run = await feed().run(self.watched)
        except RunGone as exc:
            raise Closed(GONE) from exc
        now = datetime.now(UTC).isoformat()
        await self._send(f'{{"type":"beat","seq":{self.seq},"now":"{now}","run":{run}}}')

    def _address_number(self, name: str) -> int | None:
        """A number of the socket's address."""
        text = parse_qs(self.scope["query_string"].decode("ascii", "replace")).get(name, [""])[0]
        return number_in(text, 18)


def _client_frame(text: str | None) -> dict[str, Any] | None:
    """A frame of the client that is on the protocol, else ``None``."""
    if text is None or len(text) > CLIENT_FRAME_BYTES:
        return None
    try:
        frame = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(frame, dict):
        return None
    if frame == {"type": "ping"}:
        return frame
    kind = frame.get("type")
    if kind == "step" and set(frame) == {"type", "step"}:
        return frame if _is_step(frame["step"]) else None
    if kind == "curves" and set(frame) == {"type", "names"}:
        return frame if _are_names(frame["names"]) else None
    if kind == "curves" and set(frame) == {"type", "names", "first", "last"}:
        span = _is_step(frame["first"]) and _is_step(frame["last"]) and frame["first"] <= frame["last"]
        return frame if span and _are_names(frame["names"]) else None
    return None


def _is_step(value: object) -> bool:
    """Whether this is the number of a step."""
    return type(value) is int and 0 <= value <= STEP_MAX


def _are_names(names: object) -> bool:
    """Whether this is a list of metric names that a page may ask for."""
    if not isinstance(names, list) or not 0 < len(names) <= CURVES_ASKED_MAX:
        return False
    return all(isinstance(name, str) and 0 < len(name) <= NAME_MAX and name.isprintable() for name in names)
