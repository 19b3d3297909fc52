"""Health of all replicas, and its history. Threads only ask; the keeper's main thread writes."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from typing import Any

from django.utils import timezone

from envs.wire import Validation
from training.errors import EnvironmentProtocolError, TiltyardError
from webapp.environments.checks import NATIVE, Answer, Server, ask, require_identity, validation_of
from webapp.environments.launchers.base import Handle
from webapp.environments.models import Environment, EnvironmentSample, Replica, ReplicaState
from webapp.environments.services import answer_store, server_of

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
    """Asks each replica when its time has come, one question at a time for each."""

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
        server = server_of(environment, replica.url)
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
            server = server_of(environment, healthy[0].url)
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
