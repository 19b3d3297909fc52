"""The one way out over HTTP, and the sockets of environment sessions: only to addresses that were checked.

Under an allow-list a host is resolved once, every address it has must pass the policy of ``training/addresses.py``, and
the connection goes to one of those addresses; the name stays in Host and SNI, and the peer is compared before anything
is sent. The supervisor gives a trainer its list and the server's token as ``TILTYARD_OUTBOUND_ALLOW`` and
``TILTYARD_ENV_TOKEN``, or several tokens as ``TILTYARD_ENV_TOKENS``; a process that speaks to several servers (the
web) gives them with ``reaching``, or hands over the addresses that it has checked itself. A command line with neither
is its operator's own and goes to any address that it is given. Redirects and the proxies of the environment are never
followed, and nothing is compressed.

No other module of ``training`` and ``webapp`` imports an HTTP client (tests/test_architecture.py).
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import ssl
from collections import defaultdict
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpcore
import httpx

from training.addresses import Address, AddressRefused, AllowList, Place, literal_address, parse_place, plain_address
from training.errors import EnvironmentUnreachable
from training.words import _

# The connections of one HTTP client, kept from request to request. No more than the transport of ``connections.py``.
#
# httpx has a pool of its own, which looks through all its connections at every request: 5 ms of processor time where
# 256 are open. Here a request takes the connection that was given back last, whatever their number.

Where = tuple[str, str]
"""The address that a connection goes to, and the name that TLS was spoken to there."""
_FAILURES = (
    httpcore.NetworkError,
    httpcore.TimeoutException,
    httpcore.ProtocolError,
    httpcore.UnsupportedProtocol,
)


@contextmanager
def _failures() -> Iterator[None]:
    """Raise the errors of a connection as httpx names them: the classes have the same names."""
    try:
        yield
    except _FAILURES as exc:
        raise getattr(httpx, type(exc).__name__)(str(exc)) from exc


class KeptConnections(httpx.AsyncBaseTransport):
    """At most ``most`` are open; who comes then waits. One that was idle for ``idle_s`` seconds is not used again.

    ``repeats``: what is asked may be asked twice, so a request that meets a kept connection's end is sent once more on
    a new one. Servers may hang up just then, without a word.
    """

    def __init__(
        self, context: ssl.SSLContext, *, most: int, idle_s: float, path: Path | None = None, repeats: bool = False
    ) -> None:
        self._context, self._idle_s, self._repeats = context, idle_s, repeats
        self._path = str(path) if path is not None else None
        self._places = asyncio.Semaphore(most)
        self._idle: defaultdict[Where, list[httpcore.AsyncHTTPConnection]] = defaultdict(list)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request; its connection comes back with the end of the answer's body."""
        at = request.url
        url = httpcore.URL(scheme=at.raw_scheme, host=at.raw_host, port=at.port, target=at.raw_path)
        sent = httpcore.Request(
            request.method, url, headers=request.headers.raw, content=request.stream, extensions=request.extensions
        )
        where = (str(url.origin), str(request.extensions.get("sni_hostname", "")))
        await self._places.acquire()
        try:
            connection, answer = await self._sent(where, url.origin, sent)
        except BaseException:
            self._places.release()
            raise
        body = _Body(self, where, connection, answer)
        return httpx.Response(answer.status, headers=answer.headers, stream=body, extensions=answer.extensions)

    async def _sent(
        self, where: Where, origin: httpcore.Origin, request: httpcore.Request
    ) -> tuple[httpcore.AsyncHTTPConnection, httpcore.Response]:
        """The answer's head, and the connection that it came over."""
        kept = await self._idle_one(where)
        if kept is not None:
            try:
                return kept, await self._asked(kept, request)
            except (httpx.NetworkError, httpx.RemoteProtocolError):
                if not self._repeats:
                    raise
        made = httpcore.AsyncHTTPConnection(origin, self._context, keepalive_expiry=self._idle_s, uds=self._path)
        return made, await self._asked(made, request)

    async def _asked(self, connection: httpcore.AsyncHTTPConnection, request: httpcore.Request) -> httpcore.Response:
        try:
            with _failures():
                return await connection.handle_async_request(request)
        except BaseException:
            await connection.aclose()
            raise

    async def _idle_one(self, where: Where) -> httpcore.AsyncHTTPConnection | None:
        idle = self._idle[where]
        while idle:
            connection = idle.pop()
            if connection.is_available() and not connection.has_expired():
                return connection
            await connection.aclose()
        return None

    async def give_back(self, where: Where, connection: httpcore.AsyncHTTPConnection) -> None:
        """Keep a connection for the next request where its answer was read to the end, else hang up."""
        self._places.release()
        if connection.is_available():
            self._idle[where].append(connection)
        else:
            await connection.aclose()

    async def aclose(self) -> None:
        """Drop the connections that are idle; those in use end with their answers."""
        for idle in self._idle.values():
            while idle:
                await idle.pop().aclose()


