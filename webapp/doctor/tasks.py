"""Celery tasks of the run doctor."""

from __future__ import annotations

import logging

from celery import shared_task
from django.db import OperationalError

from webapp.doctor import looking

logger = logging.getLogger(__name__)


@shared_task(name="doctor.look", ignore_result=True, soft_time_limit=100, time_limit=120)
def look() -> None:
    """Look at the steps that runs have made since the last time."""
    try:
        looking.look()
    except OperationalError as exc:  # the database is away: what was not seen is seen later
        logger.warning("runs not looked at", extra={"action": "advisories", "error": repr(exc)[:200]})
