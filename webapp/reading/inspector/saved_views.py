"""Saving views under a name, listing and deleting them."""

from __future__ import annotations

import logging
from urllib.parse import urlencode

from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.db.models import Q, QuerySet
from django.http import QueryDict
from django.utils.translation import gettext as _

from webapp.common.pages import clean_name
from webapp.people.teams.audit import audit
from webapp.people.teams.models import AuditAction, User
from webapp.reading.inspector.filters import Filters, filters_of
from webapp.reading.inspector.models import SavedView
from webapp.reading.inspector.scope import Scope

logger = logging.getLogger(__name__)
MAX_VIEWS = 200
QUERY_MAX = 4_000


def views_of(scope: Scope) -> QuerySet[SavedView]:
    """The named views that a page offers: those of its run and those of the project."""
    rows = SavedView.objects.filter(project=scope.project).select_related("created_by", "run")
    return rows.filter(Q(run=scope.run) | Q(run=None)) if scope.run is not None else rows


def view_save(*, scope: Scope, filters: Filters, name: str, user: User | None) -> SavedView:
    """Keep filters and their order under a name. Raises ``ValidationError``."""
    query = urlencode(filters.pairs())
    if len(query) > QUERY_MAX:
        raise ValidationError(_("This view has too many filters to be kept."))
    if SavedView.objects.filter(project=scope.project).count() >= MAX_VIEWS:
        raise ValidationError(_("This project has reached its limit of saved views. Delete one that is not needed."))
    made = SavedView(project=scope.project, run=scope.run, name=clean_name(name), query=query, created_by=user)
    try:
        with transaction.atomic():
            made.save(force_insert=True)
            audit(AuditAction.VIEW_SAVED, made, by=user)
    except IntegrityError as exc:
        raise ValidationError({"name": _("A view with this name exists already.")}) from exc
    logger.info("view saved", extra={"view_id": made.pk, "project_id": scope.project.pk})
    return made


def view_delete(*, view: SavedView) -> None:
    """Delete a view."""
    with transaction.atomic():
        audit(AuditAction.VIEW_DELETED, view)
        view.delete()


def filters_of_view(view: SavedView) -> Filters:
    """The filters of a saved view; those that no longer exist are ignored."""
    return filters_of(QueryDict(view.query))
