"""The web's client for addresses that a person typed: it reaches only what ``training/addresses.py`` allows.

1. The URL is parsed once, strictly; anything two parsers could read differently is refused.
2. The host is resolved once. Every address it has must be global unicast, or allow-listed in ``OUTBOUND_ALLOW``.
3. The connection goes to a checked address (Host and SNI keep the name) and its peer is compared afterwards, so a name
   that answers differently the second time gains nothing.
4. No redirects, no proxies from the environment, no credentials; limits on connecting, on the whole and on the body.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from typing import NamedTuple

import h11
from django.conf import settings
from django.utils.translation import gettext as _

from training.addresses import MAX_URL_CHARS as MAX_URL_CHARS  # the registration form's limit is this client's
from training.addresses import SCHEMES, Address, AddressRefused, AllowList, literal_address, parse_place, plain_address
from training.connections import Access
from training.errors import EnvironmentProtocolError, EnvironmentTimeout, EnvironmentUnreachable

CONNECT_LIMIT_S = 5.0
TOTAL_LIMIT_S = 10.0
MAX_BODY_BYTES = 1024**2

Resolver = Callable[[str, int], list[str]]
Pairs = frozenset[tuple[str, int]]
NOTHING: Pairs = frozenset()
_resolvers = ThreadPoolExecutor(max_workers=8, thread_name_prefix="resolve")


class OutboundRefused(EnvironmentUnreachable):
    """The address may not be reached from this server."""


class Target(NamedTuple):
    """An address that was checked: where to connect, and what to say there."""

    scheme: str
    host: str
    port: int
    path: str
    addresses: tuple[Address, ...]


class Reply(NamedTuple):
    """What a server answered, within the limits."""

    status: int
    body: bytes


def target_of(url: str, *, resolve: Resolver | None = None, ours: Pairs = NOTHING) -> Target:
    """Check an address without connecting to it. Raises ``OutboundRefused`` with a sentence.

    ``ours`` are the ``host:port`` pairs of servers that we started ourselves: they may be private.
    """
    with translated_refusals():
        scheme, host, port, path = parse_place(url)
        found = tuple(plain_address(text) for text in _resolve(host, port, resolve or _system_resolve))
        allowed = _allowed(ours)
        for address in found:
            allowed.check(address, host, port)
    return Target(scheme, host, port, path, found)


def access(token: str, ours: Pairs = NOTHING) -> Access:
    """What the adapters of ``training.rollout.protocols`` may reach when they are used here."""
    return Access(_allowed(ours), token)


def _allowed(ours: Pairs) -> AllowList:
    return AllowList([*settings.OUTBOUND_ALLOW, *(f"{name}:{number}" for name, number in ours)])


@contextlib.contextmanager
def translated_refusals() -> Iterator[None]:
    """The shared policy's refusals in the reader's language."""
    try:
        yield
    except AddressRefused as exc:
        hint = _(exc.hint) if exc.hint else ""
        raise OutboundRefused(_(exc.template) % exc.values, hint=hint) from exc


def fetch(
    url: str,
    *,
    resolve: Resolver | None = None,
    total_s: float | None = None,
    token: str = "",
    ours: Pairs = NOTHING,
) -> Reply:
    """GET a small document. Raises ``OutboundRefused``, or an environment error that says what went wrong."""
    deadline = time.monotonic() + (total_s or TOTAL_LIMIT_S)
    target = target_of(url, resolve=resolve, ours=ours)
    with contextlib.closing(connect(target, deadline)) as stream:
        try:
            return _exchange(stream, target, deadline, token)
        except TimeoutError as exc:
            raise _too_slow() from exc
        except h11.ProtocolError as exc:
            raise EnvironmentProtocolError(_("The server's answer is not HTTP.")) from exc
        except OSError as exc:
            raise EnvironmentUnreachable(_("The connection broke before the answer was complete.")) from exc


def _system_resolve(host: str, port: int) -> list[str]:
    return [str(found[4][0]) for found in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]


def _resolve(host: str, port: int, resolve: Resolver) -> list[str]:
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


def _left(deadline: float) -> float:
    """Seconds left; raises when there are none, so that a server which drips bytes cannot hold us."""
    left = deadline - time.monotonic()
    if left <= 0:
        raise _too_slow()
    return left


def _too_slow() -> EnvironmentTimeout:
    return EnvironmentTimeout(_("The server did not answer in time."))


def connect(target: Target, deadline: float) -> socket.socket:
    """A connection to the first checked address that accepts one, with TLS for https."""
    last: OSError | None = None
    for address in target.addresses[:4]:
        try:
            raw = socket.create_connection((str(address), target.port), timeout=min(CONNECT_LIMIT_S, _left(deadline)))
        except OSError as exc:
            last = exc
            continue
        if plain_address(str(raw.getpeername()[0]).partition("%")[0]) != address:
            raw.close()
            raise OutboundRefused(_("The connection reached another address than the one that was checked."))
        return _secure(raw, target, deadline) if target.scheme == "https" else raw
    if isinstance(last, TimeoutError):
        raise _too_slow() from last
    raise EnvironmentUnreachable(_("Nothing accepts connections at this address.")) from last


def _secure(raw: socket.socket, target: Target, deadline: float) -> socket.socket:
    """TLS with certificate and name checked."""
    try:
        raw.settimeout(_left(deadline))
        return ssl.create_default_context().wrap_socket(raw, server_hostname=target.host.rstrip("."))
    except TimeoutError as exc:
        raw.close()
        raise _too_slow() from exc
    except (OSError, ValueError) as exc:
        raw.close()
        raise EnvironmentUnreachable(_("The server's TLS certificate or handshake was not accepted.")) from exc


def _exchange(stream: socket.socket, target: Target, deadline: float, token: str) -> Reply:
    """Send the request and read the answer within the limits."""
    peer = h11.Connection(h11.CLIENT, max_incomplete_event_size=16 * 1024)
    host = f"[{target.host}]" if ":" in target.host else target.host
    headers = [
        ("Host", host if target.port == SCHEMES[target.scheme] else f"{host}:{target.port}"),
        ("Accept", "application/json"),
        ("Accept-Encoding", "identity"),
        ("User-Agent", "tiltyard"),
        ("Connection", "close"),
    ]
    if token:
        headers.append(("Authorization", f"Bearer {token}"))
    stream.settimeout(_left(deadline))
    request = peer.send(h11.Request(method="GET", target=target.path, headers=headers)) or b""
    # In one piece: a server that answers the head and hangs up would break a second write.
    stream.sendall(request + (peer.send(h11.EndOfMessage()) or b""))
    status, body = 0, bytearray()
    while True:
        event = peer.next_event()
        if event is h11.NEED_DATA:
            stream.settimeout(_left(deadline))
            peer.receive_data(stream.recv(65536))
        elif isinstance(event, h11.Response):
            status = event.status_code
            if 300 <= status < 400:
                raise EnvironmentProtocolError(_("The server redirects elsewhere, and redirects are not followed."))
        elif isinstance(event, h11.Data):
            body += event.data
            if len(body) > MAX_BODY_BYTES:
                raise EnvironmentProtocolError(_("The server's answer is larger than 1 MB."))
        elif isinstance(event, (h11.EndOfMessage, h11.ConnectionClosed)):
            return Reply(status, bytes(body))
