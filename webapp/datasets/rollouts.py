"""Asking for a dataset of rollouts: conversations of chosen ones for SFT, the tasks that they played, or preference
pairs."""

from __future__ import annotations

import json
import logging
import math
import shutil
import uuid
from collections.abc import Collection, Sequence
from typing import Any

from django.conf import settings
from django.core.exceptions import ValidationError
from django.db.models import Max, Min
from django.utils.translation import gettext as _

from training.errors import ConfigError
from training.exports import require_pairs
from webapp.common.pages import clean_name
from webapp.common.storage import dataset_dir
from webapp.datasets.models import Dataset, DatasetState
from webapp.datasets.operations import parent_of
from webapp.datasets.recorded import PAIRS, ROLLOUTS, Use, chosen_path, dataset_of_step, groups_path, journals_of
from webapp.datasets.services import KEEP_FREE_BYTES, version_insert
from webapp.people.teams.models import Project, User
from webapp.runs.config import config_of
from webapp.runs.models import Run, RunState
from webapp.runs.rollouts.figures import groups_write
from webapp.runs.rollouts.models import Rollout
from webapp.runs.states import TERMINAL

# --- Chosen rollouts ------------------------------------------------------------------------------------------------
# Which ones is decided when it is asked for: their ids are stored with the dataset, so that later steps of a run change
# nothing. Rollouts on held-out tasks are left out of both kinds: what is learned from or tuned on is no longer held
# out.

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


# --- Pairs ----------------------------------------------------------------------------------------------------------
# Preference pairs of a run's rollouts as a dataset: the best against the worst of each task, for DPO.
#
# Asked for like any other dataset that is made here: the version is saved at once, and the worker that checks it makes
# its file first, from the journals of the run's attempts (``training.exports.pairs``).

MAX_GAP = 1e6
MAX_GROUPS = 200_000
BOUNDS = (0.05, 0.1, 0.25, 0.5, 1.0)
"""Gaps for which pages say how many groups differ by at least this much."""


def pairs_problem(run: Run) -> str:
    """A sentence on why no pairs can be made of a run; empty where they can."""
    config = config_of(run)
    if run.state not in TERMINAL and run.state != RunState.PAUSED:
        return _("The run has not ended yet; pairs can be made from it afterwards.")
    if config is None or not journals_of(run):
        return _("The rollouts of this run were not recorded here, so no pairs can be made from them.")
    try:
        require_pairs(config)
    except ConfigError as exc:
        dialect = {"dialect": config.rollout.dialect}
        if exc.option == "rollout.dialect":
            return _("Calls in the dialect %(dialect)s are not recorded as they were written.") % dialect
        return _("This run played no rollouts.")
    return ""


def pairs_order(
    *,
    run: Run,
    user: User | None,
    name: str,
    min_gap: float,
    groups: Collection[tuple[int, int]] | None = None,
    view: str = "",
) -> Dataset:
    """Ask for the pairs of a run's rollouts. Raises ``ValidationError`` by field or with a sentence.

    ``groups``: of these alone, each by step and number; ``view`` says in words how they were found.
    """
    if problem := pairs_problem(run):
        raise ValidationError(problem, code="conflict")
    if not (math.isfinite(min_gap) and 0 < min_gap <= MAX_GAP):
        raise ValidationError({"min_gap": _("Give a difference above 0.")})
    waiting = Dataset.objects.filter(project=run.project_id, state=DatasetState.CHECKING, lineage__operation=PAIRS)
    if waiting.count() >= MAX_OPEN:
        raise ValidationError(_("Datasets are being created in this project already; wait until one is done."))
    size = sum(path.stat().st_size for path in journals_of(run))
    if shutil.disk_usage(settings.DATA_DIR).free < size + KEEP_FREE_BYTES:
        raise ValidationError(_("The server's disk is nearly full, so nothing was created."))
    chosen = {} if groups is None else {"chosen": len(groups), "view": view[:500]}
    dataset = Dataset(
        id=uuid.uuid4(),
        project=run.project,
        name=clean_name(name),
        file_name="pairs.jsonl",
        created_by=user,
        reading={"format": "preference"},
        lineage={
            "operation": PAIRS,
            "options": {"run": run.name, "run_id": str(run.pk), "min_gap": min_gap, **chosen},
            "parents": [],
        },
    )
    try:
        if groups is not None:
            groups_write(groups_path(dataset), groups)
        version_insert(dataset)
    except BaseException:
        shutil.rmtree(dataset_dir(dataset.id), ignore_errors=True)
        raise
    return dataset


def gaps_of(run: Run) -> list[float]:
    """The best minus the worst reward in each group of the run that is learned from or compared."""
    known = Rollout.objects.filter(run=run, held_out=False, reward__isnull=False, parse_errors=0)
    groups = known.values("attempt", "step", "group").annotate(gap=Max("reward") - Min("reward"))
    return [gap for gap in groups.order_by().values_list("gap", flat=True)[:MAX_GROUPS] if math.isfinite(gap)]


def counts(gaps: Sequence[float], bounds: Sequence[float]) -> list[dict[str, Any]]:
    """How many groups differ by at least each bound."""
    return [{"gap": bound, "groups": sum(gap >= bound for gap in gaps)} for bound in bounds]
