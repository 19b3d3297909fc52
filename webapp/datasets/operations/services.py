"""Asking for datasets that are made of others.

1. ``operation_order`` saves the new versions at once, in state ``checking``, with their whole lineage but the rows.
2. The check of such a version finds no file yet, so its worker makes it first (``work.py``), from the parents' rows.
3. Claims, lost workers and progress are those of any check (``webapp.datasets.services``).
"""

from __future__ import annotations

import logging
import shutil
import uuid
from collections.abc import Sequence
from typing import Any

from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils.translation import gettext as _
from pydantic import ValidationError as ShapeError

from training.data import MixOptions, Options
from training.data.making import OPERATIONS, PARTS
from webapp.common.pages import clean_name
from webapp.datasets.models import Dataset, DatasetState
from webapp.datasets.operations.lineage import parent_of
from webapp.datasets.services import KEEP_FREE_BYTES, version_insert
from webapp.people.teams.models import User

logger = logging.getLogger(__name__)
MAX_OPEN = 6


def operation_order(
    *, parents: Sequence[Dataset], user: User | None, operation: str, options: dict[str, Any], names: Sequence[str]
) -> list[Dataset]:
    """Order the datasets of an operation: two versions of a split, else one. Raises ``ValidationError`` by field."""
    chosen = _parse_options(operation, options)
    parts = PARTS if operation == "split" else ("",)
    names = [clean_name(name) for name in names]
    if len(names) != len(parts):
        raise ValidationError({"name": _("This creates %(n)s datasets; give as many names.") % {"n": len(parts)}})
    if len(set(names)) != len(names):
        raise ValidationError({"name": _("The two parts need different names.")})
    _judge_parents(parents, chosen)
    made = []
    with transaction.atomic():
        for name, part in zip(names, parts, strict=True):
            kept = chosen.model_dump(mode="json", exclude_unset=operation == "filter") | (
                {"part": part} if part else {}
            )
            lineage = {"operation": operation, "options": kept, "parents": [parent_of(item) for item in parents]}
            dataset = Dataset(
                id=uuid.uuid4(),
                project=parents[0].project,
                name=name,
                file_name="rows.jsonl",
                created_by=user,
                reading={"format": "conversation"},
                lineage=lineage,
            )
            version_insert(dataset)
            made.append(dataset)
    logger.info("datasets asked for", extra={"operation": operation, "project_id": parents[0].project_id})
    return made


def _parse_options(operation: str, options: dict[str, Any]) -> Options:
    if operation not in OPERATIONS:
        raise ValidationError(
            {"operation": _("There is no such operation. There are: %(names)s.") % {"names": ", ".join(OPERATIONS)}}
        )
    try:
        return OPERATIONS[operation].model_validate(options)
    except ShapeError as exc:
        error = exc.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in error["loc"])
        text = error["msg"].removeprefix("Value error, ")
        raise ValidationError(f"{where}: {text}" if where else text) from exc


def _judge_parents(parents: Sequence[Dataset], chosen: Options) -> None:
    """Require parents that are ready, of one project and as many as the operation takes, and enough room on the
    server."""
    project_id = parents[0].project_id
    if any(parent.project_id != project_id for parent in parents):
        raise ValidationError(_("Only datasets of one project can be mixed."))
    unready = next((parent for parent in parents if parent.state != DatasetState.READY), None)
    if unready is not None:
        raise ValidationError(_("%(name)s is not ready to be used.") % {"name": unready}, code="conflict")
    if isinstance(chosen, MixOptions):
        if len(parents) < 2 or len(parents) != len(chosen.weights):
            raise ValidationError(_("Choose at least two datasets, and a weight for each."))
        if len({parent.pk for parent in parents}) != len(parents):
            raise ValidationError(_("Choose each dataset once."))
    elif len(parents) != 1:
        raise ValidationError(_("This takes one dataset."))
    waiting = Dataset.objects.filter(project=project_id, state=DatasetState.CHECKING, lineage__parents__0__isnull=False)
    if waiting.count() >= MAX_OPEN:
        raise ValidationError(_("Datasets are being created in this project already; wait until one is done."))
    size = sum(parent.rows_path.stat().st_size for parent in parents if parent.rows_path.is_file())
    if shutil.disk_usage(settings.DATA_DIR).free < size * 2 + KEEP_FREE_BYTES:
        raise ValidationError(_("The server's disk is nearly full, so nothing was created."))
