"""Writing datasets in the background."""

from __future__ import annotations

from billiard.exceptions import SoftTimeLimitExceeded
from celery import shared_task
from django.utils.translation import gettext as _

from webapp.celery import app as celery_app
from webapp.environments.generate import TIME_LIMIT_S, OrderFailed
from webapp.environments.orders import order_fail, order_run, orders_look


@shared_task(name="environments.write_dataset", soft_time_limit=TIME_LIMIT_S + 60, time_limit=TIME_LIMIT_S + 90)
def write_dataset(order_id: str) -> None:
    """Write one dataset that was asked for, unless somebody is at it."""
    try:
        order_run(order_id)
    except SoftTimeLimitExceeded:
        order_fail(order_id, OrderFailed(_("Writing the dataset took too long."), hint=_("Ask for fewer rows.")))


@shared_task(name="environments.look_at_orders", soft_time_limit=20, time_limit=30)
def look_at_orders() -> None:
    """Mend what lost messages and killed workers left."""
    orders_look()


# As in webapp.datasets.tasks: beside the task it belongs to.
celery_app.conf.beat_schedule.setdefault(
    "environments", {"task": "environments.look_at_orders", "schedule": 30.0, "options": {"expires": 30}}
)
