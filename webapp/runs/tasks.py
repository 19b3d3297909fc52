"""Celery tasks of runs. Messages carry a run's id at most, and every task may run twice."""

from __future__ import annotations

import logging
from typing import Any
from uuid import UUID

from billiard.exceptions import SoftTimeLimitExceeded
from celery import shared_task
from celery.signals import worker_shutting_down
from django.db import OperationalError

from webapp.celery import app as celery_app
from webapp.runs.engine import outbox, reaper, room, supervisor
from webapp.runs.foreign import reading as foreign
from webapp.runs.launch import preparing

logger = logging.getLogger(__name__)


@shared_task(name="runs.supervise", ignore_result=True)
def supervise(run_id: str) -> None:
    """Try to claim the run and see one attempt through."""
    supervisor.supervise(UUID(run_id))


@shared_task(name="runs.reap", ignore_result=True, soft_time_limit=240, time_limit=300)
def reap() -> None:
    """Give back the runs of workers that stopped answering."""
    try:
        reaper.reap()
    except OperationalError as exc:  # away, or the table is locked: nobody is judged by what could not be looked at
        logger.warning("leases not looked at", extra={"action": "reap", "error": repr(exc)[:200]})


@shared_task(name="runs.look_for_room", ignore_result=True, soft_time_limit=50, time_limit=60)
def look_for_room() -> None:
    """Let the runs go on that a full disk had paused."""
    room.resume_where_room()


@shared_task(name="runs.send_outbox", ignore_result=True, soft_time_limit=50, time_limit=60)
def send_outbox() -> None:
    """Send the nudges that the broker has not got yet."""
    outbox.send_unsent()


@shared_task(name="runs.import_files", soft_time_limit=foreign.TIME_LIMIT_S, time_limit=foreign.TIME_LIMIT_S + 30)
def import_files(import_id: str) -> None:
    """Read one upload of a foreign run, unless somebody is at it."""
    item = foreign.import_claim(import_id)
    if item is None:
        return
    try:
        foreign.import_read(item)
    except SoftTimeLimitExceeded:
        foreign.import_time_out(import_id)


@shared_task(name="runs.look_at_imports", soft_time_limit=20, time_limit=30)
def look_at_imports() -> None:
    """Send imports again whose worker fell silent."""
    for import_id in foreign.lost_imports().values_list("pk", flat=True)[:100]:
        foreign.import_enqueue(import_id)


@shared_task(name="runs.prepare", ignore_result=True, soft_time_limit=240, time_limit=300)
def prepare() -> None:
    """Go on with the presets that are being made ready."""
    preparing.preparations_advance()


# As in webapp.datasets.tasks: beside the tasks they belong to.
celery_app.conf.beat_schedule.setdefault(
    "imports", {"task": "runs.look_at_imports", "schedule": 30.0, "options": {"expires": 30}}
)
celery_app.conf.beat_schedule.setdefault(
    "preparations", {"task": "runs.prepare", "schedule": 5.0, "options": {"expires": 5}}
)


@worker_shutting_down.connect
def hand_back(**_kwargs: Any) -> None:
    """A worker that is told to end stops its trainers and queues their runs again, rather than waiting for them."""
    supervisor.worker_closing()
