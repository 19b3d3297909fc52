"""The rules of a project: for how long after the end of its run each kind is kept, and up to which size."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils.translation import gettext as _

from webapp.people.teams.audit import audit
from webapp.people.teams.models import AuditAction, Project, User
from webapp.runs.removal.models import Kept, RetentionRules

Wanted = Mapping[str, Mapping[str, int | None] | None]
"""Rules to set, by kind; ``None`` is the site's rule."""
MOST = 999_999
"""The largest limit, of days as of GiB."""


class Rule(NamedTuple):
    """What limits one kind; ``None`` is no limit. ``own`` where the project has it, else it is the site's.

    ``days`` count from the end of the run. ``gib`` limits the sum over the project's runs that nothing keeps.
    """

    days: int | None = None
    gib: int | None = None
    own: bool = False

    @property
    def limits(self) -> bool:
        """Whether anything is ever removed."""
        return self.days is not None or self.gib is not None


def site_rule(kind: Kept) -> Rule:
    """The site's rule of a kind."""
    limits = settings.RETENTION[kind]
    return Rule(limits["days"], limits["gib"])


def rules_of(project: Project) -> dict[Kept, Rule]:
    """The rules that hold in a project, of every kind."""
    row = RetentionRules.objects.filter(project=project).first()
    return _with_defaults(row.rules if row is not None else {})


def _with_defaults(own: Mapping[str, Mapping[str, int | None]]) -> dict[Kept, Rule]:
    found = {}
    for kind in Kept:
        given = own.get(kind)
        found[kind] = site_rule(kind) if given is None else Rule(given["days"], given["gib"], own=True)
    return found


def rules_change(*, project: Project, user: User, rules: Wanted) -> dict[Kept, Rule]:
    """Change the rules of the kinds that are named; ``None`` gives the site's rule back.

    An unchanged rule leaves no audit row. Raises ``ValidationError`` by kind.
    """
    check_rules(rules)
    with transaction.atomic():
        # Locked: of two people neither may overwrite the other's change.
        row, made = RetentionRules.objects.select_for_update().get_or_create(project=project)
        wanted = _changed(row.rules, rules)
        if wanted != row.rules:
            row.rules, row.changed_by = wanted, user
            row.save(update_fields=["rules", "changed_by", "changed_at"])
            audit(AuditAction.RETENTION_CHANGED, project, by=user)
        elif made:
            row.delete()
    return _with_defaults(wanted)


def rules_if(project: Project, rules: Wanted) -> dict[Kept, Rule]:
    """The rules that would hold if these were set. Raises as ``rules_change``."""
    check_rules(rules)
    row = RetentionRules.objects.filter(project=project).first()
    return _with_defaults(_changed(row.rules if row is not None else {}, rules))


def _changed(own: Mapping[str, Any], rules: Wanted) -> dict[str, Any]:
    wanted = dict(own)
    for kind, rule in rules.items():
        if rule is None:
            wanted.pop(kind, None)
        else:
            wanted[kind] = {"days": rule.get("days"), "gib": rule.get("gib")}
    return wanted


def check_rules(rules: Wanted) -> None:
    """Raise ``ValidationError`` by kind."""
    problems = {}
    for kind, rule in rules.items():
        if kind not in Kept.values:
            problems[kind] = _("It must be one of {expected}.").format(expected=", ".join(Kept.values))
        elif any(value is not None and not 1 <= value <= MOST for value in (rule or {}).values()):
            problems[kind] = _("A limit is a whole number from 1 to %(most)d, or empty for none.") % {"most": MOST}
    if problems:
        raise ValidationError(problems)
