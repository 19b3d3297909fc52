"""What the palette finds for what a person types, as JSON."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast
from urllib.parse import urlencode

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, JsonResponse
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET

from webapp.common.pages import addresses_of
from webapp.people.teams.access import project_for, projects_of
from webapp.people.teams.models import Project, User
from webapp.reading.inspector.filters import TEXT_MAX
from webapp.site.palette.items import Group, Item, fitting
from webapp.site.palette.objects import named, objects_found, runs_found, texts_found
from webapp.site.palette.places import account_pages, options_found, pages_of

PAGES_MOST, PROJECTS_MOST, OPTIONS_MOST = 6, 20, 5


@login_required
@require_GET
def palette(request: HttpRequest, slug: str) -> JsonResponse:
    """What fits ``q`` in a project. The ``part`` with texts takes longest and is asked for on its own; without ``q``
    there are the newest runs and all pages."""
    project, phrase = project_for(request.user, slug), _phrase(request)
    if request.GET.get("part") == "texts":
        return _answer(texts_found(project, phrase) if phrase else [])
    user = cast(User, request.user)
    pages = list(pages_of(project))
    pages += [item for item in account_pages(user) if item.url not in {page.url for page in pages}]
    if not phrase:
        return _answer([Group(_("Latest runs"), runs_found(project, "")), Group(_("Pages and actions"), pages)])
    groups = [
        Group(_("Pages and actions"), fitting(pages, phrase, PAGES_MOST)),
        Group(_("Runs"), runs_found(project, phrase)),
        *objects_found(project, phrase),
        Group(_("Options of a run"), options_found(project, phrase, OPTIONS_MOST)),
        Group(_("Projects"), _projects(user, phrase, without=project)),
    ]
    return _answer(groups, _find_item(project, phrase))


@login_required
@require_GET
def palette_anywhere(request: HttpRequest) -> JsonResponse:
    """Outside of a project: the person's projects, and their own pages."""
    if request.GET.get("part") == "texts":
        return _answer([])
    user, phrase = cast(User, request.user), _phrase(request)
    pages = fitting(account_pages(user), phrase, PROJECTS_MOST)
    return _answer([Group(_("Projects"), _projects(user, phrase)), Group(_("Pages and actions"), pages)])


def _phrase(request: HttpRequest) -> str:
    return " ".join(request.GET.get("q", "").replace("\0", "").split())[:TEXT_MAX]


def _projects(user: User, phrase: str, *, without: Project | None = None) -> list[Item]:
    address = addresses_of("project-page")
    rows = projects_of(user).filter(named(phrase))
    if without is not None:
        rows = rows.exclude(pk=without.pk)
    return [Item(name, address(slug), icon="home") for name, slug in rows.values_list("name", "slug")[:PROJECTS_MOST]]


def _find_item(project: Project, phrase: str) -> Item:
    url = f"{reverse('project-rollouts', args=[project.slug])}?{urlencode({'q': phrase})}"
    return Item(_("Find rollouts with “%(phrase)s”") % {"phrase": phrase}, url, icon="search")


def _answer(groups: Iterable[Group], find: Item | None = None) -> JsonResponse:
    """Groups that have something to show; ``find``, which is always there, does not count as found."""
    shown = [group for group in groups if group.items or group.note]
    none = "" if any(group.items for group in shown) else _("Nothing has these words.")
    if find is not None:
        shown.append(Group("", [find]))
    return JsonResponse({"groups": [group.as_json() for group in shown], "none": none})
