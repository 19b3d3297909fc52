"""Who is in the shop: websocket sessions and AgentGym's share one number of slots.

Websockets end by themselves (the guard watches them). An AgentGym environment has no connection that could break, so
one that nobody used for ``idle_s`` is given up; that is found out when somebody needs to know, without a timer.
Everything here runs on the event loop: no two callers at once.
"""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass, field

from envs.webshop.session import Session

# Upstream draws its numbers from the same range. They are random so that a client that lost count hits nobody's.
HIGHEST_ENV_IDX = 48_950_076


@dataclass
class Room:
    """One AgentGym environment."""

    session: Session
    resets: int = 0
    used_at: float = field(default_factory=time.monotonic)


class Rooms:
    """The slots of one server."""

    def __init__(self, slots: int, idle_s: float) -> None:
        self.slots = slots
        self._idle_s = idle_s
        self._sockets = 0
        self._rooms: dict[int, Room] = {}

    @property
    def taken(self) -> int:
        """Sessions of both kinds that are open now."""
        self._give_up_idle()
        return self._sockets + len(self._rooms)

    @property
    def numbers(self) -> list[int]:
        """The open AgentGym environments."""
        self._give_up_idle()
        return list(self._rooms)

    def enter_socket(self) -> bool:
        """Take a slot for a websocket; ``leave_socket`` gives it back. False when there is none."""
        if self.taken >= self.slots:
            return False
        self._sockets += 1
        return True

    def leave_socket(self) -> None:
        self._sockets -= 1

    def new_number(self) -> int | None:
        """A number that nobody has, or ``None`` when all slots are taken."""
        if self.taken >= self.slots:
            return None
        while (number := secrets.randbelow(HIGHEST_ENV_IDX + 1)) in self._rooms:
            pass
        return number

    def add(self, number: int, session: Session) -> None:
        self._rooms[number] = Room(session)

    def find(self, number: int) -> Room | None:
        """The environment, which is in use from now; ``None`` for one that is closed, idle for too long or unknown."""
        self._give_up_idle()
        room = self._rooms.get(number)
        if room is not None:
            room.used_at = time.monotonic()
        return room

    def close(self, number: int) -> bool:
        """Whether there was something to close."""
        self._give_up_idle()
        return self._rooms.pop(number, None) is not None

    def _give_up_idle(self) -> None:
        oldest = time.monotonic() - self._idle_s
        for number in [number for number, room in self._rooms.items() if room.used_at < oldest]:
            del self._rooms[number]
