"""Making the file of a dataset from its parents' rows, in the worker that then checks it."""

from __future__ import annotations

import os
from pathlib import Path

from django.conf import settings
from django.utils.translation import gettext as _

from training.data.making.dataset import OPERATIONS, Made, make
from training.errors import DataError
from webapp.common.work import Claim
from webapp.datasets.models import Dataset, DatasetState
from webapp.datasets.pair_rows import PAIRS, pairs_make
from webapp.datasets.rollout_rows import ROLLOUTS, rollouts_make


def rows_make(claim: Claim[Dataset]) -> None:
    """Make the file of a claimed dataset where it is to be made of others and is not there yet."""
    dataset = claim.item
    operation = str(dataset.lineage.get("operation", ""))
    if operation not in (*OPERATIONS, PAIRS, ROLLOUTS) or dataset.upload_path.exists():
        return
    part = dataset.upload_path.with_name(f"upload.{claim.token}")
    try:
        dataset.upload_path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        for left in dataset.upload_path.parent.glob("upload.*"):  # files of workers that were killed
            left.unlink(missing_ok=True)
        if operation == PAIRS:
            made = _make_pairs(dataset, part)
        elif operation == ROLLOUTS:
            made = rollouts_make(dataset, part, lambda done, total: claim.report({"bytes": done, "total": total}))
        else:
            made = _make_rows(claim, operation)
        with claim.held():
            _keep_counts(claim, made)
            os.replace(part, dataset.upload_path)
    finally:
        part.unlink(missing_ok=True)


def _make_pairs(dataset: Dataset, part: Path) -> Made:
    made = pairs_make(dataset, part)
    dataset.lineage["options"] |= {"groups": made.groups, "unread": made.unread}
    return Made(made.pairs, made.bytes, [])


def _make_rows(claim: Claim[Dataset], operation: str) -> Made:
    dataset = claim.item
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
        raise DataError(_("%(name)s, the source of this dataset, was deleted.") % {"name": gone})
    return make(
        operation,
        OPERATIONS[operation].model_validate(options),
        [there[parent["id"]].rows_path for parent in parents],
        dataset.upload_path.with_name(f"upload.{claim.token}"),
        part=part,
        limit_bytes=settings.MAX_UPLOAD_BYTES,
        on_progress=lambda done, total: claim.report({"bytes": done, "total": total, "stage": "making"}),
    )


def _keep_counts(claim: Claim[Dataset], made: Made) -> None:
    """Store the size of the file, and how many rows each parent gave."""
    dataset = claim.item
    for parent, taken in zip(dataset.lineage["parents"], made.taken, strict=True):
        parent["taken"] = taken
    dataset.lineage["rows"], dataset.bytes = made.rows, made.bytes
    claim.keep(lineage=dataset.lineage, bytes=made.bytes, progress={"bytes": 0, "total": made.bytes})
