"""Addresses that a person typed, reached through the one client of ``training/connections.py``.

1. The URL is parsed once, strictly; anything two parsers could read differently is refused.
2. The host is resolved once. Every address it has must be global unicast, or allow-listed in ``OUTBOUND_ALLOW``.
3. The connection goes to a checked address (Host and SNI keep the name) and its peer is compared before anything is
   sent, so a name that answers differently the second time gains nothing.
4. No redirects, no proxies from the environment, no credentials; limits on connecting, on the whole and on the body.

The client is asynchronous because only so a limit holds for all reads together; ``Exchange`` turns it on a loop of its
own, step by step, so that callers stay plain functions that may use the database between the pieces of a body.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import time
from collections.abc import AsyncIterable, AsyncIterator, Callable, Coroutine, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from math import inf
from pathlib import Path
from types import MappingProxyType
from typing import BinaryIO, NamedTuple, TypeVar
from urllib.parse import urljoin, urlsplit, urlunsplit

from django.conf import settings
from django.utils.translation import gettext as _

from training.addresses import MAX_URL_CHARS as MAX_URL_CHARS  # the registration form's limit is this client's
from training.addresses import Address, AddressRefused, AllowList, literal_address, parse_place, plain_address
from training.connections import Access, HttpClient, HttpFailed, TooLarge, Why, reaching
from training.errors import EnvironmentProtocolError, EnvironmentTimeout, EnvironmentUnreachable, TiltyardError
from training.plain import number_in
from training.redaction import without_bytes
from webapp.common.text import in_words

CONNECT_LIMIT_S = 5.0
TOTAL_LIMIT_S = 10.0
MAX_BODY_BYTES = 1024**2
TICK_S = 0.5

MAX_ANSWER_BYTES = 64 * 1024  # of a POST; a longer answer is an error page, whose beginning is enough
CLOSING = {"Connection": "close"}
Result = TypeVar("Result")
Resolver = Callable[[str, int], list[str]]
Pairs = frozenset[tuple[str, int]]
NOTHING: Pairs = frozenset()
_resolvers = ThreadPoolExecutor(max_workers=8, thread_name_prefix="resolve")


class OutboundRefused(EnvironmentUnreachable):
    """The address may not be reached from this server."""


class Target(NamedTuple):
    """An address that was checked: where to connect, and the name to send there."""

    scheme: str
    host: str
    port: int
    path: str
    addresses: tuple[Address, ...]


class Reply(NamedTuple):
    """A server's answer, within the limits; ``headers`` by name in any case."""

    status: int
    body: bytes
    headers: Mapping[str, str] = MappingProxyType({})


class Answer(NamedTuple):
    """A server's answer to a POST; header names are in lower case."""

    status: int
    body: bytes
    headers: dict[str, str]


def target_of(url: str, *, resolve: Resolver | None = None, ours: Pairs = NOTHING) -> Target:
    """Check an address without connecting to it. Raises ``OutboundRefused`` with a sentence.

    ``ours`` are the ``host:port`` pairs of servers that we started ourselves: they may be private.
    """
    with translated_refusals():
        scheme, host, port, path = parse_place(url)
        found = tuple(plain_address(text) for text in _resolve_host(host, port, resolve or _system_resolve))
        allowed = _allow_list(ours)
        for address in found:
            allowed.check(address, host, port)
    return Target(scheme, host, port, path, found)


def target_with_query(url: str, ours: Pairs = NOTHING) -> Target:
    """As ``target_of``, for an address with a query: it takes no part in the check, as it names neither host nor port.

    The caller has refused white space and control characters.
    """
    parts = urlsplit(url)
    place = target_of(urlunsplit(parts._replace(query="", fragment="", path="/")), ours=ours)
    return place._replace(path=urlunsplit(("", "", parts.path or "/", parts.query, "")))


def access(token: str, ours: Pairs = NOTHING) -> Access:
    """The addresses that the adapters of ``training.rollout.protocols`` may reach when they are used here."""
    return Access(_allow_list(ours), token)


def _allow_list(ours: Pairs) -> AllowList:
    return AllowList([*settings.OUTBOUND_ALLOW, *(f"{name}:{number}" for name, number in ours)])


@contextlib.contextmanager
def translated_refusals() -> Iterator[None]:
    """The shared policy's refusals in the reader's language."""
    try:
        yield
    except AddressRefused as exc:
        raise OutboundRefused(in_words(exc.message), hint=in_words(exc.hint)) from exc


def fetch(
    url: str,
    *,
    resolve: Resolver | None = None,
    total_s: float | None = None,
    token: str = "",
    ours: Pairs = NOTHING,
) -> Reply:
    """GET a small document; a token that the server repeats is not in it.

    Raises ``OutboundRefused``, or an environment error that says what went wrong.
    """
    deadline = time.monotonic() + (total_s or TOTAL_LIMIT_S)
    target = target_of(url, resolve=resolve, ours=ours)
    headers = {"Accept": "application/json", **({"Authorization": f"Bearer {token}"} if token else {})}
    with Exchange(target, headers, deadline) as exchange:
        if 300 <= exchange.status < 400:
            raise EnvironmentProtocolError(_("The server redirects elsewhere, and redirects are not followed."))
        try:
            return Reply(exchange.status, without_bytes(b"".join(exchange.body(MAX_BODY_BYTES)), (token,)))
        except TooLarge as exc:
            raise EnvironmentProtocolError(_("The server's answer is larger than 1 MB.")) from exc


