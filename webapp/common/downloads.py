"""Large files from addresses that the outbound policy allows, followed through redirects that are each checked.

1. Every address, the first and those that it redirects to, passes ``webapp.common.outbound.target_with_query``; a
   redirect may carry a query, because signed addresses of file stores do.
2. The body goes to a file piece by piece, at most ``most`` bytes; the file is complete or not there.
3. Silence ends it after ``SILENCE_LIMIT_S``, and the whole after the limit that is given.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO
from urllib.parse import urljoin

from django.utils.translation import gettext as _

from training.connections import TooLarge
from training.errors import EnvironmentProtocolError
from webapp.common.outbound import Exchange, Target, target_with_query

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
    length = exchange.headers.get("content-length", "")
    total = int(length) if length.isdigit() else 0
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
