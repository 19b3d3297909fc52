"""``manage.py run_clockwork``: give back what lost workers had, send what waits, resume what can continue."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from types import FrameType
from typing import Any

from celery import current_app
from django.core.management import call_command
from django.core.management.base import BaseCommand
from django.db import connection
from django.utils import timezone

from webapp.api.models import KeptAnswer
from webapp.chat import holder
from webapp.common import work
from webapp.common.errors import DATABASE_AWAY
from webapp.common.host import say_alive, say_ready
from webapp.engine import courier, doctor, history, recovery
from webapp.foreign.importing import cut_imports_discard
from webapp.retention import services as retention
from webapp.runs.removal.models import Removal, RemovalState
from webapp.runs.rollouts.words import index_older

# The clockwork: jobs that run every few seconds, in a process that no work of people can fill.
#
# 1. Each job has a thread and a connection of its own, so that a slow one delays no other.
# 2. Rows in PostgreSQL decide what there is to do. Without the database a job tries again at its next tick; without
#    Redis it still runs, and what it would send stays a row.
# 3. A second clockwork does no harm: every job may run twice at a time.
# 4. A tick that does not end within its job's limit ends the process: its supervisor starts another one.

# Deletes what is not needed any more and no other code deletes: expired sessions, notes of deletions that are done,
# what lost imports left, and answers kept for calls that are sent again.

REMOVALS_KEPT = timedelta(days=30)  # the audit keeps what was deleted and by whom without end
ANSWERS_KEPT = timedelta(hours=48)  # a call is sent again within minutes; a script does not do so after a weekend


def tidy() -> None:
    """Delete them; a deletion that failed stays until it was done."""
    call_command("clearsessions")
    cut_imports_discard()
    Removal.objects.filter(state=RemovalState.DONE, created_at__lt=timezone.now() - REMOVALS_KEPT).delete()
    KeptAnswer.objects.filter(created_at__lt=timezone.now() - ANSWERS_KEPT).delete()


logger = logging.getLogger(__name__)
CHECK_EVERY_S = 1.0
END_S = 5.0


@dataclass(frozen=True)
class Job:
    """A check that runs every ``every_s`` seconds; a tick that takes longer than ``limit_s`` hangs."""

    name: str
    tick: Callable[[], object]
    every_s: float
    limit_s: float = 300.0


JOBS = (
    Job("reap", recovery.reap, every_s=5),
    Job("outbox", history.send_unsent, every_s=2),
    Job("work", work.look, every_s=5),
    Job("chat", holder.look, every_s=5),
    Job("recover", recovery.resume_where_over, every_s=15),
    Job("files", courier.copy_home, every_s=10, limit_s=24 * 3600.0),
    Job("doctor", doctor.look, every_s=10),
    Job("index", index_older, every_s=60),
    Job("retention", retention.look, every_s=300),
    Job("tidy", tidy, every_s=3600),
)


class Clockwork:
    """One process that ticks for an installation."""

    def __init__(self, jobs: Sequence[Job] = JOBS) -> None:
        self._jobs = jobs
        self._stop = threading.Event()
        self._began: dict[str, float] = {}

    def run(self) -> None:
        """Tick until a signal ends it."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        current_app.loader.import_default_modules()  # what workers can do, so that `work.look` knows of it
        threads = [threading.Thread(target=self.keep, args=(job,), name=job.name, daemon=True) for job in self._jobs]
        for thread in threads:
            thread.start()
        say_ready()
        while not self._stop.wait(CHECK_EVERY_S):
            if job := self.hung():
                logger.critical("a job does not end; ending the clockwork", extra={"action": job.name})
                os._exit(1)
            say_alive()
        until = time.monotonic() + END_S
        for thread in threads:
            thread.join(timeout=max(0.0, until - time.monotonic()))

    def keep(self, job: Job) -> None:
        """Do one job again and again, also after an error."""
        while not self._stop.is_set():
            began = self._began[job.name] = time.monotonic()
            try:
                job.tick()
            except DATABASE_AWAY as exc:
                connection.close()
                logger.warning("database away", extra={"action": job.name, "error": repr(exc)[:200]})
            except Exception:  # a fault in one of them ends neither it nor the others
                connection.close()
                logger.exception("a job failed", extra={"action": job.name})
            del self._began[job.name]
            self._stop.wait(max(0.0, began + job.every_s - time.monotonic()))
        connection.close()

    def hung(self) -> Job | None:
        """A job whose tick has lasted longer than its limit."""
        now, began = time.monotonic(), dict(self._began)
        return next((job for job in self._jobs if now - began.get(job.name, now) > job.limit_s), None)

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        self._stop.set()


class Command(BaseCommand):
    """Runs until SIGTERM; `manage.py up` supervises it. A second one does no harm."""

    help = __doc__
    requires_system_checks = []

    def handle(self, *args: Any, **options: Any) -> None:
        """Tick."""
        Clockwork().run()
