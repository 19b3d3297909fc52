"""Making the file of a dataset from its parents' rows, in the worker that then checks it."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable

from django.conf import settings
from django.db.models import QuerySet
from django.utils.translation import gettext as _

from training.data.making.dataset import OPERATIONS, Made, make
from training.errors import DataError, TiltyardError
from webapp.datasets.models import Dataset, DatasetState
from webapp.datasets.services import CheckLost

logger = logging.getLogger(__name__)


def rows_ready(dataset: Dataset) -> bool:
    """Whether a claimed dataset has its file, which is made here where it is to be made of others.

    ``False`` after a failure, which is then kept as a sentence, or when somebody else has the work now.
    """
    operation = str(dataset.lineage.get("operation", ""))
    if operation not in OPERATIONS or dataset.upload_path.exists():
        return True
    token = str(dataset.progress["token"])
    part = dataset.upload_path.with_name(f"upload.{token}")
    try:
        dataset.upload_path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        for left in dataset.upload_path.parent.glob("upload.*"):  # of workers that were killed
            left.unlink(missing_ok=True)
        made = _make(dataset, operation, token)
        _keep(dataset, token, made)
        os.replace(part, dataset.upload_path)
    except CheckLost:
        logger.info("making rows given up", extra={"dataset_id": dataset.pk})
    except TiltyardError as exc:
        _reject(dataset, token, f"{exc.message} {exc.hint}".strip())
    except OSError as exc:
        logger.exception("rows could not be made", extra={"dataset_id": dataset.pk})
        _reject(
            dataset, token, _("The rows could not be stored: %(reason)s.") % {"reason": exc.strerror or "I/O error"}
        )
    else:
        return True
    finally:
        part.unlink(missing_ok=True)
    return False


def _make(dataset: Dataset, operation: str, token: str) -> Made:
    options = dict(dataset.lineage["options"])
    part = options.pop("part", "")
    parents = dataset.lineage["parents"]
    there = {
        str(item.pk): item
        for item in Dataset.objects.filter(
            project=dataset.project_id, pk__in=[parent["id"] for parent in parents], state=DatasetState.READY
        )
    }
    gone = next((parent["reference"] for parent in parents if parent["id"] not in there), None)
    if gone is not None:
        raise DataError(_("%(name)s, of which this is made, was deleted.") % {"name": gone})
    return make(
        operation,
        OPERATIONS[operation].model_validate(options),
        [there[parent["id"]].rows_path for parent in parents],
        dataset.upload_path.with_name(f"upload.{token}"),
        part=part,
        limit_bytes=settings.MAX_UPLOAD_BYTES,
        on_progress=_reporter(dataset, token),
    )


def _reporter(dataset: Dataset, token: str) -> Callable[[int, int], None]:
    def report(done: int, total: int) -> None:
        values = {"token": token, "at": time.time(), "bytes": done, "total": total, "stage": "making"}
        if not _ours(dataset, token).update(progress=values):
            raise CheckLost

    return report


def _keep(dataset: Dataset, token: str, made: Made) -> None:
    """The size of the file, and how many rows each parent gave."""
    for parent, taken in zip(dataset.lineage["parents"], made.taken, strict=True):
        parent["taken"] = taken
    dataset.lineage["rows"], dataset.bytes = made.rows, made.bytes
    progress = {"token": token, "at": time.time(), "bytes": 0, "total": made.bytes}
    if not _ours(dataset, token).update(lineage=dataset.lineage, bytes=made.bytes, progress=progress):
        raise CheckLost


def _reject(dataset: Dataset, token: str, sentence: str) -> None:
    report = {"verdict": "rejected", "message": sentence}
    _ours(dataset, token).update(state=DatasetState.REJECTED, report=report, progress={})


def _ours(dataset: Dataset, token: str) -> QuerySet[Dataset]:
    return Dataset.objects.filter(pk=dataset.pk, state=DatasetState.CHECKING, progress__token=token)
