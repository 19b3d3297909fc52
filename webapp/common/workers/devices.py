"""What the devices of a worker do now (``training/devices.py``): a thread reads it every few seconds.

A driver that hangs must not silence the worker, so the beat only takes what was read last, and nothing once that is
old.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import Any

from training.devices import Reading, read_devices

logger = logging.getLogger(__name__)
READ_EVERY_S, OLD_AFTER_S = 10.0, 30.0


class Reader(threading.Thread):
    """Reads the devices until it is asked to end. It may hang in the driver: nothing waits for it."""

    def __init__(self, ids: list[str]) -> None:
        super().__init__(name="worker-devices", daemon=True)
        self._ids = ids
        self._done = threading.Event()
        self._latest: tuple[float, list[Reading] | None] = (0.0, None)

    def run(self) -> None:
        """Read at once, then every ``READ_EVERY_S``."""
        while True:
            try:
                self._latest = (time.monotonic(), read_devices(self._ids))
            except Exception:  # the boundary to the driver: its figures are no reason to end the worker
                logger.exception("devices not read", extra={"action": "devices"})
            if self._done.wait(READ_EVERY_S):
                return

    def latest(self) -> list[dict[str, Any]] | None:
        """What was read last, as plain data; ``None`` without NVML, and where it is older than ``OLD_AFTER_S``."""
        at, found = self._latest
        if found is None or time.monotonic() - at > OLD_AFTER_S:
            return None
        return [reading._asdict() for reading in found]

    def end(self) -> None:
        """Read no more."""
        self._done.set()