class _Body(httpx.AsyncByteStream):
    """An answer's body."""

    def __init__(
        self,
        kept: KeptConnections,
        where: Where,
        connection: httpcore.AsyncHTTPConnection,
        answer: httpcore.Response,
    ) -> None:
        self._kept, self._where, self._connection, self._answer = kept, where, connection, answer
        self._open = True

    async def __aiter__(self) -> AsyncIterator[bytes]:
        with _failures():
            async for chunk in self._answer.aiter_stream():
                yield chunk

    async def aclose(self) -> None:
        if self._open:
            self._open = False
            try:
                await self._answer.aclose()
            finally:
                await self._kept.give_back(self._where, self._connection)


ALLOW_VARIABLE = "TILTYARD_OUTBOUND_ALLOW"
TOKEN_VARIABLE = "TILTYARD_ENV_TOKEN"  # noqa: S105 - the name of a variable, not a secret
TOKENS_VARIABLE = "TILTYARD_ENV_TOKENS"
"""In its place where a run plays on several environments: each server's token by its ``host:port``, as JSON."""
MAX_TRIED = 4
"""Addresses of one host that are tried."""
CONNECTIONS = 100
"""Open at once, of one client."""
IDLE_S = 3.0
"""How long an idle connection is kept: less than servers do, so that no request meets a connection that is closing."""
CLIENT_ERRORS: tuple[type[Exception], ...] = (httpx.HTTPError, httpx.InvalidURL, OSError)
"""The errors of the client; a library that brings the same client (Hugging Face's) lets these out."""


@dataclass(frozen=True)
class Access:
    """The addresses that the connections of one context may reach, and the token that they show there."""

    allowed: AllowList
    token: str = ""


_access: ContextVar[Access | None] = ContextVar("access", default=None)


@contextmanager
def reaching(access: Access) -> Iterator[None]:
    """Sessions that are opened inside go only where ``access`` says, whatever this process's own variables are."""
    reset = _access.set(access)
    try:
        yield
    finally:
        _access.reset(reset)


def own_access() -> bool:
    """Whether this context may reach what the process itself may, so that its connections serve any other such one."""
    return _access.get() is None


def auth_headers(url: str) -> dict[str, str]:
    """The bearer token of the environment registration that the server belongs to, when one was handed over."""
    access = _access.get()
    token = _own_token(url) if access is None else access.token
    return {"Authorization": f"Bearer {token}"} if token else {}


def auth_secrets(url: str) -> tuple[str, ...]:
    """What ``auth_headers`` shows to the server, which may repeat it."""
    return tuple(value.removeprefix("Bearer ") for value in auth_headers(url).values())


def _own_token(url: str) -> str:
    """The token among this process's variables; of several, only the one that is the server's."""
    several = os.environ.get(TOKENS_VARIABLE)
    if several is None:
        return os.environ.get(TOKEN_VARIABLE, "")
    return str(json.loads(several).get(urlsplit(url).netloc.lower(), ""))


def allow_list() -> AllowList | None:
    """The allow-list; ``None`` where none is set, and so nothing is checked."""
    if (access := _access.get()) is not None:
        return access.allowed
    text = os.environ.get(ALLOW_VARIABLE)
    return None if text is None else AllowList(text.split(","))


async def checked_addresses(place: Place, allowed: AllowList) -> list[Address]:
    """All addresses of a host, each allowed. Raises ``AddressRefused`` when one is not."""
    literal = literal_address(place.host)
    found = [literal] if literal is not None else await _resolve(place)
    for address in found:
        allowed.check(address, place.host, place.port)
    return found[:MAX_TRIED]


