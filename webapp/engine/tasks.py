"""Celery tasks of runs. Messages carry a run's id at most, and every task may run twice."""

from __future__ import annotations

import logging
from typing import Any
from uuid import UUID

from celery import shared_task
from celery.signals import worker_shutting_down
from django.db import OperationalError

from webapp.engine import outbox, reaper, room, supervisor

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


@worker_shutting_down.connect
def hand_back(**_kwargs: Any) -> None:
    """A worker that is told to end stops its trainers and queues their runs again, rather than waiting for them."""
    supervisor.worker_closing()
