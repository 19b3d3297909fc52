"""Connections to environment servers: only to addresses that were checked, and only there.

Under an allow-list a host is resolved once, every address it has must pass the policy of ``training/addresses.py``, and
the connection goes to one of those addresses; the name stays in Host and SNI. The supervisor gives a trainer its list
and the server's token as ``TILTYARD_OUTBOUND_ALLOW`` and ``TILTYARD_ENV_TOKEN``; a process that speaks to several
servers (the web) gives them with ``reaching``. A command line with neither is its operator's own and goes where it is
told. Redirects and the proxies of the environment are never followed.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import httpx

from training.addresses import Address, AddressRefused, AllowList, Place, literal_address, parse_place, plain_address
from training.errors import EnvironmentUnreachable

ALLOW_VARIABLE = "TILTYARD_OUTBOUND_ALLOW"
TOKEN_VARIABLE = "TILTYARD_ENV_TOKEN"  # noqa: S105 - the name of a variable, not a secret
MAX_TRIED = 4


@dataclass(frozen=True)
class Access:
    """What the connections of one context may reach, and the token that they show there."""

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


def auth_headers() -> dict[str, str]:
    """The bearer token of the environment registration, when one was handed over."""
    access = _access.get()
    token = os.environ.get(TOKEN_VARIABLE, "") if access is None else access.token
    return {"Authorization": f"Bearer {token}"} if token else {}


def allow_list() -> AllowList | None:
    """The allow-list; ``None`` where nobody set one, and so nothing is checked."""
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
        raise AddressRefused("The connection reached another address than the one that was checked.")


@lru_cache(maxsize=1)
def tls() -> ssl.SSLContext:
    """The trust of this machine, read once: each reading takes tens of milliseconds."""
    return ssl.create_default_context()


def http_client(connect_timeout_s: float) -> httpx.AsyncClient:
    """A client for one server; the caller's own deadline bounds the whole of each exchange."""
    transport: httpx.AsyncBaseTransport = httpx.AsyncHTTPTransport(verify=tls(), trust_env=False, retries=0)
    allowed = allow_list()
    if allowed is not None:
        transport = _CheckedTransport(transport, allowed)
    return httpx.AsyncClient(
        transport=transport,
        trust_env=False,
        follow_redirects=False,
        timeout=httpx.Timeout(None, connect=connect_timeout_s),
        headers={"Accept-Encoding": "identity", "User-Agent": "tiltyard", **auth_headers()},
    )


class _CheckedTransport(httpx.AsyncBaseTransport):
    """Sends each request to a checked address of its host; the first one is kept for the client's life."""

    def __init__(self, inner: httpx.AsyncBaseTransport, allowed: AllowList) -> None:
        self._inner = inner
        self._allowed = allowed
        self._addresses: dict[tuple[str, int], list[Address]] = {}

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        place = parse_place(str(request.url.copy_with(query=None, fragment=None)))
        key = (place.host, place.port)
        if key not in self._addresses:
            self._addresses[key] = await checked_addresses(place, self._allowed)
        candidates = self._addresses[key]
        for number, address in enumerate(candidates):
            try:
                answer = await self._inner.handle_async_request(_to(request, address, place))
            except (httpx.ConnectError, httpx.ConnectTimeout):
                if number == len(candidates) - 1:
                    raise
                continue
            self._addresses[key] = [address]
            stream = answer.extensions.get("network_stream")
            if stream is not None and (peer := stream.get_extra_info("server_addr")) is not None:
                _require_peer(peer, address)
            return answer
        raise EnvironmentUnreachable("The host has no address.")

    async def aclose(self) -> None:
        await self._inner.aclose()


def _to(request: httpx.Request, address: Address, place: Place) -> httpx.Request:
    """The same request to an address; Host is in its headers already, and the name goes into SNI."""
    extensions = {**request.extensions, "sni_hostname": place.host.rstrip(".")}
    url = request.url.copy_with(host=str(address))
    return httpx.Request(request.method, url, headers=request.headers, stream=request.stream, extensions=extensions)
