"""One confined worker, as its parent sees it. Every wait ends; a worker that did anything odd is killed, not asked.

1. Start: an argument list, no shell, an environment of one constant, a session of its own, pipes only.
2. The worker says that it is confined, before it gets any code. Without that line nothing is sent.
3. A call sends one line with a random id and waits for one line with the same id, both within the time limit.
4. Anything else that arrives, before, after or instead, ends the worker: an answer cannot be prepared for later.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import math
import secrets
import signal
import subprocess
import sys
import sysconfig
import threading
import time
from collections import OrderedDict
from pathlib import Path
from typing import Any, NamedTuple

from training.children import Piped
from training.sandbox.confinement import CPU_LIMIT_S
from training.sandbox.problems import Problem, SandboxProblem, clean, problem_from

START_LIMIT_S = 20.0  # an interpreter starts in 0.1 s; a machine that trains may be slow
MAX_REQUEST_BYTES = 16 << 20
MAX_ANSWER_BYTES = 64 << 10
PROGRAM = Path(__file__).with_name("worker.py")
OPTIONS = ("-s", "-S", "-P", "-B", "-X", "utf8")
# The same order of sets in every worker, or a reward could differ from one to the next. Nothing else is passed on.
ENVIRONMENT = {"PYTHONHASHSEED": "0"}


class Limits(NamedTuple):
    """The limits of one call."""

    seconds: float = 2.0
    memory_mb: int = 256


DEFAULTS = Limits()


class Answer(NamedTuple):
    """A call's value, and the beginning of what it printed."""

    value: float
    printed: str = ""


class Worker(Piped):
    """A process with one piece of code, for one call at a time. Not for two threads at once."""

    def __init__(self, code: str, limits: Limits = DEFAULTS, library: str = "") -> None:
        """Start it. Raises ``SandboxProblem`` when it cannot be confined, or the code is no Python.

        ``library`` is a module of ours that is loaded before it is confined, and that the code may import.
        """
        self._limits = limits
        self.busy_seconds = 0.0
        memory = limits.memory_mb << 20
        command = [sys.executable, *OPTIONS, str(PROGRAM), str(memory), *_loading(library)]
        super().__init__(command, env=ENVIRONMENT, stderr=subprocess.DEVNULL)
        try:
            self._load_code(code)
        except BaseException:
            self.kill()
            raise

    def _load_code(self, code: str) -> None:
        deadline = time.monotonic() + START_LIMIT_S
        reply = self._answer(self._exchange(b"", deadline, START_LIMIT_S))
        if "seccomp" not in reply.get("confined", ()):
            raise SandboxProblem(problem_from({"kind": "unavailable", **reply}))
        # Compiling is the code's own doing, so it has the limits of a call.
        deadline = time.monotonic() + max(self._limits.seconds, 2.0)
        reply = self._answer(self._exchange(_json_line({"code": code}), deadline, self._limits.seconds))
        if reply.get("ready") is not True:
            raise SandboxProblem(self._worded(problem_from(reply)))

    def call(self, episode: dict[str, Any]) -> Answer:
        """The code's number for an episode. Raises ``SandboxProblem``; check ``alive`` afterwards."""
        ticket = secrets.token_hex(8)
        line = _json_line({"id": ticket, "limit_s": self._limits.seconds, "episode": episode})
        if len(line) > MAX_REQUEST_BYTES:
            raise SandboxProblem(Problem("episode", str(MAX_REQUEST_BYTES >> 20)))
        began = time.monotonic()
        try:
            reply = self._answer(self._exchange(line, began + self._limits.seconds, self._limits.seconds))
            if reply.get("id") != ticket:
                raise SandboxProblem(Problem("output"))
        except BaseException:
            self.kill()
            raise
        finally:
            self.busy_seconds += time.monotonic() - began
        return self._believed(reply)

    def _believed(self, reply: dict[str, Any]) -> Answer:
        """An answer as far as it can be checked from outside: a finite number, or one of our sentences."""
        if "value" not in reply:
            problem = self._worded(problem_from(reply))
            if problem.kind in ("memory", "output"):  # what is left of such a process is not used again
                self.kill()
            raise SandboxProblem(problem)
        value, printed = reply["value"], reply.get("printed")
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise SandboxProblem(Problem("type", type(value).__name__))
        if (isinstance(value, int) and abs(value) > 2**1000) or not math.isfinite(value):
            raise SandboxProblem(Problem("not_finite", "inf"))
        return Answer(float(value), printed[:MAX_ANSWER_BYTES] if isinstance(printed, str) else "")

    def _worded(self, problem: Problem) -> Problem:
        return problem._replace(text=str(self._limits.memory_mb)) if problem.kind == "memory" else problem

    def _answer(self, line: bytes) -> dict[str, Any]:
        try:
            reply = json.loads(line)
        except (ValueError, RecursionError):
            reply = None
        if not isinstance(reply, dict):
            raise SandboxProblem(Problem("output"))
        return reply

    def _exchange(self, line: bytes, deadline: float, limit_s: float) -> bytes:
        """Send a line and read one; neither side of the pipe can make this wait beyond the deadline."""
        if self._buffer or (line and self._waiting()):
            raise SandboxProblem(Problem("output"))
        rest = memoryview(line)
        while b"\n" not in self._buffer:
            left = deadline - time.monotonic()
            if left <= 0:
                raise SandboxProblem(Problem("time", f"{limit_s:g}"))
            if len(self._buffer) > MAX_ANSWER_BYTES:
                raise SandboxProblem(Problem("output"))
            readable, writable = self._wait(bool(rest), left)
            if writable:
                rest = self._write(rest)
            if readable and not self._read():
                raise SandboxProblem(self._ending())
        answer, _newline, self._buffer = self._buffer.partition(b"\n")
        if self._buffer or rest:
            raise SandboxProblem(Problem("output"))
        return answer

    def _waiting(self) -> bool:
        return self._wait(False, 0)[0]

    def _ending(self) -> Problem:
        """Why it is gone."""
        code = self.ended()
        if code is None:
            return Problem("output")  # it closed the pipe and stayed
        names = {-signal.SIGXCPU: "time", -signal.SIGALRM: "time"}
        if code in names:
            return Problem("time", f"{self._limits.seconds:g}")
        if code >= 0:
            return Problem("ended", clean(f"exit code {code}"))
        with contextlib.suppress(ValueError):
            return Problem("ended", signal.Signals(-code).name)
        return Problem("ended", f"signal {-code}")


