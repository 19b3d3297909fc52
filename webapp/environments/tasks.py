"""Health checks in the background."""

from __future__ import annotations

from celery import shared_task

from webapp.environments.models import Environment
from webapp.environments.services import environment_check


@shared_task(name="environments.check_all", soft_time_limit=20, time_limit=30)
def check_all() -> None:
    """Send one check for each environment, so that a dead server delays no other."""
    for pk in Environment.objects.values_list("pk", flat=True)[:1000]:
        check_one.apply_async((str(pk),), expires=15)


@shared_task(name="environments.check_one", soft_time_limit=20, time_limit=30)
def check_one(environment_id: str) -> None:
    """Check one environment; it may have been deleted since."""
    environment = Environment.objects.filter(pk=environment_id).first()
    if environment:
        environment_check(environment=environment)
