"""Keeps workers warm: a few for each piece of code, never one for two.

1. A caller takes a place of its code, waiting for a limited time, then an idle worker or a new one.
2. A worker that lives after its call is put back; one that was killed is forgotten, and the next call starts another.
3. One that has been busy for long is retired before the kernel's limit of processor time ends it in mid-call.
4. Only so many workers are idle at once; the longest unused one goes first. All end with this process.
"""

from __future__ import annotations

import atexit
import threading
from collections import OrderedDict
from typing import Any

from training.sandbox.confinement import CPU_LIMIT_S
from training.sandbox.problems import Problem, SandboxProblem
from training.sandbox.process import Answer, Limits, Worker

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
