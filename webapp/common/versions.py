"""Shared code of datasets and reward specs: several versions under one name; lists show the newest."""

from __future__ import annotations

from typing import TypeVar

from django.db.models import Count, Model, OuterRef, QuerySet, Subquery
from django.db.models.functions import Coalesce

M = TypeVar("M", bound=Model)


def latest_versions(rows: QuerySet[M], project: Model) -> QuerySet[M]:
    """Those of ``rows`` that are the newest of their name in the project; ``versions`` counts all under the name."""
    same_name = rows.model._default_manager.filter(project=project, name=OuterRef("name")).order_by()
    newest = same_name.order_by("-version").values("pk")[:1]
    count = same_name.values("name").annotate(n=Count("pk")).values("n")
    return rows.filter(pk=Subquery(newest)).annotate(versions=Coalesce(Subquery(count), 1))  # type: ignore[return-value]
