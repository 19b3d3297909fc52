"""The line of people who wait for scores, and whose turn is next."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from django.utils.translation import gettext as _

from webapp.common.errors import TooMany

PLACES = 3  # a child takes 40 MB of its own; one place for each core would leave a second person waiting
JOBS_PER_PERSON = 4  # running and waiting
WAIT_S = 5  # how long a refused person is asked to wait: by then a job has ended
Person = object


class Turn:
    """One job in the line. ``leave`` may be called from any thread, before the job begins and after its end."""

    def __init__(self) -> None:
        self.gone = threading.Event()
        self._lock = threading.Lock()
        self._end: Callable[[], None] | None = None

    def ends_by(self, end: Callable[[], None] | None) -> None:
        """Set the function that ends the job; ``None`` once nothing may end it: its process then serves another job."""
        with self._lock:
            self._end = end
            if end is not None and self.gone.is_set():
                end()

    def leave(self) -> None:
        """Leave the line: the client is gone."""
        with self._lock:
            self.gone.set()
            if self._end is not None:
                self._end()


class Places:
    """Places that people take in turns; safe for many threads.

    1. A person's turns wait in order, and the people form a circle.
    2. A free place goes to the first one in the circle who has a turn waiting and none running.
    3. A person whose job has ended goes to the end of the circle, so that no person is passed over for long.
    """

    def __init__(self, places: int = PLACES, jobs_per_person: int = JOBS_PER_PERSON) -> None:
        self._places, self._most = places, jobs_per_person
        self._changed = threading.Condition()
        self._waiting: OrderedDict[Person, deque[Turn]] = OrderedDict()
        self._running: set[Person] = set()

    @contextmanager
    def taken(self, person: Person, turn: Turn, deadline: float) -> Iterator[bool]:
        """A place for the block; false where none got free before the deadline, or the asker left. Raises
        ``TooMany``."""
        took = self._wait_in_line(person, turn, deadline)
        try:
            yield took
        finally:
            if took:
                with self._changed:
                    self._running.remove(person)
                    self._waiting.move_to_end(person)
                    self._forget(person)
                    self._changed.notify_all()

    def wake(self) -> None:
        """Wake the waiting threads, so that those whose client has gone leave."""
        with self._changed:
            self._changed.notify_all()

    def _wait_in_line(self, person: Person, turn: Turn, deadline: float) -> bool:
        turn.ends_by(self.wake)  # before we take our lock: a leaving caller holds the turn's lock and waits for ours
        with self._changed:
            if len(self._waiting.get(person, ())) + (person in self._running) >= self._most:
                raise TooMany(_("You have reached the limit of scoring for one person; wait a moment."), wait_s=WAIT_S)
            self._waiting.setdefault(person, deque()).append(turn)
            try:
                self._changed.wait_for(
                    lambda: turn.gone.is_set() or self._next_turn() is turn, max(0.0, deadline - time.monotonic())
                )
                took = not turn.gone.is_set() and self._next_turn() is turn
                if took:
                    self._running.add(person)
                return took
            finally:
                self._waiting[person].remove(turn)
                self._forget(person)
                self._changed.notify_all()

    def _next_turn(self) -> Turn | None:
        """The turn that runs next, or ``None``."""
        if len(self._running) >= self._places:
            return None
        return next(
            (turns[0] for person, turns in self._waiting.items() if turns and person not in self._running), None
        )

    def _forget(self, person: Person) -> None:
        if not self._waiting.get(person) and person not in self._running:
            self._waiting.pop(person, None)
