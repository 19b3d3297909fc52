"""Machine accounts: names under which programs of a team call the API.

An owner makes one, any owner replaces its tokens and ends it, and its maker may leave: it belongs to the team. It is a
user, so that runs, audit and pages name it like a person, but no login is possible: it has no password and no mail,
gets no link, no notification and no vote, and is never an owner.
"""

from __future__ import annotations

from uuid import UUID

from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.db.models import Prefetch, QuerySet
from django.db.models.functions import Now
from django.utils.translation import gettext as _

from webapp.people.teams.audit import audit
from webapp.people.teams.models import (
    ApiToken,
    AuditAction,
    Machine,
    Membership,
    Project,
    Role,
    Team,
    TokenEnd,
    TokenScope,
    User,
)
from webapp.people.teams.tokens import role_and_scope, token_create, token_revoke

MOST, MOST_TOKENS = 50, 10
MAY = (TokenScope.METRICS, TokenScope.INGEST, Role.VIEWER, Role.EDITOR)
"""The rights that a machine account may have; acts of owners need a person."""


def machines_of(team: Team) -> QuerySet[Machine]:
    """A team's machine accounts that have not ended, by name, each with its tokens that were not revoked."""
    there = Prefetch("user__tokens", _unrevoked_tokens(), to_attr="there")
    rows = Machine.objects.filter(team=team, ended_at=None).select_related("user", "team", "project", "created_by")
    return rows.prefetch_related(there).order_by("name")


def _unrevoked_tokens() -> QuerySet[ApiToken]:
    """Tokens that were not revoked, those that have expired included: they are replaced too."""
    return ApiToken.objects.filter(revoked_at=None).select_related("user", "project").order_by("created_at")


def machine_create(
    *, project: Project, name: str, may: str, everywhere: bool, days: int | None, by: User
) -> tuple[Machine, ApiToken, str]:
    """Make one with its first token, whose text is nowhere else. Raises ``ValidationError`` by field.

    ``may`` is one of ``MAY``. It acts in this project, or ``everywhere`` in its team.
    """
    if may not in MAY:
        raise ValidationError({"may": _("There is no such role.")})
    _require_username(name)
    role, scope = role_and_scope(may)
    with transaction.atomic():
        team = Team.objects.select_for_update().get(pk=project.team_id)  # two at once must not pass the limit together
        if Machine.objects.filter(team=team, ended_at=None).count() >= MOST:
            raise ValidationError(_("This team has %(n)d machine accounts; end one first.") % {"n": MOST})
        user = _create_account(name)
        Membership.objects.create(team=team, user=user, role=role)
        machine = Machine.objects.create(
            team=team,
            user=user,
            name=user.username,
            project=None if everywhere else project,
            role=role,
            scope=scope,
            created_by=by,
        )
        audit(AuditAction.MACHINE_ADDED, machine, by=by, subject=f"{user.username} · {may}", project=project)
        token, text = machine_token(machine=machine, days=days, by=by, project=project)
    return machine, token, text


def _require_username(name: str) -> None:
    """Raise ``ValidationError`` for what is no user name."""
    try:
        User._meta.get_field("username").run_validators(name)
    except ValidationError as exc:
        raise ValidationError({"name": exc.messages}) from exc


def _create_account(name: str) -> User:
    """Create the account. Names are looked up without regard to case, so no two may differ in case alone."""
    taken = ValidationError({"name": _("An account has this name, or had it; choose another.")})
    if User.objects.filter(username__iexact=name).exists():
        raise taken
    try:
        with transaction.atomic():
            return User.objects.create_user(name, is_machine=True)  # without a usable password
    except IntegrityError as exc:
        raise taken from exc


def machine_token(
    *, machine: Machine, days: int | None, by: User, project: Project, name: str = ""
) -> tuple[ApiToken, str]:
    """Another token of it, and its text, which is nowhere else. Without a ``name`` it gets the next number.

    ``project`` is where an owner makes it. Raises ``ValidationError``.
    """
    with transaction.atomic():
        user = _lock_user(machine)
        if _unrevoked_tokens().filter(user=user).count() >= MOST_TOKENS:
            raise ValidationError(_("It has %(n)d tokens; revoke one first.") % {"n": MOST_TOKENS})
        name = name or str(ApiToken.objects.filter(user=user).count() + 1)
        return token_create(
            user=user,
            name=name,
            role=machine.may,
            project=machine.project,
            days=days,
            by=by,
            audited_in=project,
        )


def machine_token_rotate(*, machine: Machine, token: ApiToken, by: User, project: Project) -> tuple[ApiToken, str]:
    """Put another token in the place of one, with its name and for as long as that was made for. The old one ends."""
    lifetime = token.expires_at - token.created_at if token.expires_at else None
    with transaction.atomic():
        _lock_user(machine)
        if not token_revoke(token, TokenEnd.REPLACED, by=by, project=project):
            raise ValidationError(_("This token has ended."))
        days = max(1, round(lifetime.total_seconds() / 86400)) if lifetime else None
        return machine_token(machine=machine, name=token.name, days=days, by=by, project=project)


def machine_end(*, machine: Machine, by: User | None, project: Project) -> None:
    """End it for good, with its tokens. What it made stays, and its name is not given away again."""
    with transaction.atomic():
        user = _lock_user(machine)
        Machine.objects.filter(pk=machine.pk).update(ended_at=Now())
        User.objects.filter(pk=user.pk).update(is_active=False)
        ended = {"revoked_at": Now(), "ended_by": TokenEnd.MACHINE, "ended_who": by.username if by else ""}
        ApiToken.objects.filter(user=user, revoked_at=None).update(**ended)  # one row of the audit covers them all
        Membership.objects.filter(user=user).delete()
        audit(AuditAction.MACHINE_ENDED, machine, by=by, project=project)


def machines_end_in(project: Project) -> None:
    """End those limited to this project: without the project their limit would be gone."""
    for machine in Machine.objects.filter(project=project, ended_at=None).select_related("user"):
        machine_end(machine=machine, by=None, project=project)


def _lock_user(machine: Machine) -> User:
    """Its user, locked until the transaction ends: of two owners one makes a token, and the other ends the account."""
    user = User.objects.select_for_update().get(pk=machine.user_id)
    if not user.is_active:
        raise ValidationError(_("This machine account has ended."))
    return user


def machine_in(project: Project, pk: UUID) -> Machine | None:
    """One of the team's machine accounts that have not ended."""
    return machines_of(project.team).filter(pk=pk).first()


def token_in(machine: Machine, pk: UUID) -> ApiToken | None:
    """One of its tokens that were not revoked."""
    return _unrevoked_tokens().filter(user=machine.user, pk=pk).first()
