"""The trainer as a child process: how it is started, asked to stop, and seen to be gone.

It leads a process group of its own, so that one signal reaches everything it started. It holds the read end of a pipe
(``TILTYARD_PARENT_FD``) whose write end only the supervisor has: when the supervisor dies in any way, the pipe
closes and the trainer ends itself.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType

import psutil
from django.conf import settings

from training.children import child_env, known
from training.config import TRACKERS, JobConfig
from training.errors import Boundary, ErrorInfo
from training.redaction import redact
from training.rewards.custom import SWITCH_VARIABLE
from training.sessions import LAST_WORDS_S, Works, folder_id, patience, started_at
from webapp.common.text import clean_text
from webapp.engine.trainer_variables import ENV_NAMES, judge_keys
from webapp.people.teams.services import custom_rewards_on

OUTPUT_NAME, PROCESS_NAME = "output.log", "trainer.json"
TAIL_LINES, TAIL_BYTES, LINE_CHARS = 50, 64 << 10, 2_000
NO_ACCESS: Mapping[str, str] = MappingProxyType({})


def trainer_env(parent_fd: int, access: Mapping[str, str] = NO_ACCESS) -> dict[str, str]:
    """The child's whole environment. ``access`` opens the run's own environment servers, and no others."""
    named = {"PYTHONUNBUFFERED": "1", "TILTYARD_PARENT_FD": str(parent_fd)}
    return child_env(ENV_NAMES, judge_keys(), **named, **access_env(access))


def access_env(access: Mapping[str, str]) -> dict[str, str]:
    """The variables that say which servers a child may reach (those that the installation allows, and the run's own),
    and whether it may run the custom code of its rewards."""
    ours = access.get("TILTYARD_OUTBOUND_ALLOW", "")
    allow = ",".join(item for item in [*settings.OUTBOUND_ALLOW, ours] if item)
    custom = {SWITCH_VARIABLE: "true"} if custom_rewards_on() else {}
    return {**access, **custom, "TILTYARD_OUTBOUND_ALLOW": allow}


def tracker_env(config: JobConfig) -> dict[str, str]:
    """Keys and addresses of the trackers that the job reports to, and of no others."""
    return known(*(TRACKERS[name].variables for name in config.report.to))


class Trainer:
    """One running trainer."""

    def __init__(self, folder: Path, arguments: list[str], access: Mapping[str, str] = NO_ACCESS) -> None:
        command = getattr(settings, "TRAINER_COMMAND", [sys.executable, "-m", "training"])
        self.folder = folder
        read_fd, self._alive_fd = os.pipe()
        try:
            with open(folder / OUTPUT_NAME, "ab") as output:
                self._process = subprocess.Popen(
                    [*command, "run", *arguments],
                    cwd=settings.BASE_DIR,
                    env=trainer_env(read_fd, access),
                    pass_fds=(read_fd,),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
        except OSError:
            os.close(self._alive_fd)
            raise
        finally:
            os.close(read_fd)
        self.pid = self._process.pid
        self._oom_kills = oom_kills()
        self._asked_at: float | None = None
        self._works = Works(self._processor_seconds)
        self._exit: int | None = None
        who = {"pid": self.pid, "started": started_at(self.pid), "folder": folder_id(folder)}
        try:
            (folder / PROCESS_NAME).write_text(json.dumps(who))
        except OSError:  # a trainer without a note could not be found again, so it must not live
            self.kill()
            raise

    def poll(self) -> int | None:
        """The exit code once it has ended, as ``Popen`` gives it; its group is swept before it is reaped."""
        if self._exit is None:
            # WNOWAIT: while the leader is not reaped its id cannot be anyone else's, so the group is surely ours.
            if os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
                return None
            _signal_group(self.pid, signal.SIGKILL)
            self._exit = self._process.wait()
            os.close(self._alive_fd)
        return self._exit

    def death(self, code: int) -> ErrorInfo:
        """The error for the exit code of a trainer that reported no result."""
        before, now = self._oom_kills, oom_kills()
        return death(code, None if before is None or now is None else now > before)

    def ask_to_stop(self, grace_s: float) -> None:
        """SIGTERM the first time; SIGKILL after ``grace_s``, or its ``patience`` while it works. Call it often."""
        if self._exit is not None:
            return
        if self._asked_at is None:
            self._asked_at = time.monotonic()
            _signal_group(self.pid, signal.SIGTERM)
            return
        works, waited_s = self._works(), time.monotonic() - self._asked_at
        if waited_s > grace_s and not (works and waited_s <= patience(grace_s) + LAST_WORDS_S):
            _signal_group(self.pid, signal.SIGKILL)

    def _processor_seconds(self) -> float:
        """Processor time of the trainer alone: what it has started may work without end."""
        with suppress(psutil.Error):
            times = psutil.Process(self.pid).cpu_times()
            return float(times.user + times.system)
        return 0.0

    def kill(self) -> None:
        """End it and everything it started, now."""
        if self._exit is None:
            _signal_group(self.pid, signal.SIGKILL)
            self._process.wait(timeout=10)
            self._exit = self._process.returncode
            os.close(self._alive_fd)


def oom_kills() -> int | None:
    """How many processes this machine's kernel has killed for lack of memory; None where it does not report it."""
    try:
        words = Path("/proc/vmstat").read_text().split()
        return int(words[words.index("oom_kill") + 1])
    except (OSError, ValueError, IndexError):
        return None


def death(code: int, out_of_memory: bool | None) -> ErrorInfo:
    """The error for an exit code without a reported result; ``out_of_memory``: the kernel killed a process for lack of
    memory while this one ran (None: not known).

    A kill from outside (``trainer_killed``) says nothing about the run; every other death may be the run's own.
    """
    hint = "The last lines of its output are in the log."
    if code == -signal.SIGKILL and out_of_memory is False:
        message = "The trainer was killed from outside (SIGKILL), not for want of memory."
        return ErrorInfo(code="trainer_killed", boundary=Boundary.TRAINER, message=message, hint=hint)
    if code < 0:
        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = "unknown"
        what = f"The trainer was killed by signal {-code} ({name})."
    else:
        what = f"The trainer ended with exit code {code} and without a last word."
    if code in {-signal.SIGKILL, 128 + signal.SIGKILL}:
        cause = (
            "The kernel killed a process for want of memory" if out_of_memory else "This is often a kill by the kernel"
        )
        hint = f"{cause}: try smaller micro batches, shorter completions or LoRA."
    return ErrorInfo(code="trainer_died", boundary=Boundary.TRAINER, message=what, hint=hint)


def output_tail(folder: Path) -> list[str]:
    """The last lines that the trainer printed, without secrets."""
    try:
        with open(folder / OUTPUT_NAME, "rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL_BYTES))
            lines = deque(file.read().decode("utf-8", "replace").splitlines(), maxlen=TAIL_LINES)
    except OSError:
        return []
    return [redact(clean_text(line[:LINE_CHARS])) for line in lines if line.strip()]


def kill_orphan(folder: Path) -> None:
    """Kill the trainer that a dead or stuck supervisor of this machine left in ``folder``, if it still runs.

    In a copy of the folder the note names the original's trainer, which may well be at work.
    """
    try:
        who = json.loads((folder / PROCESS_NAME).read_text())
        pid, started, ours = int(who["pid"]), who["started"], who["folder"] == folder_id(folder)
    except (OSError, ValueError, KeyError, TypeError):
        return
    # Process ids are used again: the same id with another start time is another process.
    if ours and started is not None and started_at(pid) == started:
        _signal_group(pid, signal.SIGKILL)


def _signal_group(pid: int, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)
