"""Checking uploads in the background."""

from __future__ import annotations

from billiard.exceptions import SoftTimeLimitExceeded
from celery import shared_task

from webapp.celery import app as celery_app
from webapp.datasets.operations.exports import export_enqueue, export_run, export_time_out, lost_exports
from webapp.datasets.operations.work import rows_ready
from webapp.datasets.selectors import lost_checks
from webapp.datasets.services import check_claim, check_enqueue, check_run, check_time_out


@shared_task(name="datasets.check", soft_time_limit=900, time_limit=930)
def check(dataset_id: str) -> None:
    """Check one upload, or make and check rows of other datasets, unless somebody is at it."""
    dataset = check_claim(dataset_id=dataset_id)
    if dataset is None:
        return
    try:
        if rows_ready(dataset):
            check_run(dataset=dataset)
    except SoftTimeLimitExceeded:
        check_time_out(dataset_id=dataset_id)


@shared_task(name="datasets.export", soft_time_limit=900, time_limit=930)
def export(export_id: str) -> None:
    """Write one file to download, unless somebody is at it."""
    try:
        export_run(export_id)
    except SoftTimeLimitExceeded:
        export_time_out(export_id)


@shared_task(name="datasets.find_lost", soft_time_limit=20, time_limit=30)
def find_lost() -> None:
    """Send checks again whose worker fell silent."""
    for dataset_id in lost_checks().values_list("pk", flat=True)[:100]:
        check_enqueue(dataset_id)
    for export_id in lost_exports().values_list("pk", flat=True)[:100]:
        export_enqueue(export_id)


# Beat imports all task modules before it reads its schedule, so the entry can stand beside the task it belongs to.
celery_app.conf.beat_schedule.setdefault(
    "datasets", {"task": "datasets.find_lost", "schedule": 30.0, "options": {"expires": 30}}
)