def post(
    url: str, content: bytes, headers: Mapping[str, str], *, total_s: float = TOTAL_LIMIT_S, ours: Pairs = NOTHING
) -> Answer:
    """POST a small document to an address that may have a query. A redirect is an answer like any other.

    Raises ``OutboundRefused``, or an environment error that says what went wrong. Of a long body the beginning is read.
    """
    deadline = time.monotonic() + total_s
    body: list[bytes] = []
    with Exchange(target_with_query(url, ours), dict(headers), deadline, content=content) as exchange:
        with contextlib.suppress(TooLarge):
            for piece in exchange.body(MAX_ANSWER_BYTES):
                body.append(piece)
        answered = {name.lower(): value for name, value in exchange.headers.items()}
        return Answer(exchange.status, b"".join(body), answered)


def _system_resolve(host: str, port: int) -> list[str]:
    return [str(found[4][0]) for found in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]


def _resolve_host(host: str, port: int, resolve: Resolver) -> list[str]:
    """All addresses of a host, asked for once and within the limit (``getaddrinfo`` itself has none)."""
    if literal_address(host) is not None:
        return [host]
    try:
        found = _resolvers.submit(resolve, host, port).result(timeout=CONNECT_LIMIT_S)
    except FutureTimeout as exc:
        raise EnvironmentTimeout(_("The host name could not be looked up in time.")) from exc
    except (OSError, UnicodeError) as exc:
        raise EnvironmentUnreachable(_("The host name is not known.")) from exc
    unique = [text for text in dict.fromkeys(found) if "%" not in text]
    if not unique:
        raise EnvironmentUnreachable(_("The host name is not known."))
    return unique


def _too_slow() -> EnvironmentTimeout:
    return EnvironmentTimeout(_("The server did not answer in time."))


class Exchange:
    """One request at a checked address (a POST where there is ``content``), and its answer.

    Every step ends by the deadline, or after ``silence_s`` of silence. Raises ``OutboundRefused``, or an
    environment error that says what went wrong in the reader's language.
    """

    def __init__(
        self,
        target: Target,
        headers: dict[str, str],
        deadline: float,
        silence_s: float = inf,
        *,
        content: bytes | None = None,
    ) -> None:
        self._deadline, self._silence_s, self._content = deadline, silence_s, content
        self._loop = asyncio.Runner()
        self._client = HttpClient(CONNECT_LIMIT_S, headers=CLOSING | headers, pinned=target.addresses)
        self._target = target

    def __enter__(self) -> Exchange:
        try:
            method = "GET" if self._content is None else "POST"
            self._answer = self._step(self._client.open(method, url_of(self._target), content=self._content))
        except BaseException:
            self.__exit__()
            raise
        self.status, self.headers = self._answer.status, self._answer.headers
        return self

    def __exit__(self, *_error: object) -> None:
        try:
            self._loop.run(self._client.close())
        finally:
            self._loop.close()

    def body(self, most: int) -> Iterator[bytes]:
        """The body in pieces. Raises ``TooLarge`` beyond ``most`` bytes."""
        pieces = self._answer.chunks(most)
        while (piece := self._step(_next_piece(pieces))) is not None:
            yield piece

    def _step(self, doing: Coroutine[object, object, Result]) -> Result:
        async def limited() -> Result:
            async with asyncio.timeout(min(self._silence_s, self._deadline - time.monotonic())):
                return await doing

        try:
            with translated_refusals():
                return self._loop.run(limited())
        except TimeoutError as exc:
            raise _too_slow() from exc
        except HttpFailed as exc:
            raise _failure(exc.why) from exc


