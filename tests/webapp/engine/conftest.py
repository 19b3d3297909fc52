"""A stub trainer, short leases, and runs that are ready to claim."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from training.config import JobConfig
from training.journal import Event, Journal
from webapp.common.storage import attempt_dir
from webapp.engine import attempts as leases
from webapp.engine.history import Lease
from webapp.engine.projection import Projector
from webapp.engine.supervisor import supervise
from webapp.runs.models import Run
from webapp.runs.states import RunState

STUB = Path(__file__).resolve().parents[2] / "chaos" / "stub_trainer.py"


@pytest.fixture(autouse=True)
def quick(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leases of two seconds, the stub as trainer, and no messages to real workers."""
    settings.TRAINER_COMMAND = [sys.executable, str(STUB)]
    settings.LEASE_TTL_S, settings.LEASE_BEAT_S, settings.STOP_GRACE_S = 2, 0.3, 1
    monkeypatch.setattr("webapp.engine.history._send_message", lambda row: False)


@pytest.fixture
def job(make_dataset: Callable[..., Any], make_environment: Callable[..., Any]) -> Callable[..., JobConfig]:
    """``job(script, steps=10, save_every=0)``: a GRPO config whose references exist; ``script`` drives the stub."""

    def make(script: str = "sleep-1", steps: int = 10, save_every: int = 0, **over: Any) -> JobConfig:
        values = {
            "model": {"revision": script},
            "data": {"train": make_dataset().reference},
            "environment": {"name": make_environment().reference},
            "run": {"max_steps": steps, "save_every": save_every},
        }
        return JobConfig.model_validate(values | over)

    return make


@pytest.fixture
def queued(make_run: Callable[..., Run], job: Callable[..., JobConfig]) -> Callable[..., Run]:
    """``queued(script, **job options)``: a run that a worker may claim."""

    def make(script: str = "sleep-1", **options: Any) -> Run:
        fields = options.pop("fields", {})
        run = make_run(config=job(script, **options), state=RunState.QUEUED, queued_at=timezone.now(), **fields)
        run.refresh_from_db()
        return run

    return make


class Written:
    """A claimed run with a journal that a test writes line by line."""

    def __init__(self, run: Run) -> None:
        lease = leases.claim(run.pk)
        assert lease is not None
        self.run, self.lease = run, lease
        self.journal = Journal(attempt_dir(run.pk, lease.attempt))
        self.projector = Projector(lease)

    def write(self, *events: Event) -> None:
        for event in events:
            self.journal.write(event)

    def raw(self, data: bytes) -> None:
        with open(self.journal.path, "ab") as file:
            file.write(data)

    def project(self) -> None:
        self.projector.drain()
        self.run.refresh_from_db()


@pytest.fixture
def written(queued: Callable[..., Run]) -> Iterator[Callable[..., Written]]:
    """``written()``: a claimed run whose journal the test writes."""
    made: list[Written] = []

    def make() -> Written:
        made.append(Written(queued()))
        return made[-1]

    yield make
    for each in made:
        each.journal.close()


def in_thread(run: Run) -> threading.Thread:
    """Supervise one attempt in a thread with its own database connection."""

    def work() -> None:
        try:
            supervise(run.pk)
        finally:
            connection.close()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def stand_in(run: Run) -> Lease:
    """The lease as the database has it now."""
    run.refresh_from_db()
    return Lease(run.pk, run.attempt, run.lease_owner)
