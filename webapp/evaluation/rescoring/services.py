"""Ordering the scoring of recorded rollouts by a spec, and cancelling it."""

from __future__ import annotations

import hashlib
import json
import logging
import shutil
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.db.models import QuerySet
from django.db.models.functions import Now
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from training.config import RewardComponent
from training.errors import Boundary, TiltyardError
from training.rewards.lab import asks_others
from training.rewards.scoring import COMPONENTS, resolve, validate_components
from webapp.common import work
from webapp.common.text import in_words
from webapp.evaluation.rescoring.columns import UNSEEN, column_key, columns_of, unrecorded, wanting
from webapp.evaluation.rescoring.models import Rescoring, RescoringState
from webapp.people.teams.audit import audit
from webapp.people.teams.models import AuditAction, Project, User
from webapp.rewards.services import custom_refusal
from webapp.runs.config import common_components, config_of, title_of
from webapp.runs.models import Run
from webapp.runs.rollouts.models import RolloutStatus
from webapp.runs.rollouts.selectors import latest_rollouts

# --- Plans ----------------------------------------------------------------------------------------------------------
# The plan to score a run by a spec: which of its rollouts, which components, and which judges or models are asked.


class Plan(NamedTuple):
    """The components of a spec that a run has not recorded, and the rollouts that lack each of them."""

    run: Run
    own: list[RewardComponent]
    components: list[RewardComponent]
    wanting: dict[str, list[UUID]]

    @property
    def rollouts(self) -> list[UUID]:
        """Those that lack any of them, in order."""
        return list(dict.fromkeys(pk for found in self.wanting.values() for pk in found))


class Asked(NamedTuple):
    """A judge or a model, and how many times it may be asked at most: of a rollout that has no value yet, once."""

    name: str
    times: int


def plan_of(run: Run, components: Sequence[RewardComponent]) -> Plan:
    """The missing values of a run now. Without a readable config all values count as missing."""
    own = common_components(config_of(run))
    lacking = unrecorded(components, own)
    if not lacking:
        return Plan(run, own, [], {})
    rollouts = [
        pk for pk, status in latest_rollouts(run).values_list("pk", "status") if status != RolloutStatus.EXCLUDED
    ]
    columns = columns_of(run, lacking)
    found = {item.name: wanting(columns.get(column_key(item), UNSEEN).marks, rollouts) for item in lacking}
    return Plan(run, own, [item for item in lacking if found[item.name]], {k: v for k, v in found.items() if v})


def asked_by(wanted: Iterable[tuple[RewardComponent, int]]) -> list[Asked]:
    """The judges and models that these components would ask, each with its number of requests."""
    times: dict[str, int] = {}
    for item, rollouts in wanted:
        if rollouts and asks_others(item):
            times[judge_of(item)] = times.get(judge_of(item), 0) + rollouts
    return [Asked(name, count) for name, count in times.items()]


def asked_by_plans(plans: Iterable[Plan]) -> list[Asked]:
    """The judges and models that these plans would ask, each with its number of requests."""
    return asked_by((item, len(plan.wanting[item.name])) for plan in plans for item in plan.components)


def judge_of(component: RewardComponent) -> str:
    """The name of a judge or a model: the model that it asks, else the component's title."""
    if component.registered not in COMPONENTS:
        return component.registered
    _component, params = resolve(component)
    return str(getattr(params, "model", "")) or title_of(component)


# --- Selectors ------------------------------------------------------------------------------------------------------
# Reading the scoring of recorded rollouts.


def rescorings_of(project: Project) -> QuerySet[Rescoring]:
    """All that was asked for in a project, newest first."""
    return Rescoring.objects.filter(project=project).select_related("project__team", "created_by")


def newest_for(project: Project, runs: Sequence[UUID], components: Sequence[RewardComponent]) -> Rescoring | None:
    """The last request for these runs and this spec."""
    return rescorings_of(project).filter(digest=digest_of(runs, components)).first()


def digest_of(runs: Sequence[UUID], components: Sequence[RewardComponent]) -> str:
    """A SHA-256 that identifies these runs, in any order, under this spec."""
    about = [sorted(map(str, runs)), [item.model_dump(mode="json") for item in components]]
    return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()


def percent_of(rescoring: Rescoring) -> int:
    """Its progress, 0 to 100."""
    total = int(rescoring.progress.get("total") or 0)
    return min(100, round(100 * int(rescoring.progress.get("done") or 0) / total)) if total else 0


