"""Which addresses may be reached: the policy that the web's forms and the trainer's connections share.

1. A URL is parsed once, strictly; anything two parsers could read differently is refused.
2. Every address a host has must be global unicast, or allow-listed as ``host:port`` or as a network in CIDR form.

Nothing here connects or resolves.
"""

from __future__ import annotations

import contextlib
import ipaddress
import re
from collections.abc import Iterable
from typing import NamedTuple
from urllib.parse import urlsplit

from training.errors import EnvironmentRefused
from training.plain import number_in
from training.words import _, sentence

MAX_URL_CHARS = 500
SCHEMES = {"http": 80, "https": 443}
# Services that answer HTTP-like text with side effects; reachable only where host:port is allow-listed as such.
SERVICE_PORTS = frozenset(
    {
        0,
        1,
        7,
        9,
        11,
        13,
        15,
        17,
        19,
        20,
        21,
        22,
        23,
        25,
        53,
        69,
        79,
        110,
        111,
        119,
        123,
        135,
        137,
        139,
        143,
        161,
        179,
        389,
        445,
        465,
        512,
        513,
        514,
        587,
        636,
        873,
        993,
        995,
        1433,
        1521,
        2049,
        2181,
        2375,
        2376,
        2379,
        3306,
        3389,
        5432,
        5672,
        5900,
        6000,
        6379,
        6443,
        9042,
        9200,
        10250,
        11211,
        27017,
    }
)

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
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


class AddressRefused(EnvironmentRefused):
    """The address may not be reached."""


class Place(NamedTuple):
    """A URL in its parts; the host is a name in ASCII or an IP address in its usual form."""

    scheme: str
    host: str
    port: int
    path: str


class AllowList:
    """What an administrator allows besides public addresses: ``host:port`` entries and networks."""

    def __init__(self, entries: Iterable[str]) -> None:
        self._pairs: set[tuple[str, int]] = set()
        self._networks: list[Network] = []
        for entry in entries:
            host, _colon, port = entry.strip().rpartition(":")
            if "/" in entry:
                with contextlib.suppress(ValueError):
                    self._networks.append(ipaddress.ip_network(entry.strip(), strict=False))
            elif host and (number := number_in(port)) is not None:
                self._pairs.add((host.strip("[]").lower(), number))

    def check(self, address: Address, host: str, port: int) -> None:
        """Refuse an address that is neither public nor allow-listed."""
        if address.is_link_local or address.is_multicast or address.is_unspecified:
            raise AddressRefused(_("This is a link-local, multicast or unset address, which is never allowed."))
        if (host.rstrip("."), port) in self._pairs or (str(address), port) in self._pairs:
            return
        if port in SERVICE_PORTS:
            raise AddressRefused(sentence(_("Port %(port)s belongs to another kind of service."), port=port))
        if any(address in network for network in self._networks) or _is_public(address):
            return
        raise AddressRefused(
            _("This address is private to the server and may not be reached."),
            hint=_("The administrator can allow it by adding its host:port to TILTYARD_OUTBOUND_ALLOW."),
        )


def parse_place(url: str) -> Place:
    """A URL that can be read in one way only. Raises ``AddressRefused``."""
    if len(url) > MAX_URL_CHARS or _UNSAFE.search(url):
        raise AddressRefused(_("The address has spaces, backslashes or control characters, or is too long."))
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as exc:
        raise AddressRefused(_("This is not a valid address.")) from exc
    if parts.scheme not in SCHEMES:
        raise AddressRefused(_("The address must start with http:// or https://."))
    if "@" in parts.netloc:
        raise AddressRefused(_("The address must not contain a user name or password."))
    if parts.fragment or parts.query:
        raise AddressRefused(_("The address must not contain ? or #."))
    host = _host(parts.hostname or "")
    return Place(parts.scheme, host, SCHEMES[parts.scheme] if port is None else port, parts.path or "/")


def plain_address(text: str) -> Address:
    """An address from its text; an IPv4 one that is only written as an IPv6 one, as what it is."""
    address = ipaddress.ip_address(text)
    return getattr(address, "ipv4_mapped", None) or address


def literal_address(host: str) -> Address | None:
    """The address that a host is written as, or ``None`` for a name."""
    try:
        return plain_address(host)
    except ValueError:
        return None


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
        raise AddressRefused(_("The host name in this address is not valid."))
    if _NUMBER_LIKE.fullmatch(host.rstrip(".").rsplit(".", 1)[-1]):
        try:
            return str(ipaddress.IPv4Address(host))
        except ValueError as exc:
            raise AddressRefused(_("Write an IP address as four decimal numbers.")) from exc
    return host


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
