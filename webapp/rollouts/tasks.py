"""What workers do for rollouts."""

from __future__ import annotations

from celery import shared_task

from webapp.rollouts.indexing import index_older


@shared_task(name="rollouts.index", ignore_result=True, soft_time_limit=50, time_limit=60)
def index() -> None:
    """Index what was recorded before there was an index."""
    index_older()
