"""Writing rollout sets: the row now, its files by a worker (``webapp.rewards.lab.building``)."""

from __future__ import annotations

import logging
import shutil
import uuid
from collections.abc import Collection

from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import QuerySet
from django.utils.translation import gettext as _

from webapp.common import work
from webapp.common.pages import clean_name
from webapp.people.teams.audit import audit
from webapp.people.teams.models import AuditAction, Project, User
from webapp.rewards.cases import cases_of
from webapp.rewards.lab.cache import cache
from webapp.rewards.lab.pasted import TEXT_NAME, conversations_of
from webapp.rewards.models import RolloutSet, SetKind, SetState
from webapp.runs.models import Run
from webapp.runs.rollouts.figures import groups_write
from webapp.runs.rollouts.models import Rollout, RolloutStatus

logger = logging.getLogger(__name__)
MAX_SETS = 200
KEEP_FREE_BYTES = 1 << 30


def rollout_set_create(
    *,
    project: Project,
    user: User | None,
    name: str,
    kind: str,
    run: Run | None = None,
    first_step: int | None = None,
    last_step: int | None = None,
    text: str = "",
    groups: Collection[tuple[int, int]] | None = None,
    found_by: str = "",
) -> RolloutSet:
    """Freeze a set of episodes: the row now, its files by a worker. Raises ``ValidationError`` by field.

    ``groups``: of a run these alone, each by step and number; ``found_by`` says in words how they were found.
    """
    if kind not in SetKind.values:
        raise ValidationError({"kind": _("Choose where the episodes come from.")})
    made = RolloutSet(
        id=uuid.uuid4(),
        project=project,
        created_by=user,
        name=clean_name(name),
        kind=kind,
        first_step=first_step,
        last_step=last_step,
        found_by=found_by[:500],
    )
    _check_room(project)
    if kind == SetKind.RUN:
        made.run, made.run_name = _checked_run(project, run, first_step, last_step)
        if groups is not None:
            groups_write(made.groups_path, groups)
    elif kind == SetKind.CASES and not cases_of(project).exists():
        raise ValidationError({"kind": _("This project has no reward test cases yet.")})
    elif kind == SetKind.PASTED:
        conversations_of(text)
        made.folder.mkdir(parents=True, mode=0o700)
        (made.folder / TEXT_NAME).write_text(text, encoding="utf-8", errors="replace")
    with transaction.atomic():
        made.save(force_insert=True)
        work.enqueue(made)
        audit(AuditAction.SET_ADDED, made, by=user)
    logger.info("rollout set made", extra={"set_id": made.pk, "project_id": project.pk, "kind": kind})
    return made


def _check_room(project: Project) -> None:
    if RolloutSet.objects.filter(project=project).count() >= MAX_SETS:
        raise ValidationError(_("This project has reached its limit of rollout sets. Delete one that is not needed."))
    if shutil.disk_usage(settings.DATA_DIR).free < KEEP_FREE_BYTES:
        raise ValidationError(_("The server's disk is nearly full, so no set was created."))


def _checked_run(project: Project, run: Run | None, first: int | None, last: int | None) -> tuple[Run, str]:
    if run is None or run.project_id != project.pk:
        raise ValidationError({"run": _("Choose a run of this project.")})
    if first is not None and last is not None and last < first:
        raise ValidationError({"last_step": _("The last step is before the first one.")})
    if not recorded_rollouts(run, first, last).exists():
        raise ValidationError({"run": _("There are no finished rollouts in these steps of the run.")})
    return run, run.name


def recorded_rollouts(run: Run, first: int | None, last: int | None) -> QuerySet[Rollout]:
    """The finished rollouts of some steps, of all attempts; not held-out ones, which no reward may be made to fit."""
    rows = Rollout.objects.filter(run=run, held_out=False).exclude(status=RolloutStatus.RUNNING)
    rows = rows if first is None else rows.filter(step__gte=first)
    return rows if last is None else rows.filter(step__lte=last)


def rollout_set_delete(*, rollout_set: RolloutSet) -> None:
    """Delete a set and its files; a worker that builds it gives up at its next report."""
    folder = rollout_set.folder
    cache.drop(rollout_set.pk)
    with transaction.atomic():
        audit(AuditAction.SET_DELETED, rollout_set)
        rollout_set.delete()
        transaction.on_commit(lambda: shutil.rmtree(folder, ignore_errors=True))


# --- Selectors ------------------------------------------------------------------------------------------------------
# Reading rollout sets.


def rollout_sets_of(project: Project) -> QuerySet[RolloutSet]:
    """All rollout sets of a project, newest first."""
    return RolloutSet.objects.filter(project=project).select_related("project", "run", "created_by")


def set_of_run(run: Run) -> RolloutSet | None:
    """The newest set of a run that can be used, of all groups of its steps."""
    return rollout_sets_of(run.project).filter(run=run, state=SetState.READY, found_by="").first()


def percent_of(rollout_set: RolloutSet) -> int:
    """How far the building has come, 0 to 100."""
    total = int(rollout_set.progress.get("total") or 0)
    return min(100, round(100 * int(rollout_set.progress.get("done") or 0) / total)) if total else 0