async def _resolve(place: Place) -> list[Address]:
    try:
        answers = await asyncio.get_running_loop().getaddrinfo(place.host, place.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as exc:
        raise EnvironmentUnreachable(f"The host name {place.host[:200]} is not known.") from exc
    return list(dict.fromkeys(plain_address(str(answer[4][0]).partition("%")[0]) for answer in answers))


async def dial(url: str) -> socket.socket | None:
    """A connected socket to a checked address of the URL, or ``None`` where nothing is checked.

    Raises ``AddressRefused``, ``EnvironmentUnreachable`` or ``OSError``.
    """
    allowed = allow_list()
    if allowed is None:
        return None
    place = parse_place(url)
    last: OSError | None = None
    for address in await checked_addresses(place, allowed):
        family = socket.AF_INET if address.version == 4 else socket.AF_INET6
        raw = socket.socket(family, socket.SOCK_STREAM)
        try:
            raw.setblocking(False)
            await asyncio.get_running_loop().sock_connect(raw, (str(address), place.port))
            _require_peer(raw.getpeername(), address)
            return raw
        except OSError as exc:
            raw.close()
            last = exc
        except BaseException:
            raw.close()
            raise
    raise last or EnvironmentUnreachable("The host has no address.")


def _require_peer(peer: Any, address: Address) -> None:
    """A connection that ended elsewhere than where it was sent has gained something it must not have."""
    if plain_address(str(peer[0]).partition("%")[0]) != address:
        raise AddressRefused(_("The connection reached another address than the one that was checked."))


@lru_cache(maxsize=1)
def tls() -> ssl.SSLContext:
    """The trust of this machine, read once: each reading takes tens of milliseconds."""
    return ssl.create_default_context()


class Why(StrEnum):
    """The error that ended an exchange before its answer was whole."""

    SLOW = "slow"
    REFUSED = "refused"
    TLS = "tls"
    BROKEN = "broken"
    NOT_HTTP = "not_http"
    ADDRESS = "address"


class HttpFailed(Exception):
    """No whole answer came. Its text is the client's own, in English; ``why`` is for the sentence of a caller."""

    def __init__(self, why: Why, text: str) -> None:
        super().__init__(text)
        self.why = why


class TooLarge(Exception):
    """The answer's body is larger than the caller takes."""


class HttpAnswer:
    """An answer whose body is still to be read."""

    def __init__(self, response: httpx.Response) -> None:
        self._response = response
        self.status = response.status_code
        self.headers: Mapping[str, str] = response.headers
        """By name in any case."""

    async def chunks(self, most: int) -> AsyncIterator[bytes]:
        """The body in pieces. Raises ``TooLarge`` beyond ``most`` bytes, and ``HttpFailed``."""
        size = 0
        with _http_failures():
            async for chunk in self._response.aiter_raw():
                size += len(chunk)
                if size > most:
                    raise TooLarge
                yield chunk

    async def close(self) -> None:
        """Hang up, or keep the connection for the next request where the body was read to its end."""
        await self._response.aclose()


class HttpClient:
    """A client for one server. The caller's own deadline bounds the whole of each exchange, every read included.

    ``pinned`` are the addresses that a caller has checked itself, for the one host that it asks; ``path`` is the Unix
    socket of a server that the caller started, which is asked whatever the host. At most ``connections`` are open.
    ``repeats``: what is asked may be asked twice (see ``KeptConnections``).
    """

    def __init__(
        self,
        connect_timeout_s: float,
        *,
        headers: Mapping[str, str] | None = None,
        pinned: Iterable[Address] | None = None,
        path: Path | None = None,
        connections: int = CONNECTIONS,
        repeats: bool = False,
    ) -> None:
        transport: httpx.AsyncBaseTransport = _transport(path, connections, repeats)
        allowed = allow_list() if path is None else None
        if pinned is not None:
            transport = _CheckedTransport(transport, None, list(pinned)[:MAX_TRIED])
        elif allowed is not None:
            transport = _CheckedTransport(transport, allowed)
        self._client = httpx.AsyncClient(
            transport=transport,
            trust_env=False,
            follow_redirects=False,
            timeout=httpx.Timeout(None, connect=connect_timeout_s),
            headers={"Accept-Encoding": "identity", "User-Agent": "tiltyard", **(headers or {})},
        )

    async def open(
        self,
        method: str,
        url: str,
        *,
        content: bytes | AsyncIterable[bytes] | None = None,
        params: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> HttpAnswer:
        """Send a request; the caller closes its answer. Raises ``HttpFailed``, ``AddressRefused`` and the like."""
        with _http_failures():
            request = self._client.build_request(method, url, content=content, params=params, headers=headers)
            return HttpAnswer(await self._client.send(request, stream=True))

    @asynccontextmanager
    async def stream(self, method: str, url: str, **more: Any) -> AsyncIterator[HttpAnswer]:
        """One request and its answer, as ``open``."""
        answer = await self.open(method, url, **more)
        try:
            yield answer
        finally:
            await answer.close()

    async def close(self) -> None:
        """Drop the connections."""
        await self._client.aclose()

    async def __aenter__(self) -> HttpClient:
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.close()


def _transport(path: Path | None, connections: int, repeats: bool) -> httpx.AsyncBaseTransport:
    return KeptConnections(tls(), most=connections, idle_s=IDLE_S, path=path, repeats=repeats)


def http_parts(url: str) -> tuple[str, str]:
    """The scheme and the host of an address as the client reads it; empty where it cannot."""
    try:
        parts = httpx.URL(url)
    except (httpx.InvalidURL, ValueError):
        return "", ""
    return parts.scheme, parts.host


@contextmanager
def _http_failures() -> Iterator[None]:
    try:
        yield
    except CLIENT_ERRORS as exc:
        raise HttpFailed(_why(exc), str(exc) or type(exc).__name__) from exc


def _why(exc: BaseException) -> Why:
    if isinstance(exc, httpx.TimeoutException):
        return Why.SLOW
    if isinstance(exc, httpx.ConnectError):
        return Why.TLS if any(isinstance(cause, ssl.SSLError) for cause in _causes(exc)) else Why.REFUSED
    if isinstance(exc, httpx.ProtocolError | httpx.DecodingError):
        return Why.NOT_HTTP
    return Why.ADDRESS if isinstance(exc, httpx.InvalidURL | httpx.UnsupportedProtocol) else Why.BROKEN


def _causes(exc: BaseException | None) -> Iterator[BaseException]:
    while exc is not None:
        yield exc
        exc = exc.__cause__ or exc.__context__


class _CheckedTransport(httpx.AsyncBaseTransport):
    """Sends each request to a checked address of its host; the first one that accepts is kept for the client's life."""

    def __init__(
        self, inner: httpx.AsyncBaseTransport, allowed: AllowList | None, pinned: list[Address] | None = None
    ) -> None:
        self._inner = inner
        self._allowed = allowed
        self._pinned = pinned
        self._addresses: dict[tuple[str, int], list[Address]] = {}

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        # Path and query name neither host nor port; those of a signed address are longer than any that is typed.
        place = parse_place(str(request.url.copy_with(path="/", query=None, fragment=None)))
        key = (place.host, place.port)
        if key not in self._addresses:
            self._addresses[key] = await self._checked(place)
        candidates = self._addresses[key]
        for number, address in enumerate(candidates):
            try:
                answer = await self._inner.handle_async_request(_to(request, address, place))
            except (httpx.ConnectError, httpx.ConnectTimeout):
                if number == len(candidates) - 1:
                    if self._allowed is not None:  # it may have moved: the next request looks its name up again
                        del self._addresses[key]
                    raise
                continue
            self._addresses[key] = [address]
            return answer
        raise EnvironmentUnreachable("The host has no address.")

    async def _checked(self, place: Place) -> list[Address]:
        if self._allowed is not None:
            return await checked_addresses(place, self._allowed)
        if self._pinned is None or self._addresses:
            raise AddressRefused(_("The connection reached another address than the one that was checked."))
        return self._pinned

    async def aclose(self) -> None:
        await self._inner.aclose()


def _to(request: httpx.Request, address: Address, place: Place) -> httpx.Request:
    """The same request to an address; Host is in its headers already, and the name goes into SNI."""

    async def compare(event: str, info: dict[str, Any]) -> None:
        """Before a byte is sent: the connection ends where it was sent."""
        if event == "connection.connect_tcp.complete":
            stream = info["return_value"]
            try:
                _require_peer(stream.get_extra_info("server_addr"), address)
            except BaseException:
                await stream.aclose()
                raise

    extensions = {**request.extensions, "sni_hostname": place.host.rstrip("."), "trace": compare}
    url = request.url.copy_with(host=str(address))
    return httpx.Request(request.method, url, headers=request.headers, stream=request.stream, extensions=extensions)
