"""The gate in front of OpenEnv's websocket: who may enter, which frames pass, and when a session ends.

Algorithm of one connection:
1. Refuse a wrong path (404), a browser (403: browsers send ``Origin``, other clients do not) or a wrong token (401).
2. Every frame is checked before OpenEnv reads it; a bad one is answered here and OpenEnv waits on.
3. A watchdog looks at what the connection is doing. Waiting for a frame longer than ``idle_s``: close it with 4408.
   Writing an answer longer than ``send_timeout_s`` (a client that does not read): cancel it. Both give the slot back.
4. Vanished clients are found by uvicorn's pings, which end the receive. One that vanishes while an answer is written to
   OpenEnv gets a disconnect for it too: otherwise it would try to send its error to the same client.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import time
import uuid
from collections import Counter, deque
from typing import Any, Literal

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from envs.base.frames import FrameError, check_frame, clean_error, error_body, error_frame
from envs.base.settings import ServerSettings, log
from envs.wire import Load

# Counts of what a server does, for ``/health``.

WINDOW_S = 60.0
# Enough for a minute at 3,000 steps/s; beyond it the window is shorter, and the rate is taken over what it holds.
MAX_REMEMBERED = 200_000
MAX_ERROR_CODES = 32


class LoadMeter:
    """Remembers the steps of the last minute. Used by the event loop's thread only."""

    def __init__(self) -> None:
        self._steps = 0
        self._recent: deque[tuple[float, float]] = deque(maxlen=MAX_REMEMBERED)
        self._errors: Counter[str] = Counter()
        self._started = time.monotonic()

    def step(self, seconds: float) -> None:
        """One step was answered after ``seconds``."""
        self._steps += 1
        self._recent.append((time.monotonic(), seconds))

    def error(self, code: str) -> None:
        """One frame was refused or failed."""
        if code in self._errors or len(self._errors) < MAX_ERROR_CODES:
            self._errors[code[:64]] += 1

    def read(self) -> Load:
        """The figures now."""
        now = time.monotonic()
        while self._recent and self._recent[0][0] < now - WINDOW_S:
            self._recent.popleft()
        full = len(self._recent) == MAX_REMEMBERED
        span = now - self._recent[0][0] if full else min(WINDOW_S, now - self._started)
        waits = sorted(seconds for _at, seconds in self._recent)
        return Load(
            steps=self._steps,
            steps_per_s=round(len(waits) / max(span, 1.0), 3),
            p50_ms=_quantile_ms(waits, 0.50),
            p95_ms=_quantile_ms(waits, 0.95),
            errors=dict(self._errors),
        )


def _quantile_ms(waits: list[float], share: float) -> float | None:
    return round(waits[min(int(len(waits) * share), len(waits) - 1)] * 1000, 3) if waits else None


CLOSE_LOST = 1006
CLOSE_BAD_FRAMES = 4400
CLOSE_IDLE = 4408
MAX_BAD_FRAMES = 32
OWN_PATHS = frozenset({"/validate", "/metadata", "/schema", "/openapi.json", "/mcp"})
ERROR_PREFIX = '{"type":"error"'


