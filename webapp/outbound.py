"""The one client for addresses that a person typed: it decides whether one may be reached, and reaches only that.

1. The URL is parsed once, strictly; anything two parsers could read differently is refused.
2. The host is resolved once. Every address it has must be global unicast, or allow-listed in ``OUTBOUND_ALLOW``.
3. The connection goes to a checked address (Host and SNI keep the name) and its peer is compared afterwards, so a name
   that answers differently the second time gains nothing.
4. No redirects, no proxies from the environment, no credentials; limits on connecting, on the whole and on the body.
"""

from __future__ import annotations

import contextlib
import ipaddress
import re
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from typing import NamedTuple
from urllib.parse import urlsplit

import h11
from django.conf import settings
from django.utils.translation import gettext as _

from training.errors import EnvironmentProtocolError, EnvironmentTimeout, EnvironmentUnreachable

CONNECT_LIMIT_S = 5.0
TOTAL_LIMIT_S = 10.0
MAX_BODY_BYTES = 1024**2
MAX_URL_CHARS = 500
SCHEMES = {"http": 80, "https": 443}
# Services that answer HTTP-like text with side effects; reachable only where host:port is allow-listed as such.
SERVICE_PORTS = frozenset({
    0, 1, 7, 9, 11, 13, 15, 17, 19, 20, 21, 22, 23, 25, 53, 69, 79, 110, 111, 119, 123, 135, 137, 139, 143, 161, 179,
    389, 445, 465, 512, 513, 514, 587, 636, 873, 993, 995, 1433, 1521, 2049, 2181, 2375, 2376, 2379, 3306, 3389, 5432,
    5672, 5900, 6000, 6379, 6443, 9042, 9200, 10250, 11211, 27017,
})  # fmt: skip

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Resolver = Callable[[str, int], list[str]]
Pairs = frozenset[tuple[str, int]]
NOTHING: Pairs = frozenset()
_GLOBAL_V6 = ipaddress.ip_network("2000::/3")
_NAT64 = (ipaddress.ip_network("64:ff9b::/96"), ipaddress.ip_network("64:ff9b:1::/48"))
# Special ranges that the ``ipaddress`` of some Pythons calls global: relays, Oracle's metadata, documentation.
_SPECIAL = tuple(
    ipaddress.ip_network(text)
    for text in (
        "192.88.99.0/24",
        "192.0.0.0/24",
        "100.64.0.0/10",
        "2001::/23",
        "2001:db8::/32",
        "3fff::/20",
        "2002::/16",
    )
)
_HOST = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)(\.(?!-)[a-z0-9_-]{1,63}(?<!-))*\.?")
_NUMBER_LIKE = re.compile(r"(0x[0-9a-f]*|[0-9]+)\.?")
_UNSAFE = re.compile(r"[\x00-\x20\x7f\\]")
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
    scheme, host, port, path = _parse(url)
    found = tuple(_plain(ipaddress.ip_address(text)) for text in _resolve(host, port, resolve or _system_resolve))
    for address in found:
        _check(address, host, port, ours)
    return Target(scheme, host, port, path, found)


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
    with contextlib.closing(_connect(target, deadline)) as stream:
        try:
            return _exchange(stream, target, deadline, token)
        except TimeoutError as exc:
            raise _too_slow() from exc
        except h11.ProtocolError as exc:
            raise EnvironmentProtocolError(_("The server's answer is not HTTP.")) from exc
        except OSError as exc:
            raise EnvironmentUnreachable(_("The connection broke before the answer was complete.")) from exc


def _parse(url: str) -> tuple[str, str, int, str]:
    """Scheme, host, port and path of a URL that can be read in one way only."""
    if len(url) > MAX_URL_CHARS or _UNSAFE.search(url):
        raise OutboundRefused(_("The address has spaces, backslashes or control characters, or is too long."))
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as exc:
        raise OutboundRefused(_("This is not a valid address.")) from exc
    if parts.scheme not in SCHEMES:
        raise OutboundRefused(_("The address must start with http:// or https://."))
    if "@" in parts.netloc:
        raise OutboundRefused(_("The address must not contain a user name or password."))
    if parts.fragment or parts.query:
        raise OutboundRefused(_("The address must not contain ? or #."))
    return parts.scheme, _host(parts.hostname or ""), SCHEMES[parts.scheme] if port is None else port, parts.path or "/"