class Caller:
    """Requests of one piece of work, one after the other, also to several servers: each host passes the policy.

    No redirects, no credentials but those that a request is given. Used as a context; not for several threads.
    """

    def __enter__(self) -> Caller:
        self._loop = asyncio.Runner()
        with reaching(access("")):
            self._client = HttpClient(CONNECT_LIMIT_S)
        return self

    def __exit__(self, *_error: object) -> None:
        try:
            self._loop.run(self._client.close())
        finally:
            self._loop.close()

    def send(
        self,
        method: str,
        url: str,
        *,
        content: bytes | AsyncIterable[bytes] | None = None,
        headers: Mapping[str, str] | None = None,
        limit_s: float = TOTAL_LIMIT_S,
        tick: Callable[[], None] | None = None,
    ) -> Reply:
        """One request and its whole answer. ``tick`` is called meanwhile, about twice a second, outside of the loop:
        it may use the database, and what it raises ends the request. Raises as ``fetch`` does."""

        async def exchange() -> Reply:
            async with (
                asyncio.timeout(limit_s),
                self._client.stream(method, url, content=content, headers=headers) as answer,
            ):
                body = b"".join([piece async for piece in answer.chunks(MAX_BODY_BYTES)])
                return Reply(answer.status, body, dict(answer.headers))

        try:
            with translated_refusals():
                return self._ticking(exchange(), tick) if tick is not None else self._loop.run(exchange())
        except TimeoutError as exc:
            raise _too_slow() from exc
        except HttpFailed as exc:
            raise _failure(exc.why) from exc
        except TooLarge as exc:
            raise EnvironmentProtocolError(_("The server's answer is larger than 1 MB.")) from exc

    def _ticking(self, doing: Coroutine[object, object, Result], tick: Callable[[], None]) -> Result:
        task = self._loop.get_loop().create_task(doing)
        try:
            while not task.done():
                self._loop.run(_a_while(task))
                tick()
            return task.result()
        finally:
            if not task.done():
                task.cancel()
                self._loop.run(_a_while(task))


async def _a_while(task: asyncio.Task[Result]) -> None:
    await asyncio.wait({task}, timeout=TICK_S)


async def _next_piece(pieces: AsyncIterator[bytes]) -> bytes | None:
    return await anext(pieces, None)


def url_of(target: Target) -> str:
    """The address of a target, as its client reads it."""
    host = f"[{target.host}]" if ":" in target.host else target.host
    return f"{target.scheme}://{host}:{target.port}{target.path}"


def _failure(why: Why) -> TiltyardError:
    match why:
        case Why.SLOW:
            return _too_slow()
        case Why.REFUSED:
            return EnvironmentUnreachable(_("Nothing accepts connections at this address."))
        case Why.TLS:
            return EnvironmentUnreachable(_("The server's TLS certificate or handshake was not accepted."))
        case Why.BROKEN:
            return EnvironmentUnreachable(_("The connection broke before the answer was complete."))
        case Why.NOT_HTTP:
            return EnvironmentProtocolError(_("The server's answer is not HTTP."))
    return OutboundRefused(_("This is not a valid address."))


# --- Downloads ------------------------------------------------------------------------------------------------------
# Large files from addresses that the outbound policy allows, followed through redirects that are each checked.
#
# 1. Every address, the first and those that it redirects to, passes ``webapp.common.outbound.target_with_query``; a
#    redirect may carry a query, because signed addresses of file stores do.
# 2. The body goes to a file piece by piece, at most ``most`` bytes; the file is complete or not there.
# 3. Silence ends it after ``SILENCE_LIMIT_S``, and the whole after the limit that is given.

MAX_REDIRECTS = 5
MAX_ADDRESS_CHARS = 8000
SILENCE_LIMIT_S = 30.0
OnProgress = Callable[[int, int], None]


def download(url: str, path: Path, *, most: int, limit_s: float, on_progress: OnProgress | None = None) -> int:
    """GET a file into ``path``; gives the status, and keeps the file only for 200.

    Raises ``OutboundRefused``, another environment error that says what went wrong, or ``OSError``.
    """
    deadline = time.monotonic() + limit_s
    for _number in range(MAX_REDIRECTS + 1):
        with Exchange(_checked_target(url), {"Accept": "*/*"}, deadline, SILENCE_LIMIT_S) as exchange:
            if exchange.status == 200:
                _keep_file(exchange, path, most, on_progress)
            if not 300 <= exchange.status < 400:
                return exchange.status
            url = urljoin(url, exchange.headers.get("location", ""))
    raise EnvironmentProtocolError(_("The server redirects too often."))


def _checked_target(url: str) -> Target:
    """A checked address."""
    if len(url) > MAX_ADDRESS_CHARS or any(mark <= " " or mark == "\x7f" for mark in url):
        raise EnvironmentProtocolError(_("The server redirects to an address that cannot be used."))
    return target_with_query(url)


def _keep_file(exchange: Exchange, path: Path, most: int, on_progress: OnProgress | None) -> None:
    """Write the body to a file next to its place, and then move it there."""
    total = number_in(exchange.headers.get("content-length", "")) or 0
    path.parent.mkdir(parents=True, mode=0o700, exist_ok=True)
    part = path.with_name(path.name + ".part")
    try:
        if total > most:
            raise TooLarge
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600), "wb") as file:
            _write_pieces(exchange, file, most, total, on_progress)
        os.replace(part, path)
    except TooLarge as exc:
        raise EnvironmentProtocolError(_("The file is larger than may be fetched.")) from exc
    finally:
        part.unlink(missing_ok=True)


def _write_pieces(exchange: Exchange, file: BinaryIO, most: int, total: int, on_progress: OnProgress | None) -> None:
    done = 0
    for piece in exchange.body(most):
        file.write(piece)
        done += len(piece)
        if on_progress is not None:
            on_progress(done, total)
