"""The surroundings of `up`: its port, the tools server, an old Redis, a disk that fails."""

from __future__ import annotations

import errno
import secrets
import socket
from pathlib import Path

from django.utils.translation import gettext as _

from webapp.common.host import REDIS_SUPPORTED, free_port, redis_version, write_private
from webapp.ops.console import UpError
from webapp.ops.options import UpOptions

TOOLS_PORT = 8101


def check_port(options: UpOptions) -> None:
    """Refuse a port that is taken, and name one that is free."""
    family_of = socket.AF_INET6 if ":" in options.host else socket.AF_INET
    with socket.socket(family_of) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((options.host, options.port))
        except OSError as exc:
            if exc.errno != errno.EADDRINUSE:
                raise UpError(
                    _("Cannot listen on %(host)s, port %(port)d: %(reason)s.")
                    % {"host": options.host, "port": options.port, "reason": exc.strerror}
                ) from exc
            raise UpError(
                _("Port %(port)d is in use by another program.") % {"port": options.port},
                advice=_("Choose another one: python manage.py up --port %(port)d")
                % {"port": free_port(options.port + 1)},
            ) from exc


def tools_port_of(data: Path) -> tuple[int, int]:
    """The tools server keeps its port, because registered environments name it; else (new port, old port)."""
    file = data / "tools.port"
    before = int(file.read_text()) if file.exists() else TOOLS_PORT
    port = free_port(before)
    write_private(file, str(port))
    return port, before


def tools_token_file(data: Path) -> Path:
    """The file with the token of the tools server; it has one because any program of this machine can reach its
    port."""
    file = data / "tools.token"
    if not file.exists():
        write_private(file, secrets.token_urlsafe(32))
    return file


def old_redis(binary: str) -> list[str]:
    """A warning about a Redis server whose release line gets no fixes any more; empty for a newer one."""
    version = redis_version(binary)
    if version >= REDIS_SUPPORTED:
        return []
    told = ".".join(map(str, version)) or "?"
    return [
        _("Redis %(version)s gets no security fixes any more. Only this machine reaches it, with a password.")
        % {"version": told},
        _("Put redis-server 7 or newer on the PATH: the next start uses it."),
    ]


def disk_error(exc: OSError, data: Path) -> UpError:
    """The error for a disk that is full or cannot be written: a sentence instead of a traceback."""
    place = exc.filename or data
    if exc.errno == errno.ENOSPC:
        return UpError(
            _("The disk that holds %(path)s is full.") % {"path": place},
            advice=_("Free some space, then start again. Your data are kept."),
        )
    return UpError(_("%(path)s cannot be used: %(reason)s.") % {"path": place, "reason": exc.strerror or exc})
