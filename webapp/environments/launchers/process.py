"""Built-in servers as our own processes: ``python -m envs.<program>``, ended by the kernel with the keeper.

They listen on loopback, unless ``TILTYARD_REPLICA_HOST`` is the name by which others reach this machine or container.

Limits are those that the system gives to one process: ``RLIMIT_DATA`` for memory (``RLIMIT_AS`` would count address
space that numpy and threads only reserve), ``RLIMIT_NOFILE`` for sockets, an affinity for CPUs. There is none for CPU
time, because a server lives for weeks, and none for pids: ``RLIMIT_NPROC`` counts all processes of a user.
"""

from __future__ import annotations

import itertools
import math
import os
import resource
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import psutil
from django.conf import settings
from django.utils.translation import gettext as _

from training.child_env import PLACES, child_env
from training.sessions import folder_id
from webapp.common.host import Known, Ledger, alive, die_with_parent, free_port, known, send
from webapp.common.storage import environments_dir, replica_log
from webapp.common.text import os_words
from webapp.environments.builtin import builtins
from webapp.environments.launchers.base import (
    HOST,
    LOG_LINES,
    Handle,
    LaunchError,
    Owned,
    Started,
    kept_port,
    last_lines,
    option_words,
)
from webapp.environments.launchers.base import LOG_BYTES as TAIL_BYTES
from webapp.environments.models import Environment, Replica
from webapp.environments.tokens import token_path

MAX_LOG_BYTES = 5 << 20
SPARE_FILES = 512
# One thread for numerical libraries: a server's concurrency is its sessions.
FIXED = {"PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "2"}


class ProcessLauncher:
    """Remembers its processes by pid and start time in a ledger, so that the next keeper can end what is left."""

    def __init__(self) -> None:
        environments_dir().mkdir(parents=True, exist_ok=True, mode=0o700)
        self._ledger = Ledger(environments_dir() / "processes.json")
        self._children: dict[int, subprocess.Popen[bytes]] = {}
        self._places = itertools.count()

    def start(self, replica: Replica) -> Started:
        """Begin the server. Call it from a thread that lives as long as we do: the kernel ends a child with it."""
        environment = replica.environment
        if environment.program not in builtins():
            raise LaunchError(
                _("There is no built-in environment “%(name)s”.") % {"name": environment.program},
                hint=_("Register it again with one of the built-in servers."),
            )
        port = free_port(kept_port(replica))
        log = replica_log(environment.pk, replica.number)
        token = token_path(environment.pk)
        # Under another name it is reached from other containers or machines, which the token keeps out.
        bound = HOST if settings.REPLICA_HOST == HOST else "0.0.0.0"  # noqa: S104
        _prepare_log(log)
        argv = [
            sys.executable,
            "-m",
            f"envs.{environment.program}",
            "--host",
            bound,
            "--port",
            str(port),
            "--slots",
            str(environment.slots),
            "--token-file",
            token,
            *option_words(environment),
        ]
        try:
            with log.open("ab") as output:
                child = subprocess.Popen(
                    argv,
                    cwd=settings.BASE_DIR,
                    env=program_environment(),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    start_new_session=True,
                    preexec_fn=die_with_parent,
                )
        except OSError as exc:
            raise LaunchError(
                _("The server's process could not be started: %(why)s.") % {"why": os_words(exc)}
            ) from exc
        self._children[child.pid] = child
        self._set_limits(child.pid, environment)
        who = self._add_to_ledger(child.pid, f"{environment.pk}/{replica.number}")
        return Started(_handle_of(who), f"http://{settings.REPLICA_HOST}:{port}")

    def stop(self, handle: Handle, *, force: bool = False) -> None:
        """SIGTERM, or SIGKILL, to its process group."""
        one = _known_process(handle)
        if one is None:
            return
        send([one], signal.SIGKILL if force else signal.SIGTERM)
        if force:
            self._reap_child(one.pid, wait_s=5)

    def alive(self, handle: Handle) -> bool:
        """Whether the same process still runs."""
        one = _known_process(handle)
        if one is None:
            return False
        self._reap_child(one.pid)
        return one.process() is not None

    def logs(self, replica: Replica, lines: int = LOG_LINES) -> list[str]:
        """The end of its log file."""
        try:
            with replica_log(replica.environment_id, replica.number).open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL_BYTES))
                return last_lines(file.read(), lines)
        except OSError:
            return []

    def list_owned(self) -> list[Owned]:
        """Those of the ledger that still run; the others are forgotten, and logs that grew too large are cut."""
        living = alive(self._ledger.read())
        self._ledger.write(set(living))
        owned = []
        for one in living:
            environment_id, _slash, number = one.name.partition("/")
            with suppress(ValueError):
                _cut_log(replica_log(environment_id, int(number)))  # type: ignore[arg-type]
                owned.append(Owned(environment_id, int(number), _handle_of(one)))
        return owned

    def _add_to_ledger(self, pid: int, name: str) -> Known:
        """Write the process down before anything else can go wrong."""
        found = known(psutil.Process(pid)) if psutil.pid_exists(pid) else None
        one = Known(pid, found.started if found else 0.0, name)
        self._ledger.write({*alive(self._ledger.read()), one})
        return one

    def _set_limits(self, pid: int, environment: Environment) -> None:
        """Set what this system can limit; a child that has gone already is noticed later."""
        memory, files = environment.memory_mb << 20, environment.slots * 2 + SPARE_FILES
        with suppress(OSError, ValueError):
            if hasattr(resource, "prlimit"):
                resource.prlimit(pid, resource.RLIMIT_DATA, (memory, memory))
                resource.prlimit(pid, resource.RLIMIT_NOFILE, (files, files))
                resource.prlimit(pid, resource.RLIMIT_CORE, (0, 0))
        with suppress(OSError, AttributeError):
            here = sorted(os.sched_getaffinity(0))
            count = min(math.ceil(environment.cpus), len(here))
            # Replicas begin at different CPUs, so that four with one CPU each do not share the first.
            first = next(self._places) * count
            os.sched_setaffinity(pid, {here[(first + at) % len(here)] for at in range(count)})

    def _reap_child(self, pid: int, wait_s: float = 0.0) -> None:
        """Take the exit code of a child of ours, so that it does not stay as a zombie."""
        child = self._children.get(pid)
        if child is None:
            return
        with suppress(subprocess.TimeoutExpired):
            child.wait(timeout=wait_s)
            del self._children[pid]


def _handle_of(one: Known) -> Handle:
    return {"pid": one.pid, "started": one.started, "folder": folder_id(environments_dir())}


def _known_process(handle: Handle) -> Known | None:
    """The process of a row; none where the row was restored from a backup: it names a process of the original."""
    if handle.get("folder") != folder_id(environments_dir()):
        return None
    return Known(int(handle["pid"]), float(handle["started"]))


def program_environment() -> dict[str, str]:
    """A program of ours learns places and its language, never addresses of services or secrets."""
    return child_env(PLACES, **FIXED)


def _prepare_log(log: Path) -> None:
    """Make the log private, and cut what earlier starts wrote if it is long."""
    log.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    _cut_log(log)
    log.touch(mode=0o600)


def _cut_log(log: Path) -> None:
    """Keep the end of a log that grew too large. Its writer appends, so it continues at the new end."""
    with suppress(OSError):
        if log.stat().st_size <= MAX_LOG_BYTES:
            return
        with log.open("r+b") as file:
            file.seek(-TAIL_BYTES, os.SEEK_END)
            end = file.read()
            file.truncate(0)
            file.seek(0)
            file.write(end)
