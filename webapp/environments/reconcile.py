"""Brings one environment's replicas from their present state to the wanted one, one step at each look.

1. A server at an address has one replica, which is never started or stopped.
2. Otherwise replicas 1 to ``wanted`` are to run. Missing ones get a row; rows above are ended, then removed.
3. A replica that runs is left alone, unless a restart is wanted or it has not answered for too long.
4. One that died is started again: at once the first time, then after growing pauses. After ``MAX_DEATHS`` deaths
   shortly after their starts it has failed, with the last lines of its log, until a person asks for a restart.
5. A launcher that cannot work now (no engine, no image) is asked again later; its sentence is shown at the replica.

Everything is read again each time, so the next look corrects any change or kill meanwhile.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field
from typing import Any

from django.utils import timezone
from django.utils.translation import gettext as _

from training.errors import EnvironmentFault
from webapp.environments.launchers import Launcher
from webapp.environments.launchers.base import LaunchError
from webapp.environments.models import Environment, Kind, Replica, ReplicaState

logger = logging.getLogger(__name__)
MAX_DEATHS = 5
QUICK_S = 30.0  # a server that lived longer begins with a clean record
PAUSE_S, PAUSE_MAX_S = 0.2, 30.0
GRACE_S = 5.0
START_LIMIT_S = 180.0  # a catalogue of 200,000 products takes half a minute to open
SILENT_LIMIT_S = 60.0
ERROR_LINES = 20


@dataclass
class Memory:
    """What is remembered of a replica between looks; a new keeper begins without."""

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
            memory.not_before = time.monotonic() + min(PAUSE_MAX_S, pause)
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
        memory.not_before = time.monotonic() + PAUSE_MAX_S / 3
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
