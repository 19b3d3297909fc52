"""The front page, a project at a glance, and the styleguide."""

from __future__ import annotations

from typing import cast

from django.conf import settings
from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.templatetags.static import static
from django.views.decorators.http import require_GET

from webapp.common.pages import url_or_none
from webapp.common.static_files import PLOTLY
from webapp.people.teams.access import project_for
from webapp.people.teams.models import User
from webapp.people.teams.selectors import teams_owned
from webapp.people.teams.views import MemberForm
from webapp.runs.pins.services import pins_shown
from webapp.runs.records.columns import SHORT, columns_named, heads, table_rows
from webapp.runs.records.listing import run_list
from webapp.site.home.selectors import demo_is_pending, home_projects, project_counts, shelves

NEWEST_RUNS = 6


@login_required
@require_GET
def home(request: HttpRequest) -> HttpResponse:
    """The person's projects; with only one, that one."""
    user = cast(User, request.user)
    projects = list(home_projects(user))
    owned = teams_owned(user).exists()
    if len(projects) == 1 and "all" not in request.GET:
        return redirect("project-page", slug=projects[0].slug)
    return render(request, "teams/home.html", {"projects": projects, "can_create": owned})


@login_required
@require_GET
def project_page(request: HttpRequest, slug: str) -> HttpResponse:
    """The present work of a project, and what it has."""
    project = project_for(request.user, slug)
    counts, shown = project_counts(project), heads(columns_named(SHORT))
    context = {
        "project": project,
        "shelves": shelves(project, counts),
        "lines": table_rows(run_list(project, per_page=NEWEST_RUNS).rows, shown, slug),
        "heads": shown,
        "counts": counts,
        "new_url": url_or_none("run-new", slug),
        "demo_is_pending": demo_is_pending(project, counts),
        "refresh": counts["open"] > 0 or not counts["all"],
    }
    if request.headers.get("HX-Request") == "true":
        return render(request, "teams/_latest_runs.html", context)
    pins = pins_shown(project)
    pinned = {"pins": pins, "api": "/api/v1", "plotly": static(PLOTLY)}
    return render(request, "teams/project.html", {**context, "pins": pins, "pinned": pinned})


@require_GET
def styleguide(request: HttpRequest) -> HttpResponse:
    """Every component on one page; only where TILTYARD_DEBUG is set."""
    if not settings.DEBUG:
        raise Http404
    return render(request, "styleguide.html", {"member_form": MemberForm({"username": "no spaces!", "role": "x"})})
