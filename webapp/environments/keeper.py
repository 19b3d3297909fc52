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
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import timedelta
from types import FrameType
from typing import Any

from django.db import connection
from django.utils import timezone
from django.utils.translation import gettext as _

from envs.wire import Validation
from training.errors import EnvironmentFault, EnvironmentProtocolError, SecretUnreadable, TiltyardError
from webapp.common.errors import DATABASE_AWAY
from webapp.common.host import say_alive, say_ready
from webapp.environments.checks import NATIVE, Answer, Server, ask, require_identity, validation_of
from webapp.environments.launchers import Handle, Launcher, LaunchError, launchers
from webapp.environments.models import Environment, EnvironmentSample, Kind, Replica, ReplicaState
from webapp.environments.services import answer_store, server_of

# --- Watch ----------------------------------------------------------------------------------------------------------
# Health of all replicas, and its history. Threads only ask; the keeper's main thread writes.

logger = logging.getLogger(__name__)
LAUNCHED_EVERY_S, ADDRESS_EVERY_S = 5.0, 15.0
STARTING_EVERY_S = 1.0
ASK_LIMIT_S = 5.0
SAMPLE_EVERY_S = 15.0
KEPT = timedelta(hours=24)
PRUNE_EVERY_S = 600.0
THREADS = 16
CHECKED = (ReplicaState.STARTING, ReplicaState.HEALTHY, ReplicaState.UNHEALTHY)

Outcome = Answer | TiltyardError


class Watch:
    """Asks each replica when it is due, one question at a time for each."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="health")
        self._asked: dict[int, tuple[Future[Outcome], Handle]] = {}
        self._proofs: dict[Any, Future[Validation]] = {}
        self._due: dict[int, float] = {}
        self._sampled: dict[Any, float] = {}
        self._errors: dict[int, Counter[str]] = {}
        self._pruned = 0.0

    def tick(self, environment: Environment) -> None:
        """Store what has been answered, ask what is due, write what is to be remembered."""
        for replica in environment.replicas.all():
            self._collect(environment, replica)
            self._submit(environment, replica)
        self._prove(environment)
        if time.monotonic() - self._sampled.get(environment.pk, -SAMPLE_EVERY_S) >= SAMPLE_EVERY_S:
            self._sampled[environment.pk] = time.monotonic()
            self._sample(environment)

    def prune(self) -> None:
        """Delete old samples from time to time."""
        if time.monotonic() - self._pruned >= PRUNE_EVERY_S:
            self._pruned = time.monotonic()
            samples_prune()

    def close(self) -> None:
        """Ask nothing more; answers under way are dropped."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _submit(self, environment: Environment, replica: Replica) -> None:
        if replica.pk in self._asked or replica.state not in CHECKED or not replica.url:
            return
        if environment.launched and not replica.handle:
            return
        if time.monotonic() < self._due.get(replica.pk, 0.0):
            return
        try:
            server = server_of(environment, replica.url)
        except SecretUnreadable as exc:
            self._due[replica.pk] = time.monotonic() + ADDRESS_EVERY_S
            return answer_store(environment, replica.url, exc)
        future = self._pool.submit(_ask_health, server, environment.server_name)
        self._asked[replica.pk] = (future, replica.handle)

    def _collect(self, environment: Environment, replica: Replica) -> None:
        asked = self._asked.get(replica.pk)
        if asked is None or not asked[0].done():
            return
        del self._asked[replica.pk]
        future, handle = asked
        pause = LAUNCHED_EVERY_S if environment.launched else ADDRESS_EVERY_S
        if environment.launched and replica.state == ReplicaState.STARTING:
            pause = STARTING_EVERY_S
        self._due[replica.pk] = time.monotonic() + pause
        answer_store(environment, replica.url, future.result(), handle=handle)

    def _prove(self, environment: Environment) -> None:
        """Have a server that was started from a name or an image validate itself once."""
        asked = self._proofs.get(environment.pk)
        if asked is not None and asked.done():
            del self._proofs[environment.pk]
            found = asked.result().model_dump() | {"at": timezone.now().isoformat()}
            Environment.objects.filter(pk=environment.pk).update(validation=found)
        if asked is not None or environment.validation is not None or environment.protocol != NATIVE:
            return
        # A server that is about to restart would validate options that are no longer wanted.
        healthy = [item for item in environment.replicas.all() if item.state == ReplicaState.HEALTHY and not item.wish]
        if environment.launched and healthy:
            try:
                server = server_of(environment, healthy[0].url)
            except SecretUnreadable:  # the check of the replica says so
                return
            self._proofs[environment.pk] = self._pool.submit(_validate, server)

    def _sample(self, environment: Environment) -> None:
        """One row of history: sums over the replicas that answer, nothing where none does."""
        healthy = [item for item in environment.replicas.all() if item.state == ReplicaState.HEALTHY]
        if not healthy and not environment.wanted:
            return
        loads = [item.health.get("load") or {} for item in healthy]
        EnvironmentSample.objects.create(
            environment=environment,
            at=timezone.now(),
            sessions=total(item.health.get("sessions") for item in healthy),
            slots=total(item.health.get("slots") for item in healthy),
            steps_per_s=total(load.get("steps_per_s") for load in loads),
            p50_ms=largest(load.get("p50_ms") for load in loads),
            p95_ms=largest(load.get("p95_ms") for load in loads),
            errors=dict(sum((self._new_errors(item) for item in healthy), Counter())),
        )

    def _new_errors(self, replica: Replica) -> Counter[str]:
        """A server counts since its start: what it counted since our last look, or all when it was started again."""
        counted = Counter((replica.health.get("load") or {}).get("errors") or {})
        before = self._errors.get(replica.pk)
        self._errors[replica.pk] = counted
        if before is None or any(counted[code] < count for code, count in before.items()):
            return counted if before is not None else Counter()
        return counted - before


