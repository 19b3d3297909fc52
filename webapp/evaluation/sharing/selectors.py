"""Reading saved comparisons, their comments and their links."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from django.db.models import Count, Q, QuerySet
from django.utils import timezone

from webapp.evaluation.sharing.models import Comment, SavedComparison, SharedLink
from webapp.evaluation.sharing.services import maker_may_share
from webapp.people.teams.models import Project
from webapp.runs.models import Run


class SavedLine(NamedTuple):
    """A saved comparison in a list; ``gone`` are the names of runs that were deleted since."""

    saved: SavedComparison
    there: list[str]
    gone: list[str]
    comments: int
    links: int


class LinkLine(NamedTuple):
    """A shared link in a list. ``state`` is open, expired, revoked, or left: its maker may not share any more."""

    link: SharedLink
    state: str


def comparisons_of(project: Project) -> QuerySet[SavedComparison]:
    """The saved comparisons of a project, newest first."""
    return (
        SavedComparison.objects.filter(project=project)
        .select_related("project__team", "created_by")
        .order_by("-created_at", "pk")
    )


def saved_lines(project: Project) -> list[SavedLine]:
    """All of them, as the page to choose from lists them."""
    live = Q(links__revoked_at=None, links__expires_at__gt=timezone.now())
    rows = list(
        comparisons_of(project).annotate(
            said=Count("comments", distinct=True), shared=Count("links", filter=live, distinct=True)
        )
    )
    named = {run for row in rows for run in row.run_ids}
    present = {str(pk) for pk in Run.objects.filter(project=project, pk__in=named).values_list("pk", flat=True)}
    return [
        SavedLine(
            row,
            [item["name"] for item in row.contestants if item["id"] in present],
            [item["name"] for item in row.contestants if item["id"] not in present],
            row.said,
            row.shared,
        )
        for row in rows
    ]


def comments_of(saved: SavedComparison) -> QuerySet[Comment]:
    """The comments below it, the newest last."""
    return Comment.objects.filter(comparison=saved).select_related("created_by")


def links_of(saved: SavedComparison) -> QuerySet[SharedLink]:
    """The links that share it, newest first."""
    return SharedLink.objects.filter(comparison=saved).select_related("created_by", "comparison__project")


def link_lines(links: Iterable[SharedLink]) -> list[LinkLine]:
    """Links with their present state."""
    now = timezone.now()
    lines, may = [], {}
    for link in links:
        if link.created_by_id not in may:
            may[link.created_by_id] = maker_may_share(link)
        state = "open" if may[link.created_by_id] else "left"
        if not link.open_at(now):
            state = "revoked" if link.revoked_at else "expired"
        lines.append(LinkLine(link, state))
    return lines


def links_open(saved: SavedComparison) -> int:
    """How many links that have not ended share it."""
    return SharedLink.objects.filter(comparison=saved, revoked_at=None, expires_at__gt=timezone.now()).count()
