"""The keeper: one level-triggered loop that starts and ends servers until what runs is what is wanted.

1. Hold the advisory lock of the database; a second keeper waits for it.
2. Each second: read all environments with their replicas, take one step for each (``reconcile``), ask and store health
   (``watch``). Every few seconds, end our servers that no row names.
3. Without the database, servers keep running; with it back, the lock is taken again. Redis is not needed.
4. When the lock went to another keeper meanwhile, that one keeps the servers now: end what we started.
5. SIGTERM: end everything that we started. When we are killed, the kernel ends our processes, and the next keeper finds
   our containers by their rows.
"""

from __future__ import annotations

import logging
import signal
import threading
import time
from types import FrameType

from django.db import connection

from webapp.common.errors import DATABASE_AWAY
from webapp.common.host.ready import say_alive, say_ready
from webapp.environments.launchers import launchers
from webapp.environments.models import Environment, Kind, Replica, ReplicaState
from webapp.environments.reconcile import Reconciler
from webapp.environments.watch import Watch

logger = logging.getLogger(__name__)
KEEPER_LOCK = 7_171_002  # any constant that nothing else locks
TICK_S = 1.0
ORPHANS_EVERY_S = 10.0


class Keeper:
    """One process keeps all environments of an installation."""

    def __init__(self) -> None:
        self._reconciler = Reconciler(launchers())
        self._watch = Watch()
        self._stop = threading.Event()
        self._leads = self._led = False
        self._orphans_at = 0.0

    def run(self) -> None:
        """Keep until a signal ends it."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        say_ready()
        while not self._stop.is_set():
            say_alive()
            try:
                if self._take_lock():
                    self.tick()
            except DATABASE_AWAY as exc:
                self._leads = False
                connection.close()
                logger.warning("database away; servers go on: %s", type(exc).__name__)
            self._stop.wait(TICK_S)
        self._end_all()

    def tick(self) -> None:
        """Reconcile and check everything once."""
        environments = list(Environment.objects.prefetch_related("replicas"))
        if time.monotonic() - self._orphans_at >= ORPHANS_EVERY_S:
            self._orphans_at = time.monotonic()
            self._reconciler.remove_orphans(_named_servers(environments))
        for environment in environments:
            try:
                self._reconciler.look(environment)
                self._watch.tick(environment)
            except DATABASE_AWAY:
                raise
            except Exception:  # one environment's fault (or its deletion just now) must not end the servers of all
                logger.exception("could not keep an environment", extra={"environment_id": environment.pk})
        self._watch.prune()

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        self._stop.set()

    def _take_lock(self) -> bool:
        """Whether we hold the lock. It belongs to the connection, so it is lost and taken again with that."""
        if self._leads:
            return True
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_try_advisory_lock(%s)", [KEEPER_LOCK])
            self._leads = bool(cursor.fetchone()[0])
        if self._leads:
            self._led, self._orphans_at = True, 0.0
            logger.info("keeping environments")
        elif self._led:
            logger.warning("another keeper took over; ending what was started here")
            self._reconciler.end_all()
            self._led = False
        return self._leads

    def _end_all(self) -> None:
        """End all servers, and write that into their rows."""
        self._watch.close()
        if not self._led:
            return
        self._reconciler.end_all()
        try:
            rows = Replica.objects.exclude(environment__kind=Kind.URL).exclude(state=ReplicaState.FAILED)
            rows.update(handle={}, state=ReplicaState.STARTING)
        except DATABASE_AWAY:
            logger.warning("database away at the end; the next keeper finds the servers gone")


def _named_servers(environments: list[Environment]) -> set[tuple[str, int, str]]:
    """The servers that rows name, as ``Reconciler.remove_orphans`` compares them."""
    return {
        (str(environment.pk), row.number, repr(sorted(row.handle.items())))
        for environment in environments
        for row in environment.replicas.all()
    }