def _ask_health(server: Server, wanted: str) -> Outcome:
    """In a thread, without the database."""
    try:
        answer = ask(server, total_s=ASK_LIMIT_S)
        require_identity(answer, wanted)
    except TiltyardError as exc:
        return exc
    except Exception as exc:  # the boundary to code that reads a stranger's answer
        logger.exception("a health check failed", extra={"url": server.url})
        return EnvironmentProtocolError(f"The check failed: {type(exc).__name__}.")
    return answer


def _validate(server: Server) -> Validation:
    try:
        return validation_of(server)
    except TiltyardError as exc:
        return Validation(ok=False, episodes=0, problems=[exc.message[:200]])


def total(values: Iterable[float | None]) -> Any:
    """The sum of what is known; ``None`` where nothing is."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def largest(values: Iterable[float | None]) -> float | None:
    """The largest of what is known; ``None`` where nothing is."""
    return max((value for value in values if value is not None), default=None)


def samples_prune() -> int:
    """Delete samples older than a day."""
    return EnvironmentSample.objects.filter(at__lt=timezone.now() - KEPT).delete()[0]


# --- Reconcile ------------------------------------------------------------------------------------------------------
# Brings one environment's replicas from their present state to the wanted one, one step at each look.
#
# 1. A server at an address has one replica, which is never started or stopped.
# 2. Otherwise replicas 1 to ``wanted`` are to run. Missing ones get a row; rows above are ended, then removed.
# 3. A replica that runs is left alone, unless a restart is wanted or it has not answered for too long.
# 4. One that died is started again: at once the first time, then after growing pauses. After ``MAX_DEATHS`` deaths
#    shortly after their starts it has failed, with the last lines of its log, until a person asks for a restart.
# 5. A launcher that cannot work now (no engine, no image) is asked again later; its sentence is shown at the replica.
#
# Everything is read again each time, so the next look corrects any change or kill meanwhile.

MAX_DEATHS = 5
QUICK_S = 30.0  # a server that lived longer begins with a clean record
PAUSE_S = 0.2  # doubled with each death
ASK_AGAIN_S = 10.0  # a launcher that cannot work now
GRACE_S = 5.0
START_LIMIT_S = 180.0  # a catalogue of 200,000 products takes half a minute to open
SILENT_LIMIT_S = 60.0
ERROR_LINES = 20


@dataclass
class Memory:
    """The state of a replica between looks; a new keeper begins without."""

    deaths: int = 0
    not_before: float = 0.0
    asked_at: float | None = None
    silent_since: float | None = None
    started: float = field(default_factory=time.monotonic)


class Reconciler:
    """Holds the launchers. Used by the keeper's main thread only."""

    def __init__(self, launchers: dict[str, Launcher]) -> None:
        self.launchers = launchers
        self._memory: dict[int, Memory] = {}

    def look(self, environment: Environment) -> None:
        """Take one step towards what is wanted of one environment."""
        rows = {row.number: row for row in environment.replicas.all()}
        if not environment.launched:
            return self._at_address(environment, rows)
        for number in range(1, environment.wanted + 1):
            if number not in rows:
                rows[number] = Replica.objects.create(environment=environment, number=number)
        for row in rows.values():
            row.environment = environment
            try:
                self._step(row, keep=row.number <= environment.wanted)
            except LaunchError as exc:
                self._keep_error(row, exc)
        return None

    def remove_orphans(self, named: set[tuple[str, int, str]]) -> None:
        """End everything of ours that no row names (environment, replica, handle)."""
        for kind, launcher in self.launchers.items():
            try:
                orphans = [
                    one
                    for one in launcher.list_owned()
                    if (one.environment_id, one.number, repr(sorted(one.handle.items()))) not in named
                ]
                for one in orphans:
                    logger.warning("orphan ended", extra={"kind": kind, "environment_id": one.environment_id})
                    launcher.stop(one.handle, force=True)
            except LaunchError as exc:
                logger.debug("no look for orphans: %s", exc.message, extra={"kind": kind})

    def end_all(self) -> None:
        """Ask everything that runs to end, wait for the grace, then kill."""
        owned = []
        for kind, launcher in self.launchers.items():
            try:
                owned += [(kind, one) for one in launcher.list_owned()]
            except LaunchError as exc:
                logger.debug("nothing to end: %s", exc.message, extra={"kind": kind})
        deadline = time.monotonic() + GRACE_S
        self._stop(owned, force=False)
        while owned and time.monotonic() < deadline:
            owned = [(kind, one) for kind, one in owned if self._is_alive(kind, one.handle)]
            time.sleep(0.05)
        self._stop(owned, force=True)

    # --- one replica ---
    def _at_address(self, environment: Environment, rows: dict[int, Replica]) -> None:
        if 1 not in rows:
            Replica.objects.create(environment=environment, number=1, url=environment.url)
        elif rows[1].url != environment.url:  # moved, as the embedded tools server may
            _save_columns(rows[1], url=environment.url, state=ReplicaState.STARTING)

    def _step(self, row: Replica, *, keep: bool) -> None:
        launcher, memory = self._launcher(row), self._memory_of(row)
        runs = bool(row.handle) and launcher.alive(row.handle)
        if not keep or row.wish:
            if runs:
                return self._end(row, memory)
            if row.handle:
                launcher.stop(row.handle, force=True)  # a container that ended is still there
            self._memory.pop(row.pk, None)
            if not keep:
                row.delete()
                return None
            _save_columns(row, wish="", handle={}, error=None, state=ReplicaState.STARTING, restarts=row.restarts + 1)
            return self._start(row, self._memory_of(row))
        if runs:
            return self._watch(row, memory)
        if row.handle:
            return self._on_death(row, memory)
        if row.state != ReplicaState.FAILED and time.monotonic() >= memory.not_before:
            self._start(row, memory)
        return None

    def _start(self, row: Replica, memory: Memory) -> None:
        started = self._launcher(row).start(row)
        memory.started, memory.silent_since, memory.asked_at = time.monotonic(), None, None
        _save_columns(
            row,
            handle=started.handle,
            url=started.url,
            state=ReplicaState.STARTING,
            started_at=timezone.now(),
            health={},
            error=None,
        )
        logger.info("replica started", extra={"replica": str(row), "url": started.url})

    def _end(self, row: Replica, memory: Memory) -> None:
        """Ask the server once to end, and kill it after the grace; the next look finds it gone."""
        launcher = self._launcher(row)
        if memory.asked_at is None:
            memory.asked_at = time.monotonic()
            _save_columns(row, state=ReplicaState.STOPPING)
            launcher.stop(row.handle)
        elif time.monotonic() - memory.asked_at > GRACE_S:
            launcher.stop(row.handle, force=True)

    def _watch(self, row: Replica, memory: Memory) -> None:
        """A server that hangs is ended here; the next look finds it dead and starts it again."""
        now = time.monotonic()
        if row.state == ReplicaState.HEALTHY:
            memory.silent_since = None
            return
        if row.state == ReplicaState.STOPPING:  # wanted again before it had ended
            _save_columns(row, state=ReplicaState.STARTING)
        if memory.silent_since is None:
            memory.silent_since = now
        limit = START_LIMIT_S if row.state == ReplicaState.STARTING else SILENT_LIMIT_S
        if now - memory.silent_since > limit:
            logger.warning("replica hangs", extra={"replica": str(row)})
            self._launcher(row).stop(row.handle, force=True)

    def _on_death(self, row: Replica, memory: Memory) -> None:
        lived = time.monotonic() - memory.started
        if row.started_at:  # a keeper that was restarted meanwhile knows it from the row
            lived = max(lived, (timezone.now() - row.started_at).total_seconds())
        memory.deaths = memory.deaths + 1 if lived < QUICK_S else 0
        launcher = self._launcher(row)
        log = launcher.logs(row, ERROR_LINES)
        failed = memory.deaths >= MAX_DEATHS
        if failed:
            message = _("It ended %(count)s times in a row shortly after its start.") % {"count": memory.deaths}
            hint = _("The last lines of its log show why. Fix the cause, then restart the replica.")
        else:
            message, hint = _("It ended and is started again."), ""
            pause = PAUSE_S * 2**memory.deaths if memory.deaths > 1 else 0.0
            memory.not_before = time.monotonic() + pause
        launcher.stop(row.handle, force=True)
        logger.warning("replica died", extra={"replica": str(row), "deaths": memory.deaths})
        _save_columns(
            row,
            handle={},
            state=ReplicaState.FAILED if failed else ReplicaState.STARTING,
            restarts=row.restarts + (not failed),
            error=EnvironmentFault(message, hint=hint).info.model_dump(mode="json") | {"log": log},
        )

    def _keep_error(self, row: Replica, exc: LaunchError) -> None:
        """Say why, once, and try again later."""
        memory = self._memory_of(row)
        memory.not_before = time.monotonic() + ASK_AGAIN_S
        error = exc.info.model_dump(mode="json")
        if row.error != error:
            logger.warning("replica cannot be started: %s", exc.message, extra={"replica": str(row)})
            _save_columns(row, error=error)

    # --- helpers ---
    def _launcher(self, row: Replica) -> Launcher:
        return self.launchers[Kind(row.environment.kind)]

    def _memory_of(self, row: Replica) -> Memory:
        return self._memory.setdefault(row.pk, Memory())

    def _is_alive(self, kind: str, handle: dict[str, Any]) -> bool:
        try:
            return self.launchers[kind].alive(handle)
        except LaunchError:
            return False

    def _stop(self, owned: list[Any], *, force: bool) -> None:
        for kind, one in owned:
            try:
                self.launchers[kind].stop(one.handle, force=force)
            except LaunchError as exc:
                logger.warning("could not be ended: %s", exc.message, extra={"kind": kind})


def _save_columns(row: Replica, **values: Any) -> None:
    """Only the named columns: people write others at the same time. A row that was deleted meanwhile stays so."""
    for name, value in values.items():
        setattr(row, name, value)
    Replica.objects.filter(pk=row.pk).update(**values)


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
