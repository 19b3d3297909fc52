"""``python envs/base/health.py``: the healthcheck of a container, which also ends what hangs.

Docker marks a container that hangs and leaves it as it is; only one that ends is started again. So:

1. Healthy: forget what was. A file is young enough (``--file``), or an address answers without a server error
   (``--url``).
2. Not healthy: note since when, and say so.
3. Not healthy for ``HANGS_S`` after it once was healthy: kill every process of the container, which ends it, and its
   restart policy starts it again. A start takes as long as it takes.
4. While something that it needs (``--needs``) takes no connection, the fault lies there: nothing is noted or ended.
   Kubernetes ends what is not healthy by itself, so there (``--alive``) it then counts as healthy.

It is run as a file, every few seconds and in images of their own, so it imports nothing but small parts of Python.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import sys
import time
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

YOUNG_S, ANSWER_S, CONNECT_S = 60.0, 4.0, 1.0
HANGS_S = 600.0  # longer than a training worker may take to stop, which sends no heartbeat then
NOTES = Path("/tmp")  # noqa: S108 - the scratch folder of a container
FIRST, ENGINES = Path("/proc/1/comm"), "docker-init"
EVERYBODY = -1  # all that we may signal, but process 1 and ourselves


def young(path: Path) -> bool:
    """Whether a process that touches this file has done so lately."""
    try:
        return time.time() - path.stat().st_mtime < YOUNG_S
    except OSError:
        return False


def answers(url: str) -> bool:
    """Whether a server answers, and not with an error of its own: it may well refuse this caller's host name."""
    parts = urlsplit(url)
    try:
        with socket.create_connection((parts.hostname, parts.port), timeout=ANSWER_S) as peer:
            peer.sendall(f"GET {parts.path} HTTP/1.0\r\nHost: {parts.netloc}\r\n\r\n".encode())
            version, status = peer.makefile("rb").readline(64).split()[:2]
            return version.startswith(b"HTTP/") and int(status) < 500
    except (OSError, ValueError):
        return False


def reachable(place: str) -> bool:
    """Whether something listens at ``host:port``."""
    host, _colon, port = place.rpartition(":")
    with suppress(OSError, ValueError):
        socket.create_connection((host, int(port)), timeout=CONNECT_S).close()
        return True
    return False


class Watch:
    """The memory between two looks, in two files."""

    def __init__(self, notes: Path) -> None:
        self._healthy, self._since = notes / "was-healthy", notes / "unhealthy-since"

    def look(self, healthy: bool, needs: list[str]) -> bool:
        """Note it; whether the container hangs and must end."""
        if healthy:
            self._since.unlink(missing_ok=True)
            self._healthy.touch()
            return False
        if not all(reachable(place) for place in needs):
            self._since.unlink(missing_ok=True)
            return False
        if not self._since.exists():
            self._since.touch()
        return self._healthy.exists() and time.time() - self._since.stat().st_mtime >= HANGS_S

    def forget(self) -> None:
        """The next start has a clean record."""
        self._healthy.unlink(missing_ok=True)
        self._since.unlink(missing_ok=True)


def contained() -> bool:
    """Whether process 1 is the engine's own: anywhere else we would end strangers."""
    with suppress(OSError):
        return FIRST.read_text().strip() == ENGINES
    return False


def main(argv: list[str], notes: Path = NOTES) -> int:
    """0 healthy, 1 not."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--file", type=Path)
    parser.add_argument("--url")
    parser.add_argument("--needs", nargs="*", default=[], metavar="HOST:PORT")
    parser.add_argument("--alive", action="store_true")
    options = parser.parse_args(argv)
    healthy = young(options.file) if options.file else answers(options.url)
    watch = Watch(notes)
    if watch.look(healthy, options.needs) and contained():
        watch.forget()
        sys.stderr.write("It hangs and is ended.\n")
        with suppress(ProcessLookupError):
            os.kill(EVERYBODY, signal.SIGKILL)
    excused = options.alive and not all(reachable(place) for place in options.needs)
    return 0 if healthy or excused else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