logger = logging.getLogger(__name__)
MAX_OPEN = 3
KEEP_FREE_BYTES = 1 << 30
UNCONFIRMED = "confirm"


def rescoring_create(
    *,
    project: Project,
    user: User | None,
    name: str,
    components: Sequence[RewardComponent],
    runs: Sequence[Run],
    confirmed: bool = False,
) -> Rescoring:
    """Have a worker compute what the runs have not recorded of a spec; one that is open already is returned.

    ``confirmed``: the caller knows that judges or models are asked. Raises ``ValidationError``, with the code
    ``confirm`` where that is not known.
    """
    digest = digest_of([run.pk for run in runs], components)
    if (known := _open_rescoring(project, digest)) is not None:
        return known
    _check_plans(project, [plan_of(run, components) for run in runs], confirmed)
    rescoring = Rescoring(
        project=project,
        name=name[:200],
        components=[item.model_dump(mode="json") for item in components],
        runs=[str(run.pk) for run in runs],
        digest=digest,
        created_by=user,
    )
    try:
        with transaction.atomic():
            rescoring.save(force_insert=True)
            work.enqueue(rescoring)
            audit(AuditAction.RESCORING_BEGUN, rescoring, by=user)
    except IntegrityError:  # the same was asked for meanwhile
        if (known := _open_rescoring(project, digest)) is None:
            raise
        return known
    logger.info("rescoring asked for", extra={"rescoring_id": rescoring.pk, "project_id": project.pk})
    return rescoring


def _open_rescoring(project: Project, digest: str) -> Rescoring | None:
    return rescorings_of(project).filter(digest=digest, state__in=Rescoring.OPEN).first()


def _check_plans(project: Project, plans: Sequence[Plan], confirmed: bool) -> None:
    wanted = list({item.name: item for plan in plans for item in plan.components}.values())
    if not wanted:
        raise ValidationError(
            _("All values of this spec are known already; nothing is left to score."), code="conflict"
        )
    if refusal := refusal_of(project, wanted):
        raise ValidationError(refusal)
    asked = asked_by_plans(plans)
    if asked and not confirmed:
        raise ValidationError(_("%(asks)s Confirm that you want this.") % {"asks": asks_text(asked)}, code=UNCONFIRMED)
    if rescorings_of(project).filter(state__in=Rescoring.OPEN).count() >= MAX_OPEN:
        raise ValidationError(_("Rollouts of this project are being scored already; wait until one of these is done."))
    if shutil.disk_usage(settings.DATA_DIR).free < KEEP_FREE_BYTES:
        raise ValidationError(_("The server's disk is nearly full, so nothing was scored."))


def refusal_of(project: Project, components: Sequence[RewardComponent]) -> str:
    """Why these components cannot be computed here; empty where they can."""
    # Their gates may be recorded, and so not be among them.
    problems = validate_components([item.model_copy(update={"gate": None}) for item in components])
    return " ".join(map(in_words, problems)) or custom_refusal(project, components)


def asks_text(asked: Sequence[Asked]) -> str:
    """A sentence on which judges and models the scoring asks, and how often."""
    return " ".join(
        ngettext(
            "It asks %(judge)s up to %(n)s time, which takes time and may cost money.",
            "It asks %(judge)s up to %(n)s times, which takes time and may cost money.",
            item.times,
        )
        % {"judge": item.name, "n": f"{item.times:,}"}
        for item in asked
    )


def rescoring_cancel(*, rescoring: Rescoring, user: User | None) -> bool:
    """Cancel it; its worker gives up at its next report. False where it has ended already."""
    with transaction.atomic():
        open_rows = Rescoring.objects.filter(pk=rescoring.pk, state__in=Rescoring.OPEN)
        if not open_rows.update(state=RescoringState.CANCELLED, token="", progress={}, ended_at=Now()):
            return False
        audit(AuditAction.RESCORING_CANCELLED, rescoring, by=user)
        folder = rescoring.folder
        transaction.on_commit(lambda: shutil.rmtree(folder, ignore_errors=True))
    rescoring.refresh_from_db()
    return True


def rescoring_failed(rescoring: Rescoring, error: TiltyardError) -> dict[str, Any]:
    """The columns of a rescoring that failed; what it had computed until then is kept."""
    shutil.rmtree(rescoring.folder, ignore_errors=True)
    info = error.info.model_copy(update={"code": "rescoring_failed", "boundary": Boundary.REWARD})
    return {"state": RescoringState.FAILED, "error": info.model_dump(mode="json"), "ended_at": Now()}
