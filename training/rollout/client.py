"""The client of OpenEnv servers: ``/ws`` frames over plain websockets, and ``GET /health``.

``Socket`` speaks OpenEnv's frames; ``SocketSession`` is our own wire (``envs/wire.py``) on top of it. Redirects and
proxies are refused: the address that was registered and checked is the only one that is spoken to.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from pydantic import ValidationError
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus, WebSocketException

from envs.wire import MAX_SESSIONS, Health, Observation, ResetRequest, StepRequest
from training.config import EnvironmentConfig
from training.connections import (
    HttpAnswer,
    HttpClient,
    HttpFailed,
    TooLarge,
    Why,
    auth_headers,
    auth_secrets,
    dial,
    http_parts,
    tls,
)
from training.errors import (
    EnvironmentFault,
    EnvironmentFull,
    EnvironmentProtocolError,
    EnvironmentRefused,
    EnvironmentTimeout,
    EnvironmentUnreachable,
    TiltyardError,
)
from training.plain import json_problem, whole
from training.redaction import without, without_bytes
from training.rollout.session import (
    BUSY_STATUSES,
    CLOSE_TIMEOUT_S,
    GATEWAY_STATUSES,
    MAX_MESSAGE_BYTES,
    MessageRefused,
    SessionLost,
    Waits,
    decode,
    no_connection,
    refusal,
    require_flag,
    require_number,
    short,
)

# One HTTP conversation with one environment server, for the protocols that are plain HTTP.
#
# Bodies are read up to a limit and refused beyond it; redirects, compression and proxies are not used. Deadlines are
# the caller's: everything here can be cancelled at any read.


class Answer(NamedTuple):
    """A whole answer within the limits."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        """The body as JSON. Raises ``EnvironmentProtocolError``."""
        return decode(self.body)


class HttpLink:
    """The conversation; connections are opened as they are needed and kept."""

    def __init__(self, config: EnvironmentConfig, url: str, max_bytes: int = MAX_MESSAGE_BYTES) -> None:
        self._url = server_url(url)
        self._limit_s = config.connect_timeout_s
        self._max_bytes = max_bytes
        self._client = HttpClient(config.connect_timeout_s, headers=auth_headers(self._url))
        self.secrets = auth_secrets(self._url)

    async def close(self) -> None:
        """Drop the connections."""
        await self._client.close()

    async def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        params: dict[str, Any] | None = None,
        headers: dict[str, str] | None = None,
    ) -> Answer:
        """One request and its whole answer, whatever its status."""
        async with self.stream(method, path, body, params=params, headers=headers) as answer:
            return Answer(answer.status, answer.headers, await self.whole(answer))

    async def ask_json(self, method: str, path: str, body: Any = None, **more: Any) -> Any:
        """The JSON of an answer with status 200. Raises environment errors for any other."""
        answer = await self.ask(method, path, body, **more)
        if answer.status != 200:
            raise http_failure(answer.status, f"{method} {path or '/'}")
        return answer.json()

    @asynccontextmanager
    async def stream(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        params: dict[str, Any] | None = None,
        headers: dict[str, str] | None = None,
    ) -> AsyncIterator[HttpAnswer]:
        """One request and its answer, read through ``chunks``."""
        content = None if body is None else json.dumps(body).encode()
        typed = {"Content-Type": "application/json"} if content is not None else {}
        try:
            async with self._client.stream(
                method, self._url + path, content=content, params=params, headers={**typed, **(headers or {})}
            ) as answer:
                if answer.headers.get("content-encoding", "identity") != "identity":
                    raise EnvironmentProtocolError("The environment compresses its answers, which was not asked for.")
                yield answer
        except HttpFailed as exc:
            if exc.why is Why.SLOW:
                raise EnvironmentTimeout(f"No connection to the environment within {self._limit_s:g} s.") from exc
            raise no_connection(exc) from exc

    async def whole(self, answer: HttpAnswer) -> bytes:
        """The whole body, up to the limit and without the token that the server was shown."""
        return without_bytes(b"".join([chunk async for chunk in self.chunks(answer)]), self.secrets)

    async def chunks(self, answer: HttpAnswer) -> AsyncIterator[bytes]:
        """The body in pieces, up to the limit."""
        try:
            async for chunk in answer.chunks(self._max_bytes):
                yield chunk
        except TooLarge as exc:
            size = _size(self._max_bytes)
            raise EnvironmentProtocolError(f"The environment's answer is larger than {size}.") from exc


def server_url(url: str) -> str:
    """The address without its last slash. Raises ``EnvironmentRefused`` for what is no http(s) address."""
    scheme, host = http_parts(url)
    if scheme not in ("http", "https") or not host:
        raise EnvironmentRefused(
            f"'{url[:200]}' is no address of an environment.", hint="Set environment.url to http://host:port."
        )
    return url.rstrip("/")


def http_failure(status: int, asked: str) -> TiltyardError:
    """The typed error of a status that is not 200."""
    if status in (400, 404, 405, 406, 413, 415, 422):
        return EnvironmentProtocolError(f"The environment does not answer {asked} (HTTP {status}).")
    if status >= 500 and status not in (*BUSY_STATUSES, *GATEWAY_STATUSES):
        return EnvironmentFault(f"The environment failed at {asked} (HTTP {status}).")
    return refusal(status)


def _size(count: int) -> str:
    return f"{count >> 20} MB" if count >= 1 << 20 else f"{count >> 10} KB"


MAX_HEALTH_BYTES = 64 << 10
MAX_FAULTS = 3
CLOSE_TRY_LATER = 1013
_PROTOCOL_CODES = {"INVALID_JSON", "UNKNOWN_TYPE", "VALIDATION_ERROR"}


class Socket:
    """One websocket connection; every method raises only environment errors."""

    def __init__(self, config: EnvironmentConfig, url: str | None = None) -> None:
        self._url = url or config.url
        self._limit_s = config.connect_timeout_s
        self._socket: ClientConnection | None = None

    async def open(self) -> None:
        """Connect within the limit."""
        try:
            async with asyncio.timeout(self._limit_s):
                target = socket_url(self._url)
                self._socket = await _Connect(
                    target,
                    sock=await dial(self._url),
                    ssl=tls() if target.startswith("wss:") else None,
                    additional_headers=auth_headers(self._url),
                    max_size=MAX_MESSAGE_BYTES,
                    max_queue=4,
                    compression=None,
                    open_timeout=None,  # our own deadline above
                    ping_interval=None,  # each wait has its own deadline
                    close_timeout=CLOSE_TIMEOUT_S,
                    proxy=None,
                )
        except TimeoutError as exc:
            raise EnvironmentTimeout(f"No connection to the environment within {self._limit_s:g} s.") from exc
        except InvalidStatus as exc:
            raise refusal(exc.response.status_code) from exc
        except (InvalidHandshake, WebSocketException, EOFError) as exc:
            if isinstance(exc, EOFError) or isinstance(exc.__cause__, EOFError):  # it died while we shook hands
                raise EnvironmentUnreachable("The environment hung up while we connected.") from exc
            raise EnvironmentProtocolError(f"The environment does not speak websocket: {short(exc)}.") from exc
        except (OSError, ValueError) as exc:
            raise no_connection(exc) from exc

    async def exchange(self, kind: str, data: dict[str, Any]) -> str | bytes:
        """Send one frame and hear its answer. The caller sets the deadline."""
        socket = self._socket
        if socket is None:
            raise EnvironmentUnreachable("The session with the environment is closed.")
        try:
            with contextlib.suppress(ConnectionClosed):  # it may have said why before it hung up
                await socket.send(json.dumps({"type": kind, "data": data}))
            return self._without_token(await socket.recv())
        except ConnectionClosed as exc:
            if exc.sent is not None and exc.sent.code == 1009:
                raise EnvironmentProtocolError(f"The answer to {kind} is larger than 4 MB.") from exc
            if exc.rcvd is not None and exc.rcvd.code == CLOSE_TRY_LATER:
                raise EnvironmentFull("The environment has no free slot, and asks to try again later.") from exc
            raise EnvironmentUnreachable(f"The environment hung up during {kind}: {short(exc)}.") from exc
        except (OSError, WebSocketException) as exc:
            raise EnvironmentUnreachable(f"The connection broke during {kind}: {short(exc)}.") from exc

    async def refusal(self, wait_s: float) -> None:
        """Wait for what a server says that takes no session. Raises it; silence means that it took this one."""
        assert self._socket is not None  # noqa: S101 - open() came before
        with contextlib.suppress(TimeoutError, ConnectionClosed):
            async with asyncio.timeout(wait_s):
                parse_frame(self._without_token(await self._socket.recv()))

    def _without_token(self, raw: str | bytes) -> str | bytes:
        """A server may repeat the token that it was shown."""
        return without(raw, auth_secrets(self._url)) if isinstance(raw, str) else raw

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


class SocketSession:
    """One episode in our own wire. Use as ``async with``; every method raises only environment errors."""

    def __init__(self, config: EnvironmentConfig, url: str | None = None) -> None:
        self._config = config
        self._socket = Socket(config, url)
        self._waits = Waits(config.episode_timeout_s)
        self.latencies = self._waits.latencies
        self.failures = 0

    async def __aenter__(self) -> SocketSession:
        await self._socket.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def reset(self, request: ResetRequest) -> Observation:
        """Begin the episode."""
        async with self._waits.stage("reset", self._config.reset_timeout_s):
            raw = await self._socket.exchange("reset", request.model_dump(mode="json"))
        return parse_answer(raw)

    async def step(self, request: StepRequest) -> Observation:
        """Play one turn."""
        async with self._waits.stage("step", self._config.step_timeout_s):
            raw = await self._socket.exchange("step", request.model_dump(mode="json"))
        return parse_answer(raw)

    async def close(self) -> None:
        """Say goodbye; never raises, never waits long."""
        await self._socket.close()


class _Connect(connect):
    """A connection that follows no redirect: the target was checked, its redirect was not."""

    def process_redirect(self, exc: Exception) -> Exception | str:
        return exc


def socket_url(url: str) -> str:
    """``http(s)://host/base`` as the ``ws(s)://host/base/ws`` address. Raises ``EnvironmentRefused``."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise EnvironmentRefused(
            f"'{url[:200]}' is no address of an environment.", hint="Set environment.url to http://host:port."
        )
    scheme = "wss" if parts.scheme == "https" else "ws"
    return f"{scheme}://{parts.netloc}{parts.path.rstrip('/')}/ws"


