"""Notify viewers that a run has changed: ``{run, seq}`` on the channel layer, nothing more; it never blocks the caller.

1. ``nudge`` puts the newest ``seq`` of the run into a dictionary and wakes a thread; it never blocks or raises.
2. The thread sends what has gathered, at most once in ``GATHER_S``. If Redis is away the nudge is dropped (logged
   once): viewers also look by themselves every two seconds.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from uuid import UUID

from channels.layers import channel_layers

logger = logging.getLogger(__name__)
GATHER_S = 0.02
SEND_TIMEOUT_S = 5.0


def group_of(run_id: UUID | str) -> str:
    """Name of the group of a run's viewers."""
    return f"run.{run_id}"


class Nudger:
    """The pending nudges of this process and the thread that sends them."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._pending: dict[str, int] = {}
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._away = False
        threading.Thread(target=self._send_pending, name="live-nudge", daemon=True).start()

    @property
    def usable(self) -> bool:
        """A thread does not survive a fork."""
        return self._pid == os.getpid()

    def put(self, run_id: UUID | str, seq: int) -> None:
        """Remember the newest change of the run."""
        with self._lock:
            self._pending[str(run_id)] = max(seq, self._pending.get(str(run_id), 0))
        self._wake.set()

    def _send_pending(self) -> None:
        # The wait is a plain one in this daemon thread: in an executor it would keep the process from ending.
        loop = asyncio.new_event_loop()
        while True:
            self._wake.wait()
            self._wake.clear()
            with self._lock:
                pending, self._pending = self._pending, {}
            for run_id, seq in pending.items():
                loop.run_until_complete(self._send(run_id, seq))
            time.sleep(GATHER_S)

    async def _send(self, run_id: str, seq: int) -> None:
        message = {"type": "run.changed", "run": run_id, "seq": seq}
        try:
            layer = channel_layers["default"]
            async with asyncio.timeout(SEND_TIMEOUT_S):
                await layer.group_send(group_of(run_id), message)
            self._away = False
        except Exception as exc:  # the boundary to Redis
            if not self._away:
                logger.warning("live nudges are lost", extra={"action": "nudge", "run_id": run_id, "error": repr(exc)})
            self._away = True


_nudger: Nudger | None = None
_nudger_lock = threading.Lock()


def nudge(run_id: UUID | str, seq: int) -> None:
    """Notify the viewers of a run that it has changed up to ``seq``. Call it after the commit."""
    global _nudger
    with _nudger_lock:
        if _nudger is None or not _nudger.usable:
            _nudger = Nudger()
    _nudger.put(run_id, seq)