def _host(text: str) -> str:
    """A host name in ASCII or an IP address in its usual form."""
    if ":" in text and "%" not in text:
        with contextlib.suppress(ValueError):
            return str(ipaddress.IPv6Address(text))
    try:
        host = text if text.isascii() else text.encode("idna").decode("ascii").lower()
    except UnicodeError:
        host = ""
    if not _HOST.fullmatch(host) or len(host) > 253:
        raise OutboundRefused(_("The host name in this address is not valid."))
    if _NUMBER_LIKE.fullmatch(host.rstrip(".").rsplit(".", 1)[-1]):
        try:
            return str(ipaddress.IPv4Address(host))
        except ValueError as exc:
            raise OutboundRefused(_("Write an IP address as four decimal numbers.")) from exc
    return host


def _system_resolve(host: str, port: int) -> list[str]:
    return [str(found[4][0]) for found in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]


def _resolve(host: str, port: int, resolve: Resolver) -> list[str]:
    """All addresses of a host, asked for once and within the limit (``getaddrinfo`` itself has none)."""
    with contextlib.suppress(ValueError):
        return [str(ipaddress.ip_address(host))]
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


def _plain(address: Address) -> Address:
    """An IPv4 address that is only written as an IPv6 one, as what it is."""
    mapped = getattr(address, "ipv4_mapped", None)
    return mapped or address


def _is_translated(address: ipaddress.IPv6Address) -> bool:
    """Whether a translator (NAT64, 6to4, Teredo) would turn the address into an IPv4 one."""
    return any(address in net for net in _NAT64) or address.sixtofour is not None or address.teredo is not None


def _is_public(address: Address) -> bool:
    """Whether the address is an ordinary one of the internet; ``is_global`` alone accepts multicast and translators."""
    if address.is_multicast or address.is_reserved or not address.is_global:
        return False
    if any(address in network for network in _SPECIAL):
        return False
    return isinstance(address, ipaddress.IPv4Address) or (address in _GLOBAL_V6 and not _is_translated(address))


def _check(address: Address, host: str, port: int, ours: Pairs) -> None:
    """Refuse an address that is neither public nor allow-listed."""
    if address.is_link_local or address.is_multicast or address.is_unspecified:
        raise OutboundRefused(_("This is a link-local, multicast or unset address, which is never allowed."))
    if {(host.rstrip("."), port), (str(address), port)} & (_allowed_pairs() | ours):
        return
    if port in SERVICE_PORTS:
        raise OutboundRefused(_("Port %(port)s belongs to another kind of service.") % {"port": port})
    if any(address in network for network in _allowed_networks()) or _is_public(address):
        return
    raise OutboundRefused(
        _("This address is private to the server, so it may not be reached."),
        hint=_("The administrator can allow it by adding its host:port to TILTYARD_OUTBOUND_ALLOW."),
    )


def _allowed_pairs() -> set[tuple[str, int]]:
    """The ``host:port`` entries of the allow-list."""
    pairs = set()
    for entry in settings.OUTBOUND_ALLOW:
        host, _colon, port = entry.rpartition(":")
        if host and port.isdigit() and "/" not in entry:
            pairs.add((host.strip("[]").lower(), int(port)))
    return pairs


def _allowed_networks() -> Iterator[ipaddress.IPv4Network | ipaddress.IPv6Network]:
    """The CIDR entries of the allow-list."""
    for entry in settings.OUTBOUND_ALLOW:
        if "/" in entry:
            with contextlib.suppress(ValueError):
                yield ipaddress.ip_network(entry, strict=False)


def _left(deadline: float) -> float:
    """Seconds left; raises when there are none, so that a server which drips bytes cannot hold us."""
    left = deadline - time.monotonic()
    if left <= 0:
        raise _too_slow()
    return left


def _too_slow() -> EnvironmentTimeout:
    return EnvironmentTimeout(_("The server did not answer in time."))


def _connect(target: Target, deadline: float) -> socket.socket:
    """A connection to the first checked address that accepts one, with TLS for https."""
    last: OSError | None = None
    for address in target.addresses[:4]:
        try:
            raw = socket.create_connection((str(address), target.port), timeout=min(CONNECT_LIMIT_S, _left(deadline)))
        except OSError as exc:
            last = exc
            continue
        if _plain(ipaddress.ip_address(str(raw.getpeername()[0]).partition("%")[0])) != address:
            raw.close()
            raise OutboundRefused(_("The connection ended at another address than the one that was checked."))
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
        ("Accept", "application/json"), ("Accept-Encoding", "identity"),
        ("User-Agent", "tiltyard"), ("Connection", "close"),
    ]  # fmt: skip
    if token:
        headers.append(("Authorization", f"Bearer {token}"))
    stream.settimeout(_left(deadline))
    stream.sendall(peer.send(h11.Request(method="GET", target=target.path, headers=headers)) or b"")
    stream.sendall(peer.send(h11.EndOfMessage()) or b"")
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