def parse_frame(raw: str | bytes) -> dict[str, Any]:
    """The data of an observation frame. Raises the environment error that the frame reports or is."""
    try:
        frame = json.loads(raw)
    except (ValueError, RecursionError) as exc:
        raise EnvironmentProtocolError(f"The environment answered something that is not JSON: {short(exc)}.") from exc
    if not isinstance(frame, dict) or not isinstance(frame.get("data"), dict):
        raise EnvironmentProtocolError("The environment's frame has no `type` and `data`.")
    kind, data = frame.get("type"), frame["data"]
    if kind == "error":
        raise _reported(data)
    body = data.get("observation")
    if kind != "observation" or not isinstance(body, dict):
        raise EnvironmentProtocolError(f"The environment answered a frame of type {str(kind)[:40]!r}.")
    require_flag("done", data.get("done", False))
    if (problem := json_problem(body, raw if isinstance(raw, str) else None, finite=False)) is not None:
        raise EnvironmentProtocolError(f"The observation cannot be used: {problem}.")
    return data


def parse_answer(raw: str | bytes) -> Observation:
    """One frame of our own wire as an observation. Raises environment errors."""
    data = parse_frame(raw)
    body, reward = data["observation"], data.get("reward")
    for name, value in _parts(body).items():
        require_number(name, value)
    if reward is not None:
        require_number("reward", reward)
    try:
        return Observation.model_validate({**body, "done": data.get("done", False), "reward": reward})
    except ValidationError as exc:
        first = exc.errors(include_input=False, include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise EnvironmentProtocolError(f"The observation is not on the wire: {where}: {first['msg']}") from exc


def _parts(body: dict[str, Any]) -> dict[str, Any]:
    parts = body.get("reward_parts") or {}
    if not isinstance(parts, dict):
        raise EnvironmentProtocolError("The environment's `reward_parts` is not a mapping.")
    return {f"reward_parts.{str(name)[:40]}": value for name, value in parts.items()}


def _reported(data: dict[str, Any]) -> TiltyardError:
    code, message = str(data.get("code", "")), str(data.get("message", ""))[:500]
    if code == "CAPACITY_REACHED":
        full = EnvironmentFull(f"The environment has no free slot: {message}")
        full.slots = whole(data.get("max_sessions"), MAX_SESSIONS) or None
        return full
    if code in _PROTOCOL_CODES:
        faults = _faults(data.get("errors"))
        complaints = "; ".join(f"{field}: {sentence}" for field, _kind, sentence in faults) or message
        refused = MessageRefused(f"The environment did not understand us ({code}): {complaints}")
        refused.faults = faults
        return refused
    lost = SessionLost if code == "SESSION_ERROR" else EnvironmentFault
    return lost(f"The environment reported an error: {message}")


def _faults(errors: object) -> tuple[tuple[str, str, str], ...]:
    """What pydantic found wrong with a message of ours, as OpenEnv passes it on."""
    faults = [error for error in errors if isinstance(error, dict)] if isinstance(errors, list) else []
    places = [fault.get("loc") for fault in faults[:MAX_FAULTS]]
    fields = [str(place[0])[:64] if isinstance(place, list) and place else "" for place in places]
    return tuple(
        (field, str(fault.get("type", ""))[:64], str(fault.get("msg", ""))[:200])
        for field, fault in zip(fields, faults, strict=False)
    )


async def ask_health(config: EnvironmentConfig, url: str | None = None) -> Health:
    """Ask ``GET /health`` who the server is. Raises environment errors; the name must be the configured one if set."""
    link = HttpLink(config, url or config.url, MAX_HEALTH_BYTES)
    try:
        async with asyncio.timeout(config.connect_timeout_s):
            answer = await link.ask("GET", "/health")
    except TimeoutError as exc:
        raise EnvironmentTimeout(f"No health answer within {config.connect_timeout_s:g} s.") from exc
    finally:
        await link.close()
    if answer.status != 200:
        raise http_failure(answer.status, "GET /health")
    try:
        health = Health.model_validate_json(answer.body)
    except ValidationError as exc:
        raise EnvironmentProtocolError("The health answer is not the one of an environment server.") from exc
    require_name(config, health.name)
    return health


def require_name(config: EnvironmentConfig, name: str) -> None:
    """Refuse a server that is another one than was configured, such as the next tenant of its port."""
    if config.name and name != config.name:
        raise EnvironmentProtocolError(
            f"The server at this address is '{name[:200]}', not '{config.name}'.", hint="Fix the URL or the name."
        )
