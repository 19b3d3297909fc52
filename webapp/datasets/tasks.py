"""What workers do for datasets."""

from __future__ import annotations

from uuid import UUID

from celery import shared_task
from django.utils.translation import gettext_noop

from webapp.common.storage import dataset_dir
from webapp.common.work import Kind, register
from webapp.datasets.models import Dataset, DatasetExport, ExportState
from webapp.datasets.operations import export_failed, export_run
from webapp.datasets.rows import TASK, identities_make
from webapp.datasets.services import check_failed, check_run

CHECK_TOO_LONG = gettext_noop("Checking the file took too long. Split it into smaller files.")
EXPORT_TOO_LONG = gettext_noop("Writing the file took too long.")
FEWER = gettext_noop("Ask for fewer rows.")

register(Kind(Dataset, check_run, check_failed, too_long=CHECK_TOO_LONG))
register(
    Kind(DatasetExport, export_run, export_failed, too_long=EXPORT_TOO_LONG, hint=FEWER, at_work=ExportState.WRITING)
)


@shared_task(name=TASK, ignore_result=True, soft_time_limit=600, time_limit=630)
def identify(dataset_id: str) -> None:
    """Keep which rows a version has, where it was checked before checks did that."""
    identities_make(dataset_dir(UUID(dataset_id)) / "rows.jsonl")
