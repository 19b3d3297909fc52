"""What people write on runs: tags, notes, the archive, and each one's own stars."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import F, Func, QuerySet
from django.db.models.functions import Now
from django.utils.translation import gettext as _

from webapp.people.teams.audit import audit
from webapp.people.teams.models import AuditAction, User
from webapp.runs.models import Run, RunStar
from webapp.runs.states import TERMINAL, RunState

MOST, LONGEST = 10, 30
_ONE = re.compile(rf"[\w][\w.:/+-]{{0,{LONGEST - 1}}}")
_BETWEEN = re.compile(r"[\s,;，、；]+")


def tags_of(given: str | Iterable[str]) -> list[str]:
    """A typed text, or a list, as tags: small letters, each once, in their order.

    Raises ``ValidationError`` for the field ``tags`` where one is not a tag.
    """
    parts = _BETWEEN.split(given) if isinstance(given, str) else [part.strip() for part in given]
    found = list(dict.fromkeys(part.lower() for part in parts if part))
    for tag in found:
        if not _ONE.fullmatch(tag):
            raise ValidationError({"tags": _not_a_tag(tag)})
    return found


def checked(tags: list[str]) -> list[str]:
    """The tags of one run. Raises ``ValidationError`` for the field ``tags`` where they are too many."""
    if len(tags) > MOST:
        raise ValidationError({"tags": _("A run has at most %(n)d tags.") % {"n": MOST}})
    return tags


def _not_a_tag(tag: str) -> str:
    return _("“%(tag)s” cannot be a tag: use letters, digits and . : / + - _, at most %(n)d characters.") % {
        "tag": tag[: LONGEST + 10],
        "n": LONGEST,
    }


def tags_of_rows(rows: QuerySet[Run]) -> list[str]:
    """Every tag of these runs, by name."""
    tags = (
        rows.exclude(tags=[]).order_by().annotate(one=Func(F("tags"), function="unnest")).values_list("one", flat=True)
    )
    return sorted(set(tags.distinct()))


NOTES_MAX = 4000
ARCHIVABLE = TERMINAL | {RunState.DRAFT}


class Archived(NamedTuple):
    """The result of archiving runs; ``active`` ones stay in the list."""

    done: int
    active: int


def run_label(*, run: Run, user: User, tags: str | Iterable[str] | None = None, notes: str | None = None) -> Run:
    """Give a run these tags and notes; what is ``None`` stays. Raises ``ValidationError``."""
    changes: dict[str, object] = {}
    if tags is not None:
        changes["tags"] = checked(tags_of(tags))
    if notes is not None:
        changes["notes"] = _clean_notes(notes)
    changes = {name: value for name, value in changes.items() if value != getattr(run, name)}
    if changes:
        with transaction.atomic():
            Run.objects.filter(pk=run.pk).update(**changes)
            audit(AuditAction.RUN_LABELLED, run, by=user)
        for name, value in changes.items():
            setattr(run, name, value)
    return run


def _clean_notes(text: str) -> str:
    text = text.replace("\r\n", "\n").replace("\x00", "").strip()
    if len(text) > NOTES_MAX:
        raise ValidationError({"notes": _("Notes have at most %(n)d characters.") % {"n": NOTES_MAX}})
    return text


def runs_tag(*, runs: Sequence[Run], user: User, add: str | Iterable[str], remove: str | Iterable[str]) -> int:
    """Add tags to runs and take others from them, all or none; returns how many changed. Raises ``ValidationError``."""
    more, less = tags_of(add), set(tags_of(remove))
    changed = 0
    with transaction.atomic():
        # In one order, so that two requests never wait for each other's runs.
        for run in Run.objects.select_for_update().filter(pk__in=[run.pk for run in runs]).order_by("pk"):
            tags = [tag for tag in dict.fromkeys([*run.tags, *more]) if tag not in less]
            if tags == run.tags:
                continue
            try:
                run.tags = checked(tags)
            except ValidationError as exc:
                words = {"name": run.name, "why": " ".join(exc.messages)}
                raise ValidationError({"tags": _("%(name)s: %(why)s") % words}) from exc
            run.save(update_fields=["tags"])
            audit(AuditAction.RUN_LABELLED, run, by=user)
            changed += 1
    return changed


def runs_archive(*, runs: Sequence[Run], user: User, on: bool = True) -> Archived:
    """Hide runs from the list, or show them again. A run that may still change by itself is not hidden."""
    done = 0
    for run in runs:
        with transaction.atomic():
            rows = Run.objects.filter(pk=run.pk, archived_at__isnull=on)
            rows = rows.filter(state__in=ARCHIVABLE) if on else rows
            if rows.update(archived_at=Now() if on else None):
                audit(AuditAction.RUN_ARCHIVED if on else AuditAction.RUN_RESTORED, run, by=user)
                done += 1
    return Archived(done, sum(on and run.state not in ARCHIVABLE for run in runs))


def run_star(*, run: Run, user: User, on: bool) -> None:
    """Put a person's star on a run, or take it away."""
    if on:
        RunStar.objects.get_or_create(run=run, user=user)
    else:
        RunStar.objects.filter(run=run, user=user).delete()
