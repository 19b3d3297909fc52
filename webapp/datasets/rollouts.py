"""Asking for a dataset of chosen rollouts: their conversations for SFT, or the tasks that they played.

Which ones is decided when it is asked for: their ids are stored with the dataset, so that later steps of a run change
nothing. Rollouts on held-out tasks are left out of both: what is learned from or tuned on is no longer held out.
"""

from __future__ import annotations

import json
import logging
import shutil
import uuid
from collections.abc import Sequence
from typing import Any

from django.conf import settings
from django.core.exceptions import ValidationError
from django.utils.translation import gettext as _

from webapp.common.pages import clean_name
from webapp.common.storage import dataset_dir
from webapp.datasets.models import Dataset, DatasetState
from webapp.datasets.operations.lineage import parent_of
from webapp.datasets.recorded import ROLLOUTS, Use, chosen_path, dataset_of_step
from webapp.datasets.services import KEEP_FREE_BYTES, version_insert
from webapp.people.teams.models import Project, User
from webapp.runs.models import Run
from webapp.runs.rollouts.models import Rollout

logger = logging.getLogger(__name__)
MOST = 10_000
MAX_OPEN = 3


def rollouts_order(
    *,
    project: Project,
    user: User | None,
    name: str,
    runs: Sequence[Run],
    ids: Sequence[uuid.UUID],
    use: Use,
    view: str,
) -> Dataset:
    """Ask for a dataset of rollouts of some runs; ``view`` says in words how they were found.

    Raises ``ValidationError`` by field or with a sentence.
    """
    if not 1 <= len(ids) <= MOST:
        raise ValidationError(_("Between 1 and %(n)s rollouts can be saved at once.") % {"n": MOST})
    waiting = Dataset.objects.filter(project=project, state=DatasetState.CHECKING, lineage__operation=ROLLOUTS)
    if waiting.count() >= MAX_OPEN:
        raise ValidationError(_("Datasets are being created in this project already; wait until one is done."))
    if shutil.disk_usage(settings.DATA_DIR).free < KEEP_FREE_BYTES:
        raise ValidationError(_("The server's disk is nearly full, so nothing was created."))
    dataset = Dataset(
        id=uuid.uuid4(), project=project, name=clean_name(name), file_name="rollouts.jsonl", created_by=user
    )
    parents = _parent_versions(runs, ids) if use == "tasks" else []
    if use == "tasks" and not parents:
        raise ValidationError(_("The tasks of these rollouts are not rows of a dataset that is here."))
    dataset.lineage = {"operation": ROLLOUTS, "options": _order_options(runs, ids, use, view), "parents": parents}
    path = chosen_path(dataset)
    try:
        path.parent.mkdir(parents=True, mode=0o700)
        path.write_text(json.dumps([str(each) for each in ids]))
        version_insert(dataset)
    except BaseException:
        shutil.rmtree(dataset_dir(dataset.id), ignore_errors=True)
        raise
    logger.info("dataset of rollouts asked for", extra={"dataset_id": dataset.pk, "project_id": project.pk, "use": use})
    return dataset


def _order_options(runs: Sequence[Run], ids: Sequence[uuid.UUID], use: Use, view: str) -> dict[str, Any]:
    named = ", ".join(run.name for run in runs[:3]) + ("…" if len(runs) > 3 else "")
    return {"use": use, "runs": named, "run_ids": [str(run.pk) for run in runs], "chosen": len(ids), "view": view[:500]}


def _parent_versions(runs: Sequence[Run], ids: Sequence[uuid.UUID]) -> list[dict[str, Any]]:
    """The dataset versions whose rows they played, each once."""
    found: dict[uuid.UUID, Dataset] = {}
    for run in runs:
        chosen = Rollout.objects.filter(run=run, pk__in=ids, row__isnull=False, held_out=False)
        for step, part in chosen.order_by().values_list("step", "part").distinct():
            source = dataset_of_step(run, step, part)
            if source is not None:
                found[source.pk] = source
    return [parent_of(source) for source in found.values()]