class Guard:
    """ASGI middleware: authentication for http and websockets alike, then one ``Connection`` for each socket.

    ``paths`` are the HTTP routes that a server has besides ``/health`` and ``OWN_PATHS``; they need the token as the
    socket does. A request to one of ``step_paths`` counts as a step.
    """

    def __init__(
        self,
        app: ASGIApp,
        settings: ServerSettings,
        meter: LoadMeter,
        paths: frozenset[str] = frozenset(),
        step_paths: frozenset[str] = frozenset(),
    ) -> None:
        self._app = app
        self._settings = settings
        self._meter = meter
        self._paths = paths | OWN_PATHS
        self._step_paths = step_paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        refusal = self._refusal(scope)
        if refusal is not None:
            log(logging.WARNING, "request.refused", status=refusal[0], path=scope["path"][:200])
            await _refuse(scope, receive, send, *refusal)
        elif scope["type"] == "websocket":
            # The query is dropped: OpenEnv's ?session_id= joins another client's session.
            connection = Connection(self._settings, self._meter, receive, send)
            await connection.run(self._app, {**scope, "query_string": b""})
        else:
            await self._answer(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One HTTP request. A client that leaves in the middle of its body is no failure of ours."""
        began = time.monotonic()
        try:
            await self._app(scope, receive, send)
        except ClientDisconnect:
            log(logging.INFO, "request.lost", path=scope["path"][:200])
            return
        if scope["path"] in self._step_paths:
            self._meter.step(time.monotonic() - began)

    def _refusal(self, scope: Scope) -> tuple[int, str, str] | None:
        headers = dict(scope["headers"])
        if b"origin" in headers:
            return 403, "BROWSER_REFUSED", "Browsers may not talk to an environment server."
        if scope["type"] == "http" and scope["path"] == "/health":
            return None
        token = self._settings.token
        sent = headers.get(b"authorization", b"")
        if token is not None and not hmac.compare_digest(sent, b"Bearer " + token.encode()):
            return 401, "UNAUTHORIZED", "A valid bearer token is needed."
        if scope["path"] not in (self._paths if scope["type"] == "http" else {"/ws"}):
            return 404, "NOT_FOUND", "There is nothing at this path."
        return None


async def _refuse(scope: Scope, receive: Receive, send: Send, status: int, code: str, message: str) -> None:
    """Answer with the error shape of the project, before a websocket is accepted."""
    body = json.dumps(error_body(code, message)).encode()
    prefix = "http" if scope["type"] == "http" else "websocket.http"
    if scope["type"] == "websocket":
        await receive()
        if "websocket.http.response" not in scope.get("extensions", {}):
            await send({"type": "websocket.close", "code": 4000 + status})
            return
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": f"{prefix}.response.start", "status": status, "headers": headers})
    await send({"type": f"{prefix}.response.body", "body": body})


class Connection:
    """One websocket between uvicorn and OpenEnv."""

    def __init__(self, settings: ServerSettings, meter: LoadMeter, receive: Receive, send: Send) -> None:
        self._settings = settings
        self._meter = meter
        self._step_since: float | None = None
        self._receive_raw = receive
        self._send_raw = send
        self._id = uuid.uuid4().hex[:12]
        self._phase: Literal["receiving", "sending", "working"] = "working"
        self._since = time.monotonic()
        self._closed = False
        self._cut = False
        self._lost = False
        self._bad_frames = 0
        self._steps = 0
        self._task: asyncio.Task[Any] | None = None
        self._expiry: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    async def run(self, app: ASGIApp, scope: Scope) -> None:
        """Serve the connection to its end."""
        started = time.monotonic()
        self._task = asyncio.current_task()
        self._watch()
        try:
            await app(scope, self._receive, self._send)
        except asyncio.CancelledError:
            if not self._cut:
                raise
        finally:
            if self._timer is not None:
                self._timer.cancel()
            seconds = round(time.monotonic() - started, 3)
            ended = {"cut": self._cut, "lost": self._lost}
            log(logging.INFO, "session.closed", session=self._id, seconds=seconds, steps=self._steps, **ended)

    def _enter(self, phase: Literal["receiving", "sending", "working"]) -> None:
        self._phase = phase
        self._since = time.monotonic()

    async def _receive(self) -> Message:
        while True:
            if self._lost:
                return {"type": "websocket.disconnect", "code": CLOSE_LOST}
            self._enter("receiving")
            message = await self._receive_raw()
            self._enter("working")
            if message["type"] != "websocket.receive" or self._closed:
                return message
            try:
                frame = check_frame(message.get("text"))
            except FrameError as error:
                await self._answer_bad_frame(error)
                continue
            self._bad_frames = 0
            if frame.kind == "step":
                self._steps += 1
                self._step_since = time.monotonic()
            return {"type": "websocket.receive", "text": frame.text}

    async def _answer_bad_frame(self, error: FrameError) -> None:
        self._bad_frames += 1
        self._meter.error(error.code)
        log(logging.WARNING, "frame.refused", session=self._id, code=error.code, message=str(error))
        await self._send({"type": "websocket.send", "text": error_frame(error.code, str(error))})
        if self._bad_frames >= MAX_BAD_FRAMES:
            await self._send({"type": "websocket.close", "code": CLOSE_BAD_FRAMES, "reason": "too many bad frames"})

    async def _send(self, message: Message) -> None:
        if self._closed:
            return  # OpenEnv closes what the watchdog has closed already.
        self._closed = message["type"] == "websocket.close"
        text = message.get("text")
        if text is not None and text.startswith(ERROR_PREFIX):
            code, text = clean_error(text)
            self._meter.error(code)
            message = {**message, "text": text}
        elif text is not None and self._step_since is not None:
            self._meter.step(time.monotonic() - self._step_since)
        self._step_since = None
        self._enter("sending")
        try:
            await self._send_raw(message)
        except OSError:
            self._closed = self._lost = True
        self._enter("working")

    def _watch(self) -> None:
        limits = self._settings
        age = time.monotonic() - self._since
        if self._phase == "receiving" and age >= limits.idle_s and not self._closed:
            self._expiry = asyncio.create_task(self._expire())
        elif self._phase == "sending" and age >= limits.send_timeout_s and self._task is not None:
            self._closed = self._cut = True
            self._task.cancel()
            return
        period = max(min(limits.idle_s, limits.send_timeout_s) / 4, 0.05)
        self._timer = asyncio.get_running_loop().call_later(period, self._watch)

    async def _expire(self) -> None:
        """Close an idle session; uvicorn then reports the disconnect to OpenEnv's receive."""
        self._closed = self._cut = True
        try:
            async with asyncio.timeout(self._settings.send_timeout_s):
                await self._send_raw({"type": "websocket.close", "code": CLOSE_IDLE, "reason": "idle for too long"})
        except (OSError, RuntimeError, TimeoutError) as error:
            log(logging.INFO, "session.expiry_failed", session=self._id, error=type(error).__name__)
