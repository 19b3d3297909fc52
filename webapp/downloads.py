"""Large files from addresses that the outbound policy allows, followed through redirects that are each checked.

1. Every address, the first and those that it redirects to, passes ``webapp.outbound.target_of``; a redirect may carry a
   query, because signed addresses of file stores do.
2. The body goes to a file piece by piece, at most so many bytes; the file is whole or not there.
3. Silence ends it after ``SILENCE_LIMIT_S``, and the whole after the limit that is given.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, NamedTuple
from urllib.parse import urljoin, urlsplit, urlunsplit

import h11
from django.utils.translation import gettext as _

from training.addresses import SCHEMES
from training.errors import EnvironmentProtocolError, EnvironmentTimeout, EnvironmentUnreachable
from webapp.outbound import Target, connect, target_of

MAX_REDIRECTS = 5
MAX_ADDRESS_CHARS = 8000
SILENCE_LIMIT_S = 30.0
OnProgress = Callable[[int, int], None]


class Head(NamedTuple):
    """How a server answered before its body."""

    status: int
    location: str
    length: int


def download(url: str, path: Path, *, most: int, limit_s: float, on_progress: OnProgress | None = None) -> int:
    """GET a file into ``path``; gives the status, and keeps the file only for 200.

    Raises ``OutboundRefused``, another environment error that says what went wrong, or ``OSError``.
    """
    deadline = time.monotonic() + limit_s
    for _number in range(MAX_REDIRECTS + 1):
        target = _target(url)
        with contextlib.closing(connect(target, deadline)) as stream:
            try:
                head = _exchange(stream, target, path, most, deadline, on_progress)
            except TimeoutError as exc:
                raise EnvironmentTimeout(_("The server did not answer in time.")) from exc
            except h11.ProtocolError as exc:
                raise EnvironmentProtocolError(_("The server's answer is not HTTP.")) from exc
        if not 300 <= head.status < 400:
            return head.status
        url = urljoin(url, head.location)
    raise EnvironmentProtocolError(_("The server redirects too often."))


def _target(url: str) -> Target:
    """A checked address; its query takes no part in the check, as it names neither host nor port."""
    if len(url) > MAX_ADDRESS_CHARS or any(mark <= " " or mark == "\x7f" for mark in url):
        raise EnvironmentProtocolError(_("The server redirects to an address that cannot be used."))
    parts = urlsplit(url)
    place = target_of(urlunsplit(parts._replace(query="", fragment="", path="/")))
    return place._replace(path=urlunsplit(("", "", parts.path or "/", parts.query, "")))


def _exchange(
    stream: socket.socket, target: Target, path: Path, most: int, deadline: float, on_progress: OnProgress | None
) -> Head:
    peer = h11.Connection(h11.CLIENT, max_incomplete_event_size=32 * 1024)
    host = f"[{target.host}]" if ":" in target.host else target.host
    headers = [
        ("Host", host if target.port == SCHEMES[target.scheme] else f"{host}:{target.port}"),
        ("Accept", "*/*"),
        ("Accept-Encoding", "identity"),
        ("User-Agent", "tiltyard"),
        ("Connection", "close"),
    ]
    request = peer.send(h11.Request(method="GET", target=target.path, headers=headers)) or b""
    stream.settimeout(_silence(deadline))
    stream.sendall(request + (peer.send(h11.EndOfMessage()) or b""))
    head = _head(stream, peer, deadline)
    if head.status == 200:
        _body(stream, peer, head, path, most, deadline, on_progress)
    return head


def _silence(deadline: float) -> float:
    left = min(SILENCE_LIMIT_S, deadline - time.monotonic())
    if left <= 0:
        raise TimeoutError
    return left


def _next(stream: socket.socket, peer: h11.Connection, deadline: float) -> object:
    """The next event of the connection."""
    while (event := peer.next_event()) is h11.NEED_DATA:
        stream.settimeout(_silence(deadline))
        try:
            peer.receive_data(stream.recv(1 << 18))
        except TimeoutError:
            raise
        except OSError as exc:
            raise EnvironmentUnreachable(_("The connection broke before the answer was complete.")) from exc
    return event


def _head(stream: socket.socket, peer: h11.Connection, deadline: float) -> Head:
    while True:
        event = _next(stream, peer, deadline)
        if isinstance(event, h11.Response):
            values = {name.decode(): value.decode("latin-1") for name, value in event.headers}
            length = values.get("content-length", "0")
            return Head(event.status_code, values.get("location", ""), int(length) if length.isdigit() else 0)
        if not isinstance(event, h11.InformationalResponse):
            raise EnvironmentUnreachable(_("The connection broke before the answer was complete."))


def _body(
    stream: socket.socket,
    peer: h11.Connection,
    head: Head,
    path: Path,
    most: int,
    deadline: float,
    on_progress: OnProgress | None,
) -> None:
    """Write the body beside its place, then into it."""
    if head.length > most:
        raise EnvironmentProtocolError(_("The file is larger than may be fetched."))
    path.parent.mkdir(parents=True, mode=0o700, exist_ok=True)
    part = path.with_name(path.name + ".part")
    try:
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600), "wb") as file:
            _write(stream, peer, head, file, most, deadline, on_progress)
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def _write(
    stream: socket.socket,
    peer: h11.Connection,
    head: Head,
    file: BinaryIO,
    most: int,
    deadline: float,
    on_progress: OnProgress | None,
) -> None:
    done = 0
    while not isinstance(event := _next(stream, peer, deadline), h11.EndOfMessage):
        if not isinstance(event, h11.Data):
            raise EnvironmentUnreachable(_("The connection broke before the answer was complete."))
        file.write(event.data)
        done += len(event.data)
        if done > most:
            raise EnvironmentProtocolError(_("The file is larger than may be fetched."))
        if on_progress is not None:
            on_progress(done, head.length)
