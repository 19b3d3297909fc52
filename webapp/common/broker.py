"""Why Redis cannot be used, in a sentence that says what to change.

It needs no settings: ``up`` asks before they can be read.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from contextlib import suppress
from urllib.parse import urlsplit

import redis
from django.utils.translation import gettext as _


def redis_problem(url: str, limit_s: float) -> str:
    """Why Redis does not answer at this URL; empty where it does. Each request may take ``limit_s``."""
    limits = {"socket_timeout": limit_s, "socket_connect_timeout": limit_s}
    try:
        with redis.Redis.from_url(url, **limits) as client:
            client.ping()
    except (redis.RedisError, OSError, ValueError) as exc:  # ValueError: of a URL that cannot be read
        return _sentence(url, exc, limit_s)
    return ""


def _sentence(url: str, error: Exception, limit_s: float) -> str:
    parts, found = urlsplit(url), list(_causes(error))
    values = {"place": f"{parts.hostname or ''}:{parts.port or 6379}", "why": str(error).partition("\n")[0]}
    for each in found:
        if isinstance(each, ssl.SSLCertVerificationError):
            values["why"] = each.verify_message.rstrip(".")
            text = _("The certificate of Redis at %(place)s is not trusted: %(why)s.")
            return f"{text} {_('REDIS_URL may name its authority: rediss://…?ssl_ca_certs=/path/ca.pem')}" % values
    if any(isinstance(each, redis.AuthenticationError) for each in found):
        return _("Redis at %(place)s refuses the password of REDIS_URL.") % values
    if parts.scheme == "rediss" and _answers_without_tls(parts.hostname or "", parts.port or 6379, limit_s):
        return (
            _("Redis at %(place)s has no TLS: REDIS_URL has to begin with redis://, or to name another server.")
            % values
        )
    if parts.scheme == "redis" and any(_is_cut(each) for each in found):
        text = _("Redis at %(place)s ends the connection: if it wants TLS, REDIS_URL has to begin with rediss://.")
        return text % values
    return _("Redis at %(place)s does not answer: %(why)s") % values


def _answers_without_tls(host: str, port: int, limit_s: float) -> bool:
    """Whether Redis answers there in plain: to a greeting of TLS it may wait for more, and answer nothing."""
    with suppress(OSError), socket.create_connection((host, port), timeout=limit_s) as peer:
        peer.sendall(b"PING\r\n")  # without the password
        return peer.recv(1) in (b"+", b"-")
    return False


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _is_cut(error: BaseException) -> bool:
    """Whether the server closed the connection, or answered by an alert of TLS, which is no answer of Redis."""
    cut = isinstance(error, ConnectionResetError | BrokenPipeError | redis.InvalidResponse)
    return cut or "closed by server" in str(error)
