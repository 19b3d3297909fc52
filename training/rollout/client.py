"""The client of an environment server: OpenEnv's ``/ws`` frames of ``envs/wire.py`` over plain websockets.

Each stage has one deadline over all its reads, so a server that drips bytes is cut off as surely as one that hangs.
Whatever goes wrong leaves as a typed error of ``training/errors.py``. Redirects and proxies are refused: the address
that was registered and checked is the only one that is spoken to.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import time
from types import TracebackType
from typing import Any, Protocol
from urllib.parse import urlsplit

from pydantic import ValidationError
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus, WebSocketException

from envs.wire import Health, Observation, ResetRequest, StepRequest
from training.config import EnvironmentConfig
from training.errors import (
    EnvironmentFault,
    EnvironmentFull,
    EnvironmentProtocolError,
    EnvironmentTimeout,
    EnvironmentUnreachable,
    TiltyardError,
)
from training.rollout.plain import json_problem

TOKEN_VARIABLE = "TILTYARD_ENV_TOKEN"  # noqa: S105 - the name of a variable, not a secret
MAX_MESSAGE_BYTES = 4 << 20
MAX_HEALTH_BYTES = 64 << 10
CLOSE_TIMEOUT_S = 0.5
_PROTOCOL_CODES = {"INVALID_JSON", "UNKNOWN_TYPE", "VALIDATION_ERROR"}


class Session(Protocol):
    """One episode with one environment. ``latencies`` are the seconds each answer took, in order."""

    latencies: list[float]

    async def reset(self, request: ResetRequest) -> Observation: ...

    async def step(self, request: StepRequest) -> Observation: ...

    async def close(self) -> None: ...


class SocketSession:
    """One websocket session. Use as ``async with``; every method raises only environment errors.

    The episode limit counts the seconds spent waiting for the environment, so a slow policy is never blamed on it.
    """

    def __init__(self, config: EnvironmentConfig) -> None:
        self._config = config
        self._socket: ClientConnection | None = None
        self._left_s = config.episode_timeout_s
        self.latencies: list[float] = []

    async def __aenter__(self) -> SocketSession:
        await self._open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def reset(self, request: ResetRequest) -> Observation:
        """Begin the episode."""
        return await self._ask("reset", request.model_dump(mode="json"), self._config.reset_timeout_s)

    async def step(self, request: StepRequest) -> Observation:
        """Play one turn."""
        return await self._ask("step", request.model_dump(mode="json"), self._config.step_timeout_s)

    async def close(self) -> None:
        """Say goodbye if the peer still listens; never raises, never waits long."""
        socket, self._socket = self._socket, None
        if socket is None:
            return
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await socket.send('{"type": "close"}')
                await socket.close()
        except (TimeoutError, WebSocketException, OSError):
            socket.transport.abort()

    async def _open(self) -> None:
        limit = self._config.connect_timeout_s
        try:
            async with asyncio.timeout(limit):
                self._socket = await _Connect(
                    socket_url(self._config.url),
                    additional_headers=auth_headers(),
                    max_size=MAX_MESSAGE_BYTES,
                    max_queue=4,
                    compression=None,
                    open_timeout=None,  # our own deadline above
                    ping_interval=None,  # each wait has its own deadline
                    close_timeout=CLOSE_TIMEOUT_S,
                    proxy=None,
                )
        except TimeoutError as exc:
            raise EnvironmentTimeout(f"No connection to the environment within {limit:g} s.") from exc
        except InvalidStatus as exc:
            raise _refused(exc.response.status_code) from exc
        except (InvalidHandshake, WebSocketException, EOFError) as exc:
            raise EnvironmentProtocolError(f"The environment does not speak websocket: {_short(exc)}.") from exc
        except (OSError, ValueError) as exc:
            raise EnvironmentUnreachable(f"The environment cannot be reached: {_short(exc)}.") from exc

    async def _ask(self, kind: str, data: dict[str, Any], limit: float) -> Observation:
        socket = self._socket
        if socket is None:
            raise EnvironmentUnreachable("The session with the environment is closed.")
        allowed = min(limit, self._left_s)
        began = time.monotonic()
        try:
            async with asyncio.timeout(allowed):
                await socket.send(json.dumps({"type": kind, "data": data}))
                raw = await socket.recv()
        except TimeoutError as exc:
            which = "the episode's" if allowed < limit else "its"
            raise EnvironmentTimeout(f"No answer to {kind} within {which} limit of {allowed:.3g} s.") from exc
        except ConnectionClosed as exc:
            if exc.sent is not None and exc.sent.code == 1009:
                raise EnvironmentProtocolError(f"The answer to {kind} is larger than 4 MB.") from exc
            raise EnvironmentUnreachable(f"The environment hung up during {kind}: {_short(exc)}.") from exc
        except (OSError, WebSocketException) as exc:
            raise EnvironmentUnreachable(f"The connection broke during {kind}: {_short(exc)}.") from exc
        finally:
            waited = time.monotonic() - began
            self._left_s -= waited
            self.latencies.append(waited)
        return parse_answer(raw)


class _Connect(connect):
    """A connection that follows no redirect: the target was checked, its redirect was not."""

    def process_redirect(self, exc: Exception) -> Exception | str:
        return exc


def socket_url(url: str) -> str:
    """``http(s)://host/base`` as the ``ws(s)://host/base/ws`` address. Raises ``EnvironmentUnreachable``."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise EnvironmentUnreachable(
            f"'{url[:200]}' is no address of an environment.", hint="Set environment.url to http://host:port."
        )
    scheme = "wss" if parts.scheme == "https" else "ws"
    return f"{scheme}://{parts.netloc}{parts.path.rstrip('/')}/ws"


