"""Keys for scripts, and the machine accounts under which programs of a team call the API."""

from __future__ import annotations

import secrets
from datetime import datetime, timedelta
from uuid import UUID

from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.db.models import Prefetch, Q, QuerySet
from django.db.models.functions import Now
from django.utils import timezone
from django.utils.translation import gettext as _

from webapp.common.pages import clean_name
from webapp.people.teams.access import role_in
from webapp.people.teams.audit import audit
from webapp.people.teams.logins import TOKEN_BYTES, token_hash
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

# Keys for scripts: made on a page, shown once, stored as a hash, ended for good.
#
# A token ends with what it depends on: its person's password, account or place in a team. What ended it is kept in its
# row, so that its person reads why; the row is never used again, also if the person comes back.

PREFIX = "tiltyard_"
HINT_CHARS = len(PREFIX) + 3
MOST = 50
USED_EVERY = timedelta(minutes=1)  # a script with many calls writes its last use once in this time
ENDED_SHOWN = timedelta(days=90)
ROLE_OF = {TokenScope.METRICS: Role.VIEWER, TokenScope.INGEST: Role.EDITOR}
"""The least role that a scope's operations need."""


def role_and_scope(may: str) -> tuple[str, str]:
    """A token's rights, a role or a ``TokenScope``, as both; no scope is empty."""
    return (ROLE_OF[TokenScope(may)], may) if may in TokenScope.values else (may, "")


def token_create(
    *,
    user: User,
    name: str,
    role: str,
    project: Project | None = None,
    days: int | None = None,
    by: User | None = None,
    audited_in: Project | None = None,
) -> tuple[ApiToken, str]:
    """Make a token and return it with its text, which is nowhere else. Raises ``ValidationError`` by field.

    ``role`` is the most that it may do, or a ``TokenScope``. ``by`` is the owner who makes it for a machine account,
    and ``audited_in`` where.
    """
    if tokens_of(user).count() >= MOST:
        raise ValidationError(_("You have %(n)d tokens; revoke one first.") % {"n": MOST})
    text = PREFIX + secrets.token_urlsafe(TOKEN_BYTES)
    role, scope = role_and_scope(role)
    token = ApiToken(
        user=user,
        project=project,
        name=clean_name(name),
        role=role,
        scope=scope,
        token_hash=token_hash(text),
        hint=text[:HINT_CHARS],
        expires_at=timezone.now() + timedelta(days=days) if days else None,
    )
    try:
        with transaction.atomic():
            if not user_hold(user):
                raise ValidationError(_("Your account has just changed; log in again."))
            if project is not None and role_in(user, project) is None:
                raise ValidationError({"project": _("Choose one of your projects.")})
            token.save(force_insert=True)
            subject = f"{user.username} · {token.name}" if by else ""
            audit(AuditAction.TOKEN_MADE, token, by=by or user, subject=subject, project=audited_in)
    except IntegrityError as exc:
        raise ValidationError({"name": _("There is a token with this name.")}) from exc
    return token, text


def user_hold(user: User) -> bool:
    """Lock a person until the transaction ends: no token is made while something ends all. False where the person has
    been deactivated, or has another password, since ``user`` was read."""
    rows = User.objects.select_for_update().filter(pk=user.pk, is_active=True, password=user.password)
    return bool(rows.values_list("pk"))


def token_revoke(
    token: ApiToken, why: TokenEnd = TokenEnd.REVOKED, *, by: User | None = None, project: Project | None = None
) -> bool:
    """End a token at once and for good; its row stays for the record. False where it had ended.

    ``by`` is the person who acts, by default the person of the request; ``project`` is where an owner did it.
    """
    values = {"revoked_at": Now(), "ended_by": why, "ended_who": by.username if by else ""}
    with transaction.atomic():
        if not ApiToken.objects.filter(pk=token.pk, revoked_at=None).update(**values):
            return False
        subject = token.name if why == TokenEnd.REVOKED else f"{token.user.username} · {token.name} · {why.value}"
        audit(AuditAction.TOKEN_REVOKED, token, by=by, subject=subject, project=project)
    return True


