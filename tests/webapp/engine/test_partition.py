"""A worker that cannot reach the database for too long kills its trainer by itself."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from django.db import OperationalError

from tests.chaos.services import alive, wait_until
from tests.webapp.engine.conftest import in_thread
from webapp.common.storage import attempt_dir
from webapp.engine import supervisor
from webapp.runs.models import Run
from webapp.runs.states import RunState

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_worker_without_its_database_ends_its_trainer_after_the_limit(queued: Any, monkeypatch: Any) -> None:
    """The journal may be written and read all the while: only the beats do not come through."""

    def away(lease: object) -> bool:
        raise OperationalError("no route to host")

    monkeypatch.setattr(supervisor, "PARTITION_LIMIT_S", 2.0)
    run = queued("sleep-20", steps=10_000)
    thread = in_thread(run)
    wait_until(lambda: Run.objects.get(pk=run.pk).state == RunState.RUNNING, 20)
    pid = int(json.loads((attempt_dir(run.pk, 1) / "trainer.json").read_text())["pid"])
    monkeypatch.setattr(supervisor, "beat", away)
    began = time.monotonic()
    wait_until(lambda: not alive(pid), 15)
    assert 1.0 < time.monotonic() - began < 7
    thread.join(10)
    assert not thread.is_alive()
    run.refresh_from_db()
    assert (run.state, run.attempt) == (RunState.RUNNING, 1), "the reaper decides what becomes of the run"
