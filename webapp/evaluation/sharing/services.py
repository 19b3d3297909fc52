"""Saving comparisons and commenting on them. Pages and the API call the same functions."""

from __future__ import annotations

from typing import Any

from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.db.models.functions import Now
from django.utils.translation import gettext as _

from webapp.common.pages import clean_name
from webapp.common.text import clean_text
from webapp.evaluation.sharing.models import MAX_COMMENT_CHARS, Comment, SavedComparison, SharedLink
from webapp.evaluation.sharing.queries import Query, checked
from webapp.people.teams.access import project_for
from webapp.people.teams.audit import audit
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
