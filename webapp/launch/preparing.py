"""Making presets ready in the background, and launching them if asked: the page need not stay open.

A ``Preparation`` is worked on every few seconds until it ends (``webapp.common.work``), and each time what can be made
by then is made. Two workers at once would do no harm: what is there is found, and a run has the preparation's id as its
idempotency key.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any, NamedTuple, cast
from uuid import UUID

from django.contrib.auth.models import AnonymousUser
from django.core.exceptions import PermissionDenied
from django.db.models import Q, QuerySet
from django.http import Http404
from django.urls import reverse
from django.utils import timezone, translation
from django.utils.http import urlencode
from django.utils.translation import gettext as _

from training.errors import DataError, TiltyardError
from training.presets import Preset, Size, presets
from webapp.common import work
from webapp.common.text import in_words
from webapp.common.work import Claim
from webapp.engine.services import run_create
from webapp.launch.forms import suggested_name
from webapp.launch.needs import Situation, filled, needs_make, runs_of, situation
from webapp.launch.preflight import preflight
from webapp.launch.yaml_text import in_language
from webapp.people.teams.access import project_for
from webapp.people.teams.audit import audit
from webapp.people.teams.models import AuditAction, Project, Role, User
from webapp.runs.models import Preparation, PreparationState, Run
from webapp.runs.states import RunState

OPEN, DONE, FAILED, DROPPED = (
    PreparationState.OPEN,
    PreparationState.DONE,
    PreparationState.FAILED,
    PreparationState.DROPPED,
)
PREPARED_LIMIT_S = 150.0  # below LIMIT_S of Preparation
LONGEST = timedelta(hours=24)  # a warm-up of the full size takes hours
SHOWN = 20
SHOWN_FOR = timedelta(days=2)


def preparation_open(*, project: Project, user: User, preset: Preset, size: Size, launch: bool) -> Preparation:
    """Begin, or join what is under way; what can be made now is made first. Raises ``ValidationError``."""
    needs_make(project=project, user=user, preset=preset, size=size, again=True)
    asked = {"launch": launch, "created_by": user, "language": translation.get_language() or ""}
    same: dict[str, Any] = {"project": project, "preset": preset.id, "size": size}
    Preparation.objects.filter(**same, state=FAILED).update(state=DROPPED)
    item, _created = Preparation.objects.update_or_create(**same, state=OPEN, defaults=asked)
    audit(AuditAction.PRESET_BEGUN, item, by=user)
    if not launch and situation(project, preset, size).settled:
        Preparation.objects.filter(pk=item.pk, state=OPEN).update(state=DONE)
        item.refresh_from_db()
    else:
        work.enqueue(item)
    return item


def preparation_drop(*, item: Preparation) -> None:
    """Stop preparing, or do not show the failure any more. What was made stays."""
    if Preparation.objects.filter(pk=item.pk, state__in=(OPEN, FAILED)).update(state=DROPPED):
        audit(AuditAction.PRESET_DROPPED, item)
    item.refresh_from_db()


def preparation_advance(claim: Claim[Preparation]) -> None:
    """Make what can be made now; launch once all of it is there, else try again in a few seconds."""
    item = claim.item
    with translation.override(item.language or None):
        preset, size, user = _asked_preset(item)
        needs_make(project=item.project, user=user, preset=preset, size=size)
        now = situation(item.project, preset, size)
        _raise_if_failed(item, now)
        if not now.settled:
            claim.wait()
        elif item.launch:
            _launch_prepared(claim, user, preset, size, now)
        else:
            claim.finish(state=DONE)


def preparation_failed(item: Preparation, error: TiltyardError) -> dict[str, Any]:
    """The columns of a preparation that cannot continue."""
    with translation.override(item.language or None):
        return {"state": FAILED, "note": " ".join(in_words(text) for text in (error.message, error.hint) if text)}


def preparation_shown(project: Project, preset: Preset, size: Size) -> Preparation | None:
    """The newest one of a preset that is open or failed."""
    return _preparations_of(project).filter(preset=preset.id, size=size, state__in=(OPEN, FAILED)).first()


def preparation_ended(project: Project, watched: str) -> Preparation | None:
    """The one that a page watches, once it is done."""
    try:
        return _preparations_of(project).filter(pk=UUID(watched), state=DONE).first()
    except ValueError:
        return None


def preset_page(project: Project, preset: str, size: str) -> str:
    """Where a preset in one size is chosen."""
    return f"{reverse('run-new', args=[project.slug])}?{urlencode({'preset': preset, 'size': size})}"


class PreparationLine(NamedTuple):
    """A preparation as the list of runs shows it."""

    item: Preparation
    title: str
    url: str


def preparation_lines(project: Project) -> list[PreparationLine]:
    """All that are open, and what failed lately."""
    since = timezone.now() - SHOWN_FOR
    found = _preparations_of(project).filter(Q(state=OPEN) | Q(state=FAILED, created_at__gt=since))
    lines = sorted(found[: 2 * SHOWN], key=lambda item: item.state == FAILED)  # open ones first
    known = presets()
    return [
        PreparationLine(
            item,
            in_language(known[item.preset].title) if item.preset in known else item.preset,
            preset_page(project, item.preset, item.size),
        )
        for item in lines
        if item.state == OPEN or not _is_settled(item)
    ]


def _is_settled(item: Preparation) -> bool:
    """Whether its goal was reached since: the preset was prepared again, or a run of it launched."""
    later = Preparation.objects.filter(project=item.project, preset=item.preset, size=item.size, state__in=(OPEN, DONE))
    if later.filter(created_at__gt=item.created_at).exists():
        return True
    preset = presets().get(item.preset)
    size = preset.size_named(item.size) if preset is not None else None
    ran = runs_of(item.project, preset, size) if preset is not None and size is not None else Run.objects.none()
    return ran.filter(created_at__gt=item.created_at).exclude(state=RunState.DRAFT).exists()


def _preparations_of(project: Project) -> QuerySet[Preparation]:
    return Preparation.objects.filter(project=project).select_related("created_by", "run")


def _asked_preset(item: Preparation) -> tuple[Preset, Size, User]:
    """Preset, size and person. Raises ``DataError`` if the preset is gone, or the person may not edit any more."""
    preset, user = presets().get(item.preset), item.created_by
    size = preset.size_named(item.size) if preset is not None else None
    if preset is None or size is None:
        raise DataError(_("There is no such preset."))
    try:
        project_for(user or AnonymousUser(), item.project.slug, need=Role.EDITOR)
    except (Http404, PermissionDenied) as exc:
        raise DataError(_("The person who asked for this may no longer change the project.")) from exc
    return preset, size, cast(User, user)


def _raise_if_failed(item: Preparation, now: Situation) -> None:
    for need in now.needs:
        if need.state == "failed":
            raise DataError(f"{need.label}: {need.note or need.state_label}")
    if timezone.now() - item.created_at > LONGEST:
        raise DataError(_("It was not ready within a day."))


def _launch_prepared(claim: Claim[Preparation], user: User, preset: Preset, size: Size, now: Situation) -> None:
    item, config = claim.item, filled(preset, size, now)
    for check in preflight(item.project, config, limit_s=PREPARED_LIMIT_S).checks:
        if not check.ok and not check.remark:
            raise DataError(_("Everything is ready, but the check before the launch reports: %s") % check.sentence)
    name = suggested_name(item.project, config, stem=preset.run_name(size))
    with claim.held():  # a preparation that was dropped while the check ran launches nothing
        key = f"preset:{item.pk}"
        run = run_create(project=item.project, user=user, name=name, config=config, idempotency_key=key)
        claim.finish(state=DONE, run=run)
