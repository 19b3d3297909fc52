"""Keys for scripts: made on a page, shown once, stored as a hash."""

from __future__ import annotations

import secrets
from datetime import timedelta

from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.db.models import Q, QuerySet
from django.db.models.functions import Now
from django.utils import timezone
from django.utils.translation import gettext as _

from webapp.pages import clean_name
from webapp.teams.access import role_in
from webapp.teams.audit import audit
from webapp.teams.login_links import TOKEN_BYTES, token_hash
from webapp.teams.models import ApiToken, AuditAction, Project, User

PREFIX = "tiltyard_"
HINT_CHARS = len(PREFIX) + 3
MOST = 50
USED_EVERY = timedelta(minutes=1)  # a script that asks often writes its last use seldom


def token_create(
    *, user: User, name: str, role: str, project: Project | None = None, days: int | None = None
) -> tuple[ApiToken, str]:
    """Make a token and return it with its text, which is nowhere else. Raises ``ValidationError`` by field."""
    if tokens_of(user).count() >= MOST:
        raise ValidationError(_("You have %(n)d tokens; revoke one first.") % {"n": MOST})
    if project is not None and role_in(user, project) is None:
        raise ValidationError({"project": _("Choose one of your projects.")})
    text = PREFIX + secrets.token_urlsafe(TOKEN_BYTES)
    token = ApiToken(
        user=user,
        project=project,
        name=clean_name(name),
        role=role,
        token_hash=token_hash(text),
        hint=text[:HINT_CHARS],
        expires_at=timezone.now() + timedelta(days=days) if days else None,
    )
    try:
        with transaction.atomic():
            token.save(force_insert=True)
            audit(AuditAction.TOKEN_MADE, token, by=user)
    except IntegrityError as exc:
        raise ValidationError({"name": _("You have a token with this name.")}) from exc
    return token, text


def token_revoke(token: ApiToken) -> None:
    """End a token at once; its row stays for the record. Idempotent."""
    with transaction.atomic():
        if ApiToken.objects.filter(pk=token.pk, revoked_at=None).update(revoked_at=Now()):
            audit(AuditAction.TOKEN_REVOKED, token)


def tokens_of(user: User) -> QuerySet[ApiToken]:
    """A person's tokens that are not revoked, newest first."""
    return ApiToken.objects.filter(user=user, revoked_at=None).select_related("project")


def token_user(text: str) -> User | None:
    """The person behind a token that still holds, with ``api_token`` set, which limits what they may do."""
    if not text.startswith(PREFIX):
        return None
    now = timezone.now()
    rows = ApiToken.objects.filter(Q(expires_at=None) | Q(expires_at__gt=now), revoked_at=None, user__is_active=True)
    token = rows.filter(token_hash=token_hash(text)).select_related("user", "project").first()
    if token is None or (token.project is not None and token.project.removed_at is not None):
        return None
    ApiToken.objects.filter(Q(used_at=None) | Q(used_at__lt=now - USED_EVERY), pk=token.pk).update(used_at=now)
    user: User = token.user
    user.api_token = token  # type: ignore[attr-defined]
    return user
