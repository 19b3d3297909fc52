"""Celery tasks of runs. Messages carry a run's id and its pool at most, and every task may run twice."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from celery import shared_task
from celery.signals import worker_shutting_down

from webapp.common.pools import TRAIN
from webapp.engine import supervisor


@shared_task(name="runs.supervise", ignore_result=True)
def supervise(run_id: str, pool: str = TRAIN) -> None:
    """Try to claim the run and run one attempt, in a place of this pool."""
    supervisor.supervise(UUID(run_id), pool)


@worker_shutting_down.connect
def hand_back(**_kwargs: Any) -> None:
    """On shutdown, a worker stops its trainers and queues their runs again, instead of waiting for them."""
    supervisor.worker_closing()
