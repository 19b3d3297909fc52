"""Writing rollout sets.

1. ``rollout_set_create`` saves the row (state ``building``) and sends a message, which is only a hint.
2. ``set_claim`` takes the set for one worker by writing a fresh token into ``progress``; while that worker reports at
   least once in ``LOST_AFTER_S``, nobody else can claim it.
3. Progress and the outcome are written only where state is still ``building`` and the token is still ours.
4. A set whose worker fell silent is found by ``lost_sets`` and sent again.
"""

from __future__ import annotations

import logging
import secrets
import shutil
import time
import uuid

from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import QuerySet
from django.utils.translation import gettext as _

from training.errors import Boundary, ErrorInfo
from webapp.pages import clean_name
from webapp.rewards.cases import cases_of
from webapp.rewards.lab.cache import cache
from webapp.rewards.lab.pasted import TEXT_NAME, conversations_of
from webapp.rewards.lab.selectors import LOST_AFTER_S
from webapp.rewards.models import RolloutSet, SetKind, SetState
from webapp.rollouts.models import Rollout, RolloutStatus
from webapp.runs.models import Run
from webapp.teams.models import Project, User

logger = logging.getLogger(__name__)
MAX_SETS = 200
KEEP_FREE_BYTES = 1 << 30


class SetLost(Exception):
    """Somebody else builds the set now, or it is gone."""


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
) -> RolloutSet:
    """Freeze a set of episodes: the row now, its files by a worker. Raises ``ValidationError`` by field."""
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
    )
    _check_room(project)
    if kind == SetKind.RUN:
        made.run, made.run_name = _checked_run(project, run, first_step, last_step)
    elif kind == SetKind.CASES and not cases_of(project).exists():
        raise ValidationError({"kind": _("This project has no reward test cases yet.")})
    elif kind == SetKind.PASTED:
        conversations_of(text)
        made.folder.mkdir(parents=True, mode=0o700)
        (made.folder / TEXT_NAME).write_text(text, encoding="utf-8", errors="replace")
    with transaction.atomic():
        made.save(force_insert=True)
        transaction.on_commit(lambda: set_enqueue(made.id))
    logger.info("rollout set made", extra={"set_id": made.pk, "project_id": project.pk, "kind": kind})
    return made


def _check_room(project: Project) -> None:
    if RolloutSet.objects.filter(project=project).count() >= MAX_SETS:
        raise ValidationError(_("This project has as many rollout sets as it may. Delete one that is not needed."))
    if shutil.disk_usage(settings.DATA_DIR).free < KEEP_FREE_BYTES:
        raise ValidationError(_("The server's disk is nearly full, so no set was made."))


def _checked_run(project: Project, run: Run | None, first: int | None, last: int | None) -> tuple[Run, str]:
    if run is None or run.project_id != project.pk:
        raise ValidationError({"run": _("Choose a run of this project.")})
    if first is not None and last is not None and last < first:
        raise ValidationError({"last_step": _("The last step is before the first one.")})
    if not recorded_rollouts(run, first, last).exists():
        raise ValidationError({"run": _("There are no finished rollouts in these steps of the run.")})
    return run, run.name


def recorded_rollouts(run: Run, first: int | None, last: int | None) -> QuerySet[Rollout]:
    """The finished rollouts of some steps, of all attempts."""
    rows = Rollout.objects.filter(run=run).exclude(status=RolloutStatus.RUNNING)
    rows = rows if first is None else rows.filter(step__gte=first)
    return rows if last is None else rows.filter(step__lte=last)


def rollout_set_delete(*, rollout_set: RolloutSet) -> None:
    """Delete a set and its files; a worker that builds it gives up at its next report."""
    folder = rollout_set.folder
    cache.drop(rollout_set.pk)
    with transaction.atomic():
        rollout_set.delete()
        transaction.on_commit(lambda: shutil.rmtree(folder, ignore_errors=True))


def set_enqueue(set_id: uuid.UUID) -> None:
    """Tell a worker. A broker that is down costs only time: lost sets are found again."""
    from kombu.exceptions import OperationalError

    from webapp.rewards.lab.tasks import build

    try:
        build.apply_async((str(set_id),), retry=False)
    except (OperationalError, OSError) as exc:
        logger.warning("set not sent: %s", exc, extra={"set_id": set_id})


def set_claim(*, set_id: uuid.UUID | str) -> RolloutSet | None:
    """Take a set for this worker; ``None`` when there is nothing to do or somebody is at it."""
    with transaction.atomic():
        found = RolloutSet.objects.select_for_update().filter(pk=set_id, state=SetState.BUILDING).first()
        if found is None:
            return None
        if found.progress.get("token") and time.time() - float(found.progress.get("at", 0)) < LOST_AFTER_S:
            return None
        found.progress = {"token": secrets.token_hex(8), "at": time.time(), "done": 0, "total": 0}
        found.save(update_fields=["progress"])
    return found


def ours(rollout_set: RolloutSet, token: str) -> QuerySet[RolloutSet]:
    """The set's row as long as this worker may write it."""
    return RolloutSet.objects.filter(pk=rollout_set.pk, state=SetState.BUILDING, progress__token=token)


def set_fail(*, rollout_set: RolloutSet, token: str, message: str) -> None:
    """The set could not be built."""
    error = ErrorInfo(code="set_unbuildable", boundary=Boundary.DATA, message=message)
    ours(rollout_set, token).update(state=SetState.FAILED, error=error.model_dump(mode="json"), progress={})
