"""The rail: a project's pages in groups, and which of them a page belongs to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple
from uuid import UUID

from django.http import HttpRequest
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from webapp.common.pages import url_or_none
from webapp.people.teams.models import Project, Role
from webapp.reading.inspector.models import SavedView

NEWEST_VIEWS = 5


class Page(NamedTuple):
    """A page of the rail. Other pages belong to it if their address name is one of ``names``, or begins with it and a
    hyphen; the longest decides. ``for_owners``: only owners may open it."""

    label: Promise
    url_name: str
    names: tuple[str, ...]
    for_owners: bool = False

    def url(self, project: Project) -> str:
        """Its address; a page of the installation has none in the project."""
        return url_or_none(self.url_name, project.slug) or url_or_none(self.url_name) or ""


class Group(NamedTuple):
    """Pages under one heading, which leads to the first of them."""

    label: Promise
    icon: str
    pages: tuple[Page, ...]


FIND = Page(_("Find"), "project-rollouts", ("project-rollouts", "run-rollouts", "rollout", "branch", "continuation"))
_OVERVIEW = Page(_("Overview"), "project-page", ("project", "pin"))
_RUNS = Page(_("Runs"), "run-list", ("run", "preparation"))
_DATASETS = Page(_("Data"), "dataset-list", ("dataset",))
_ENVIRONMENTS = Page(_("Environments"), "environment-list", ("environment",))

RAIL = (
    Group(_OVERVIEW.label, "home", (_OVERVIEW,)),
    Group(_RUNS.label, "runs", (_RUNS, Page(_("Sweeps"), "sweep-list", ("sweep",)))),
    Group(_("Rollouts"), "search", (FIND,)),
    Group(
        _("Evaluate"),
        "compare",
        (
            Page(_("Suites"), "suite-list", ("suite",)),
            Page(_("Compare"), "compare", ("compare",)),
            Page(_("Votes"), "vote-rounds", ("vote",)),
        ),
    ),
    Group(_DATASETS.label, "datasets", (_DATASETS,)),
    Group(
        _("Rewards"),
        "rewards",
        (Page(_("Specs"), "reward-list", ("reward",)), Page(_("Reward lab"), "lab", ("lab",))),
    ),
    Group(
        _("Models"),
        "models",
        (
            Page(_("Models"), "model-list", ("model", "checkpoint")),
            Page(_("Chat"), "chat-list", ("chat",)),
            Page(_("Endpoints"), "endpoint-list", ("endpoint",)),
        ),
    ),
    Group(_ENVIRONMENTS.label, "environments", (_ENVIRONMENTS,)),
    Group(
        _("Settings"),
        "settings",
        (
            Page(_("Project"), "team-settings", ("team", "member", "hub", "project-delete")),
            Page(_("Run doctor"), "doctor-rules", ("doctor",)),
            Page(_("Retention"), "retention-page", ("retention-page",)),
            Page(_("Channels"), "channel-list", ("channel",)),
            Page(_("API tokens"), "team-tokens", ("team-tokens", "team-token"), for_owners=True),
            Page(_("Machine accounts"), "team-machines", ("team-machines", "team-machine"), for_owners=True),
            Page(_("Workers"), "worker-list", ("worker",)),
            Page(_("Usage"), "device-usage", ("device-usage",)),
        ),
    ),
)
_PAGES = {name: page for group in RAIL for page in group.pages for name in page.names}


def page_of(url_name: str) -> Page | None:
    """The page of the rail that an address belongs to."""
    while url_name and url_name not in _PAGES:
        url_name = url_name.rpartition("-")[0]
    return _PAGES.get(url_name)


def pages_for(project: Project, group: Group) -> list[Page]:
    """The pages of a group that the reader may open; their role is the project's ``role``."""
    role = getattr(project, "role", Role.VIEWER)
    return [page for page in group.pages if role == Role.OWNER or not page.for_owners]


class Link(NamedTuple):
    """A link of the rail. ``here`` is the value of ``aria-current``: ``page`` for the page itself, ``true`` for what it
    belongs to, empty for all else."""

    label: str | Promise
    url: str
    here: str = ""


class Shown(NamedTuple):
    """A group as a page shows it: with the links below it where the page is one of its pages."""

    head: Link
    icon: str
    below: Sequence[Link]


def rail_of(
    project: Project, request: HttpRequest | None, saved_views: Iterable[SavedView] | None = None
) -> Iterator[Shown]:
    """The groups of the rail as the page of this request shows them. ``saved_views`` are those that the page itself
    offers; one that offers none lists the project's."""
    match = getattr(request, "resolver_match", None)
    url_name = getattr(match, "url_name", "") or ""
    here = page_of(url_name)
    for group in RAIL:
        pages = pages_for(project, group)
        below: list[Link] = []
        if here in group.pages and request is not None:
            below = [Link(page.label, page.url(project), _mark(page, here, url_name)) for page in pages]
            if here is FIND:
                below = _with_views(request, below[0], _newest(project, saved_views))
            elif len(below) == 1:
                below = []
        mark = "" if here not in group.pages else "true" if below else _mark(pages[0], here, url_name)
        yield Shown(Link(group.label, pages[0].url(project), mark), group.icon, below)


def _mark(page: Page, here: Page | None, url_name: str) -> str:
    return "" if page is not here else "page" if page.url_name == url_name else "true"


def _newest(project: Project, saved_views: Iterable[SavedView] | None) -> list[SavedView]:
    if saved_views is not None:
        return sorted(saved_views, key=lambda view: view.created_at, reverse=True)[:NEWEST_VIEWS]
    rows = SavedView.objects.filter(project=project).select_related("project").order_by("-created_at")
    return list(rows[:NEWEST_VIEWS])


def _with_views(request: HttpRequest, find: Link, views: Sequence[SavedView]) -> list[Link]:
    """*Find* and the saved views; the one whose filters the page's address has is the page."""
    query, match = request.META.get("QUERY_STRING", ""), request.resolver_match
    run: UUID | None = match.kwargs.get("pk") if match is not None else None
    listed = match is not None and match.url_name in {"project-rollouts", "run-rollouts"}
    links = [
        Link(view.name, view.url, "page" if listed and (view.run_id, view.query) == (run, query) else "")
        for view in views
    ]
    shown = any(link.here for link in links)
    return [find._replace(here="") if shown else find, *links]