def _loading(library: str) -> list[str]:
    """Arguments of a worker that loads a library: its name, and where packages are installed."""
    return [library, sysconfig.get_path("purelib")] if library else []


def _json_line(request: dict[str, Any]) -> bytes:
    return (json.dumps(request) + "\n").encode()


# Keeps workers warm: a few for each piece of code, never one for two.
#
# 1. A caller takes a place of its code, waiting for a limited time, then an idle worker or a new one.
# 2. A worker that lives after its call is put back; one that was killed is forgotten, and the next call starts another.
# 3. One that has been busy for long is retired before the kernel's limit of processor time ends it in mid-call.
# 4. Only so many workers are idle at once; the longest unused one goes first. All end with this process.

WORKERS_PER_CODE = 2
MAX_IDLE = 16
QUEUE_LIMIT_S = 120.0
RETIRE_AFTER_S = CPU_LIMIT_S / 2
Key = tuple[str, Limits, str]


class Pool:
    """Workers by code and limits; safe for many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._places: dict[Key, threading.BoundedSemaphore] = {}
        self._idle: OrderedDict[int, tuple[Key, Worker]] = OrderedDict()

    def call(self, code: str, limits: Limits, episode: dict[str, Any], library: str = "") -> Answer:
        """The code's number for an episode; it may import the ``library``. Raises ``SandboxProblem``."""
        key = (code, limits, library)
        with self._lock:
            place = self._places.setdefault(key, threading.BoundedSemaphore(WORKERS_PER_CODE))
        if not place.acquire(timeout=QUEUE_LIMIT_S):
            raise SandboxProblem(Problem("busy", f"{QUEUE_LIMIT_S:g}"))
        try:
            worker = self._take(key) or Worker(*key)
            try:
                return worker.call(episode)
            finally:
                self._put(key, worker)
        finally:
            place.release()

    def close(self) -> None:
        """End all idle workers."""
        with self._lock:
            idle, self._idle = list(self._idle.values()), OrderedDict()
        for _key, worker in idle:
            worker.kill()

    def _take(self, key: Key) -> Worker | None:
        with self._lock:
            found = next((number for number, (own, _worker) in self._idle.items() if own == key), None)
            worker = self._idle.pop(found)[1] if found is not None else None
        if worker is not None and not worker.alive:
            worker.kill()  # closes its pipes
            return None
        return worker

    def _put(self, key: Key, worker: Worker) -> None:
        if not worker.alive or worker.busy_seconds > RETIRE_AFTER_S:
            worker.kill()
            return
        with self._lock:
            self._idle[id(worker)] = (key, worker)
            oldest = self._idle.popitem(last=False)[1][1] if len(self._idle) > MAX_IDLE else None
        if oldest is not None:
            oldest.kill()


pool = Pool()
atexit.register(pool.close)