def tokens_end(user: User, why: TokenEnd, *, by: User | None = None, team: Team | None = None) -> int:
    """End a person's tokens, or those that reach a team's projects. Returns how many. Part of the caller's
    transaction."""
    rows = tokens_of(user).select_related("user")
    rows = rows if team is None else rows.filter(Q(project=None) | Q(project__team=team))
    return sum([token_revoke(token, why, by=by) for token in rows])


def tokens_reaching(project: Project) -> QuerySet[ApiToken]:
    """The tokens of the team's members that open this project now, by person."""
    return tokens_open().filter(
        Q(project=None) | Q(project=project), user__is_active=True, user__memberships__team_id=project.team_id
    )


def tokens_open() -> QuerySet[ApiToken]:
    """All tokens that are neither revoked nor expired, by person."""
    rows = ApiToken.objects.filter(Q(expires_at=None) | Q(expires_at__gt=timezone.now()), revoked_at=None)
    return rows.select_related("user", "project").order_by("user__username", "-created_at")


def tokens_ended(user: User) -> QuerySet[ApiToken]:
    """A person's tokens that something ended within 90 days, the newest end first."""
    rows = ApiToken.objects.filter(user=user, revoked_at__gt=timezone.now() - ENDED_SHOWN)
    return rows.exclude(ended_by__in=["", TokenEnd.REVOKED]).order_by("-revoked_at")


def tokens_of(user: User) -> QuerySet[ApiToken]:
    """A person's tokens that are not revoked, newest first."""
    return ApiToken.objects.filter(user=user, revoked_at=None).select_related("project")


def token_user(text: str, address: str = "") -> User | None:
    """The person behind a token that still holds, with ``api_token`` set, which limits what they may do.

    Its use is noted where ``address`` says from which IP address it came."""
    if not text.startswith(PREFIX):
        return None
    now = timezone.now()
    rows = ApiToken.objects.filter(Q(expires_at=None) | Q(expires_at__gt=now), revoked_at=None, user__is_active=True)
    token = rows.filter(token_hash=token_hash(text)).select_related("user", "project").first()
    if token is None or (token.project is not None and token.project.removed_at is not None):
        return None
    if address:
        _note_use(token, address, now)
    user: User = token.user
    user.api_token = token  # type: ignore[attr-defined]
    return user


def _note_use(token: ApiToken, address: str, now: datetime) -> None:
    """Keep when and from where a token was used last: at most once a minute, but another address at once."""
    due = Q(used_at=None) | Q(used_at__lt=now - USED_EVERY) | ~Q(used_from=address)
    ApiToken.objects.filter(due, pk=token.pk).update(used_at=now, used_from=address)


def token_was_there(text: str) -> bool:
    """Whether there ever was a token with this text, valid or ended."""
    return ApiToken.objects.filter(token_hash=token_hash(text)).exists()


def token_ended(text: str) -> str:
    """A sentence on what ended the token with this text; empty where there was none, or it expired."""
    ended = ApiToken.objects.filter(token_hash=token_hash(text)).exclude(ended_by="").first()
    return str(TokenEnd(ended.ended_by).label) if ended is not None else ""


# Machine accounts: names under which programs of a team call the API.
#
# An owner makes one, any owner replaces its tokens and ends it, and its maker may leave: it belongs to the team. It is
# a user, so that runs, audit and pages name it like a person, but no login is possible: it has no password and no mail,
# gets no link, no notification and no vote, and is never an owner.

MOST_MACHINES, MOST_TOKENS = 50, 10
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
        if Machine.objects.filter(team=team, ended_at=None).count() >= MOST_MACHINES:
            raise ValidationError(_("This team has %(n)d machine accounts; end one first.") % {"n": MOST_MACHINES})
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
    """Raise ``ValidationError`` for a text that is not a user name."""
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


def machine_end(*, machine: Machine, by: User | None, project: Project | None) -> None:
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