def auth_headers() -> dict[str, str]:
    """The bearer token of the environment registration, when the supervisor handed one over."""
    token = os.environ.get(TOKEN_VARIABLE, "")
    return {"Authorization": f"Bearer {token}"} if token else {}


def parse_answer(raw: str | bytes) -> Observation:
    """One frame as an observation. Raises the environment error that the frame reports or is."""
    try:
        frame = json.loads(raw)
    except (ValueError, RecursionError) as exc:
        raise EnvironmentProtocolError(f"The environment answered something that is not JSON: {_short(exc)}.") from exc
    if not isinstance(frame, dict) or not isinstance(frame.get("data"), dict):
        raise EnvironmentProtocolError("The environment's frame has no `type` and `data`.")
    kind, data = frame.get("type"), frame["data"]
    if kind == "error":
        raise _reported(data)
    if kind != "observation" or not isinstance(data.get("observation"), dict):
        raise EnvironmentProtocolError(f"The environment answered a frame of type {str(kind)[:40]!r}.")
    body = data["observation"]
    done, reward = data.get("done", False), data.get("reward")
    if not isinstance(done, bool):
        raise EnvironmentProtocolError("The environment's `done` is neither true nor false.")
    for name, value in {"reward": reward, **_parts(body)}.items():
        _require_number(name, value)
    if (problem := json_problem(body, raw if isinstance(raw, str) else None)) is not None:
        raise EnvironmentProtocolError(f"The observation cannot be used: {problem}.")
    try:
        return Observation.model_validate({**body, "done": done, "reward": reward})
    except ValidationError as exc:
        first = exc.errors(include_input=False, include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise EnvironmentProtocolError(f"The observation is not on the wire: {where}: {first['msg']}") from exc


def _parts(body: dict[str, Any]) -> dict[str, Any]:
    parts = body.get("reward_parts") or {}
    if not isinstance(parts, dict):
        raise EnvironmentProtocolError("The environment's `reward_parts` is not a mapping.")
    return {f"reward_parts.{str(name)[:40]}": value for name, value in parts.items()}


def _require_number(name: str, value: object) -> None:
    """A reward is a finite number or absent; a coerced string or NaN would poison a whole group."""
    if value is None and name == "reward":
        return
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise EnvironmentProtocolError(f"The environment's {name} is not a finite number: {str(value)[:60]!r}.")


def _reported(data: dict[str, Any]) -> TiltyardError:
    code, message = str(data.get("code", "")), str(data.get("message", ""))[:500]
    if code == "CAPACITY_REACHED":
        return EnvironmentFull(f"The environment has no free slot: {message}")
    if code in _PROTOCOL_CODES:
        return EnvironmentProtocolError(f"The environment did not understand us ({code}): {message}")
    return EnvironmentFault(f"The environment reported an error: {message}")


def _refused(status: int) -> TiltyardError:
    if status in (401, 403):
        return EnvironmentUnreachable(
            f"The environment refused us (HTTP {status}).", hint="Check the environment's access token."
        )
    if status in (429, 503):
        return EnvironmentFull(f"The environment is too busy (HTTP {status}).")
    return EnvironmentUnreachable(f"The environment refused the connection (HTTP {status}).")


def _short(exc: BaseException) -> str:
    text = str(exc) or type(exc).__name__
    return text[:200].rstrip(".")


def check_health(config: EnvironmentConfig) -> Health:
    """Ask ``GET /health`` who the server is. Raises environment errors; the name must be the configured one if set."""
    import httpx

    socket_url(config.url)
    began = time.monotonic()
    body = b""
    try:
        with (
            httpx.Client(timeout=config.connect_timeout_s, follow_redirects=False, trust_env=False) as client,
            client.stream("GET", config.url.rstrip("/") + "/health", headers=auth_headers()) as answer,
        ):
            if answer.status_code != 200:
                raise _refused(answer.status_code)
            for chunk in answer.iter_bytes():
                body += chunk
                if len(body) > MAX_HEALTH_BYTES:
                    raise EnvironmentProtocolError("The health answer is larger than 64 KB.")
                if time.monotonic() - began > config.connect_timeout_s:
                    raise httpx.ReadTimeout("the answer drips")
    except httpx.TimeoutException as exc:
        raise EnvironmentTimeout(f"No health answer within {config.connect_timeout_s:g} s.") from exc
    except (httpx.HTTPError, httpx.InvalidURL) as exc:
        raise EnvironmentUnreachable(
            f"The environment cannot be reached: {_short(exc)}.", hint="Start the environment server, or fix its URL."
        ) from exc
    try:
        health = Health.model_validate_json(body)
    except ValidationError as exc:
        raise EnvironmentProtocolError("The health answer is not the one of an environment server.") from exc
    if config.name and health.name != config.name:
        raise EnvironmentProtocolError(
            f"The server at this address is '{health.name}', not '{config.name}'.", hint="Fix the URL or the name."
        )
    return health
