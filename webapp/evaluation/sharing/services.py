"""Saving comparisons and commenting on them. Pages and the API call the same functions."""

from __future__ import annotations

import secrets
from datetime import timedelta
from typing import Any

from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.db.models import F
from django.db.models.functions import Now
from django.utils import timezone
from django.utils.translation import gettext as _

from webapp.common.pages import clean_name
from webapp.common.text import clean_text
from webapp.evaluation.sharing.models import MAX_COMMENT_CHARS, Comment, SavedComparison, SharedLink
from webapp.evaluation.sharing.queries import Query, checked
from webapp.people.teams.access import RANK, project_for, role_in
from webapp.people.teams.audit import audit
from webapp.people.teams.logins import TOKEN_BYTES, token_hash
from webapp.people.teams.models import AuditAction, Project, Role, User

MOST_SAVED, MOST_COMMENTS = 200, 500


def own_or_owned(user: Any, item: SavedComparison | Comment | SharedLink) -> None:
    """The maker of a thing may end it, and so may owners of its project. Raises ``PermissionDenied`` for others."""
    project_for(user, item.project.slug, need=Role.EDITOR if item.created_by_id == user.pk else Role.OWNER)


def comparison_save(*, project: Project, user: User, name: str, query: Query) -> SavedComparison:
    """Save a comparison's query under a name. Raises ``ValidationError`` by field and by part of the query."""
    saved = SavedComparison(project=project, name=clean_name(name), created_by=user, **checked(project, query))
    if SavedComparison.objects.filter(project=project).count() >= MOST_SAVED:
        raise ValidationError(_("This project has %(n)d saved comparisons; delete one first.") % {"n": MOST_SAVED})
    try:
        with transaction.atomic():
            saved.save(force_insert=True)
            audit(AuditAction.COMPARISON_SAVED, saved, by=user)
    except IntegrityError as exc:
        raise _name_taken() from exc
    return saved


def comparison_rename(saved: SavedComparison, name: str) -> None:
    """Give it another name. Raises ``ValidationError`` where that is taken or no name."""
    before, saved.name = saved.name, clean_name(name)
    if saved.name == before:
        return
    try:
        with transaction.atomic():
            saved.save(update_fields=["name"])
            audit(AuditAction.COMPARISON_RENAMED, saved, subject=f"{before} → {saved.name}")
    except IntegrityError as exc:
        saved.name = before
        raise _name_taken() from exc


def _name_taken() -> ValidationError:
    return ValidationError({"name": _("A saved comparison has this name already; choose another one.")})


def comparison_delete(saved: SavedComparison) -> None:
    """Delete it with its comments; links that share it end at once. The runs stay."""
    with transaction.atomic():
        audit(AuditAction.COMPARISON_DELETED, saved)
        saved.delete()


def comment_add(*, saved: SavedComparison, user: User, text: str) -> Comment:
    """Add a comment below a comparison. Raises ``ValidationError`` for ``text``."""
    text = _checked_comment(text)
    if saved.comments.count() >= MOST_COMMENTS:
        raise ValidationError({"text": _("There are %(n)d comments here; delete one first.") % {"n": MOST_COMMENTS}})
    return Comment.objects.create(comparison=saved, created_by=user, text=text)


def comment_edit(comment: Comment, text: str) -> None:
    """Change a comment's text. Raises ``ValidationError`` for ``text``."""
    text = _checked_comment(text)
    if text != comment.text:
        Comment.objects.filter(pk=comment.pk).update(text=text, edited_at=Now())


def comment_delete(comment: Comment) -> None:
    """Delete a comment."""
    with transaction.atomic():
        who = comment.created_by.username if comment.created_by else "–"
        audit(AuditAction.COMMENT_DELETED, comment, subject=f"{comment.comparison.name} · {who}")
        comment.delete()


def _checked_comment(text: str) -> str:
    text = clean_text(text.replace("\r\n", "\n").replace("\r", "\n")).strip()
    if not text:
        raise ValidationError({"text": _("Write something first.")})
    if len(text) > MAX_COMMENT_CHARS:
        sentence = _("At most %(most)d characters; these are %(n)d.")
        raise ValidationError({"text": sentence % {"most": MAX_COMMENT_CHARS, "n": len(text)}})
    return text


# --- Links ----------------------------------------------------------------------------------------------------------
# Links that open a saved comparison without an account: made on a page, shown once, stored as a hash.
#
# A link never shows more than its maker may see at that moment: it stops working when they are deactivated, leave the
# team or lose the right to write, as it does when it is revoked, ends, or its comparison or project is deleted.

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
