"""Loaded tables and columns of this process: at most ``MAX_BYTES`` of them, those used last."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

MAX_BYTES = 256 << 20


class Sized(Protocol):
    """Something that knows how much memory it takes."""

    @property
    def nbytes(self) -> int: ...


S = TypeVar("S", bound=Sized)


class Cache:
    """A bounded store; an item larger than the limit is returned and not kept."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._max = max_bytes
        self._held: OrderedDict[Any, Sized] = OrderedDict()
        self._lock = threading.Lock()
        self.bytes = 0

    def get(self, key: Any, make: Callable[[], S]) -> S:
        """The item of a key; made by ``make`` where there is none. Two threads may both make it."""
        with self._lock:
            if key in self._held:
                self._held.move_to_end(key)
                return self._held[key]  # type: ignore[return-value]
        made = make()
        with self._lock:
            if key not in self._held:
                self._held[key] = made
                self.bytes += made.nbytes
            while self.bytes > self._max:
                self.bytes -= self._held.popitem(last=False)[1].nbytes
        return made

    def drop(self, key: Any) -> None:
        """Drop the item of a key."""
        with self._lock:
            gone = self._held.pop(key, None)
            self.bytes -= gone.nbytes if gone is not None else 0


cache = Cache()
