"""The rules of a project: when an advisory opens, and what it causes besides being shown."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils.translation import gettext as _
from pydantic import ValidationError as ShapeError

from training.doctor import RULES, DoctorOptions
from training.words import option_of
from webapp.common.fields import error_sentence
from webapp.people.teams.audit import audit
from webapp.people.teams.models import AuditAction, Project, User
from webapp.runs.advisories.models import DoctorRules, Reaction

REACTION = "reaction-"
"""The prefix of a reaction's form field and of its errors; the advisory's code follows."""


class Rules(NamedTuple):
    """The thresholds of a project, and its reactions by an advisory's code; the others are ``NOTIFY``."""

    options: DoctorOptions
    reactions: dict[str, Reaction]
    resumes: bool = True

    def reaction(self, code: str) -> Reaction:
        """What follows from an advisory."""
        return self.reactions.get(code, Reaction.NOTIFY)


def rules_of(project: Project) -> Rules:
    """The rules of a project; a stored value that this version does not know is replaced by its default."""
    row = DoctorRules.objects.filter(project=project).first()
    return _rules_of_row(row) if row is not None else Rules(DoctorOptions(), {})


def _rules_of_row(row: DoctorRules) -> Rules:
    options = DoctorOptions()
    for name, value in row.thresholds.items():
        with suppress(ShapeError, ValueError):
            setattr(options, name, value)
    known = {code: value for code, value in row.reactions.items() if code in RULES and value in Reaction.values}
    return Rules(options, {code: Reaction(value) for code, value in known.items()}, row.resumes)


def rules_change(
    *,
    project: Project,
    user: User,
    thresholds: Mapping[str, float | None],
    reactions: Mapping[str, str],
    resumes: bool | None = None,
) -> Rules:
    """Change the rules that are named; ``None`` and ``notify`` are the defaults. An unchanged value leaves no audit
    row.

    ``resumes`` stays as it is where it is ``None``.

    Raises ``ValidationError`` by threshold, or by ``reaction-<code>``.
    """
    with transaction.atomic():
        # Locked: of two people neither may overwrite the other's change.
        row, made = DoctorRules.objects.select_for_update().get_or_create(project=project)
        before = (row.thresholds, row.reactions, row.resumes)
        row.thresholds = _changed_thresholds(_rules_of_row(row).options, thresholds)
        row.reactions = _changed_reactions(_rules_of_row(row).reactions, reactions)
        row.resumes = row.resumes if resumes is None else resumes
        if (row.thresholds, row.reactions, row.resumes) != before:
            row.changed_by = user
            row.save(update_fields=["thresholds", "reactions", "resumes", "changed_by", "changed_at"])
            audit(AuditAction.DOCTOR_CHANGED, project, by=user)
        elif made:
            row.delete()
    return _rules_of_row(row)


def _changed_thresholds(now: DoctorOptions, changed: Mapping[str, float | None]) -> dict[str, Any]:
    """The thresholds that differ from the defaults. Raises ``ValidationError``."""
    fresh = DoctorOptions()
    given = {name: getattr(fresh, name, None) if value is None else value for name, value in changed.items()}
    try:
        wanted = DoctorOptions.model_validate(now.model_dump() | given)
    except ShapeError as exc:
        raise ValidationError({option_of(each): error_sentence(each) for each in exc.errors()}) from exc
    return wanted.model_dump(mode="json", exclude_defaults=True)


def _changed_reactions(now: Mapping[str, Reaction], changed: Mapping[str, str]) -> dict[str, str]:
    """The reactions other than ``NOTIFY``. Raises ``ValidationError``."""
    problems = {REACTION + code: _("There is no such advisory.") for code in changed if code not in RULES}
    for code, value in changed.items():
        if value not in Reaction.values:
            words = _("It must be one of {expected}.").format(expected=", ".join(Reaction.values))
            problems[REACTION + code] = words
    if problems:
        raise ValidationError(problems)
    return {code: str(value) for code, value in {**now, **changed}.items() if value != Reaction.NOTIFY}
