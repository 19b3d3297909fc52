"""Links that open a saved comparison without an account: made on a page, shown once, stored as a hash.

A link never shows more than its maker may see at that moment: it stops working when they are deactivated, leave the
team or lose the right to write, as it does when it is revoked, ends, or its comparison or project is deleted.
"""

from __future__ import annotations

import secrets
from datetime import timedelta

from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import F
from django.db.models.functions import Now
from django.utils import timezone
from django.utils.translation import gettext as _

from webapp.evaluation.sharing.models import SavedComparison, SharedLink
from webapp.people.teams.access import RANK, role_in
from webapp.people.teams.audit import audit
from webapp.people.teams.login_links import TOKEN_BYTES, token_hash
from webapp.people.teams.models import AuditAction, Role, User

DAYS = (1, 7, 30, 90)
HINT_CHARS = 4
MOST = 50


def link_create(*, saved: SavedComparison, user: User, days: int) -> tuple[SharedLink, str]:
    """Make a link and return it with its secret, which is nowhere else. Raises ``ValidationError`` by field."""
    if days not in DAYS:
        choices = ", ".join(str(number) for number in DAYS)
        raise ValidationError(
            {"days": _("A link is valid for one of these numbers of days: %(days)s.") % {"days": choices}}
        )
    now = timezone.now()
    if SharedLink.objects.filter(comparison=saved, revoked_at=None, expires_at__gt=now).count() >= MOST:
        raise ValidationError(_("This comparison has %(n)d links; revoke one first.") % {"n": MOST})
    secret = secrets.token_urlsafe(TOKEN_BYTES)
    with transaction.atomic():
        link = SharedLink.objects.create(
            comparison=saved,
            created_by=user,
            secret_hash=token_hash(secret),
            hint=secret[:HINT_CHARS],
            expires_at=now + timedelta(days=days),
        )
        audit(AuditAction.COMPARISON_SHARED, saved, by=user)
    return link, secret


def link_revoke(link: SharedLink) -> None:
    """End a link at once; its row stays for the record. Idempotent."""
    with transaction.atomic():
        if SharedLink.objects.filter(pk=link.pk, revoked_at=None).update(revoked_at=Now()):
            audit(AuditAction.SHARE_REVOKED, link.comparison)


def link_open(secret: str) -> SharedLink | None:
    """The link with this secret, if it opens now."""
    links = SharedLink.objects.filter(secret_hash=token_hash(secret), revoked_at=None, expires_at__gt=timezone.now())
    links = links.filter(comparison__project__removed_at=None)
    link = links.select_related("comparison__project__team", "created_by").first()
    return link if link is not None and maker_may_share(link) else None


def maker_may_share(link: SharedLink) -> bool:
    """Whether who made it is still there and may still write in the project."""
    role = role_in(link.created_by, link.project)
    return role is not None and RANK[role] >= RANK[Role.EDITOR]


def link_count(link: SharedLink) -> None:
    """Note that it was opened."""
    SharedLink.objects.filter(pk=link.pk).update(opened=F("opened") + 1, opened_at=Now())
