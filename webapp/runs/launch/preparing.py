"""Making presets ready in the background, and launching them if asked: nobody has to keep the page open.

A ``Preparation`` is looked at every few seconds until it ends, and each look makes what can be made by then. One worker
at a time has it, so that no check runs twice; two would do no harm, because what is there is found, and a run carries
the preparation's id as its idempotency key.
"""

from __future__ import annotations

import logging
import time
from datetime import timedelta
from typing import Any, NamedTuple, cast
from uuid import UUID

from django.contrib.auth.models import AnonymousUser
from django.core.exceptions import PermissionDenied, ValidationError
from django.db import OperationalError
from django.db.models import Q, QuerySet
from django.db.models.functions import Now
from django.http import Http404
from django.urls import reverse
from django.utils import timezone, translation
from django.utils.http import urlencode
from django.utils.translation import gettext as _

from training.errors import ConfigError
from training.presets import Preset, Size, presets
from webapp.runs.engine.services import run_create
from webapp.runs.launch.forms import suggested_name
from webapp.runs.launch.needs import Situation, filled, situation
from webapp.runs.launch.needs_make import needs_make
from webapp.runs.launch.preflight import preflight
from webapp.runs.launch.preset_text import in_language
from webapp.runs.models import Preparation, PreparationState
from webapp.teams.access import project_for
from webapp.teams.models import Project, Role, User

logger = logging.getLogger(__name__)
OPEN, DONE, FAILED, DROPPED = (
    PreparationState.OPEN,
    PreparationState.DONE,
    PreparationState.FAILED,
    PreparationState.DROPPED,
)
LONGEST = timedelta(hours=24)  # a warm-up of the full size takes hours
BUSY = timedelta(minutes=2)  # longer than the check before a launch may take
LOOK_S = 120.0  # with one more check after it still below the task's own limit
SHOWN = 20
SHOWN_FOR = timedelta(days=2)


class _Failed(Exception):
    """Why a preparation cannot go on, in a sentence."""


def preparation_open(*, project: Project, user: User, preset: Preset, size: Size, launch: bool) -> Preparation:
    """Begin, or join what is under way; what can be made now is made first. Raises ``ValidationError``."""
    needs_make(project=project, user=user, preset=preset, size=size, again=True)
    asked = {"launch": launch, "created_by": user, "language": translation.get_language() or ""}
    same: dict[str, Any] = {"project": project, "preset": preset.id, "size": size}
    Preparation.objects.filter(**same, state=FAILED).update(state=DROPPED)
    item, _created = Preparation.objects.update_or_create(**same, state=OPEN, defaults=asked)
    if not launch and situation(project, preset, size).settled:
        _end(item, DONE)
        item.refresh_from_db()
    return item


def preparation_drop(*, item: Preparation) -> None:
    """Do not go on, or do not show the failure any more. What was made stays."""
    Preparation.objects.filter(pk=item.pk, state__in=(OPEN, FAILED)).update(state=DROPPED)
    item.refresh_from_db()


def preparations_advance() -> None:
    """Look at all that are open, in any order and not for too long: the next look is in a few seconds."""
    began = time.monotonic()
    for item in Preparation.objects.filter(state=OPEN).select_related("project__team", "created_by").order_by("?"):
        if time.monotonic() - began < LOOK_S:
            preparation_advance(item)


def preparation_advance(item: Preparation) -> None:
    """Make what can be made now; launch once all of it is there. A failure ends it with a sentence."""
    mine = Preparation.objects.filter(pk=item.pk, state=OPEN)
    if not mine.filter(Q(busy_until=None) | Q(busy_until__lt=Now())).update(busy_until=Now() + BUSY):
        return
    with translation.override(item.language or None):
        try:
            preset, size, user = _asked(item)
            needs_make(project=item.project, user=user, preset=preset, size=size)
            now = situation(item.project, preset, size)
            _check(item, now)
            if now.settled:
                _finish(item, user, preset, size, now)
        except (ValidationError, ConfigError, _Failed) as exc:
            _end(item, FAILED, note=" ".join(exc.messages) if isinstance(exc, ValidationError) else str(exc))
        except OperationalError:  # the database is away; a later look goes on
            raise
        except Exception:  # one that breaks must not keep the others waiting
            logger.exception("preparation", extra={"preparation": str(item.pk)})
            _end(item, FAILED, note=_("An unexpected failure inside Tiltyard."))
    mine.update(busy_until=None)


def preparation_shown(project: Project, preset: Preset, size: Size) -> Preparation | None:
    """The newest one of a preset that is open or failed."""
    return _of(project).filter(preset=preset.id, size=size, state__in=(OPEN, FAILED)).first()


def preparation_ended(project: Project, watched: str) -> Preparation | None:
    """The one that a page watches, once it is done."""
    try:
        return _of(project).filter(pk=UUID(watched), state=DONE).first()
    except ValueError:
        return None


def preset_page(project: Project, preset: str, size: str) -> str:
    """Where a preset in one size is chosen."""
    return f"{reverse('run-new', args=[project.slug])}?{urlencode({'preset': preset, 'size': size})}"


class PreparationLine(NamedTuple):
    """A preparation as the list of runs tells it."""

    item: Preparation
    title: str
    url: str


def preparation_lines(project: Project) -> list[PreparationLine]:
    """All that are open, and what failed lately."""
    since = timezone.now() - SHOWN_FOR
    opened, failed = _of(project).filter(state=OPEN), _of(project).filter(state=FAILED, created_at__gt=since)
    known = presets()
    return [
        PreparationLine(
            item,
            in_language(known[item.preset].title) if item.preset in known else item.preset,
            preset_page(project, item.preset, item.size),
        )
        for item in [*opened[:SHOWN], *failed[:SHOWN]]
    ]


def _of(project: Project) -> QuerySet[Preparation]:
    return Preparation.objects.filter(project=project).select_related("created_by", "run")


def _asked(item: Preparation) -> tuple[Preset, Size, User]:
    """What was asked for, if whoever asked may still have it."""
    preset, user = presets().get(item.preset), item.created_by
    if preset is None or item.size not in preset.sizes:
        raise _Failed(_("There is no such preset."))
    try:
        project_for(user or AnonymousUser(), item.project.slug, need=Role.EDITOR)
    except (Http404, PermissionDenied) as exc:
        raise _Failed(_("Whoever asked for this may no longer change the project.")) from exc
    size: Size = "test" if item.size == "test" else "full"
    return preset, size, cast(User, user)


def _check(item: Preparation, now: Situation) -> None:
    for need in now.needs:
        if need.state == "failed":
            raise _Failed(f"{need.label}: {need.note or need.state_label}")
    if timezone.now() - item.created_at > LONGEST:
        raise _Failed(_("It was not ready within a day."))


def _finish(item: Preparation, user: User, preset: Preset, size: Size, now: Situation) -> None:
    if not item.launch:
        _end(item, DONE)
        return
    config = filled(preset, size, now)
    for check in preflight(item.project, config).checks:
        if not check.ok:
            raise _Failed(_("All of it is there, but the check before the launch says: %s") % check.sentence)
    if not Preparation.objects.filter(pk=item.pk, state=OPEN, launch=True).exists():
        return  # changed their mind while the check ran
    name = suggested_name(item.project, config, stem=preset.run_name(size))
    run = run_create(project=item.project, user=user, name=name, config=config, idempotency_key=f"preset:{item.pk}")
    _end(item, DONE, run=run)


def _end(item: Preparation, state: PreparationState, **fields: Any) -> None:
    Preparation.objects.filter(pk=item.pk, state=OPEN).update(state=state, busy_until=None, **fields)
