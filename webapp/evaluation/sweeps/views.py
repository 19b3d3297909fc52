"""Pages of sweeps: the list, and which change of a sweep brought which gain."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import NamedTuple
from uuid import UUID

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from webapp.common.pages import page_number
from webapp.evaluation.sweeps.answers import value_words
from webapp.evaluation.sweeps.board import board_of
from webapp.launch.models import Sweep, SweepRun
from webapp.launch.sweeps import axis_title, sweep_delete, sweep_forecast, sweeps_of
from webapp.people.teams.access import can_edit, own, project_for
from webapp.people.teams.models import Role
from webapp.people.teams.sudo import Act
from webapp.runs.removal.views import confirm_page
from webapp.runs.states import TERMINAL, RunState

PER_PAGE = 50


class Line(NamedTuple):
    """A sweep in the list: what it varies, and its runs by how they are."""

    sweep: Sweep
    axes: list[tuple[str, str]]
    runs: int
    ended: int
    lost: int


def _line(sweep: Sweep, states: Counter[str]) -> Line:
    axes = [(axis_title(axis.option), ", ".join(map(value_words, axis.values))) for axis in sweep.varied]
    ended = sum(count for state, count in states.items() if state in TERMINAL)
    return Line(sweep, axes, states.total(), ended, ended - states[RunState.SUCCEEDED])


@login_required
@require_GET
def sweep_list(request: HttpRequest, slug: str) -> HttpResponse:
    """The project's sweeps, the newest first."""
    project = project_for(request.user, slug)
    page = Paginator(sweeps_of(project), PER_PAGE).get_page(page_number(request.GET.get("page")))
    states: dict[UUID, Counter[str]] = {sweep.pk: Counter() for sweep in page}
    known = SweepRun.objects.filter(sweep__in=states, run__removed_at=None)
    for sweep, state in known.values_list("sweep", "run__state"):
        states[sweep][state] += 1
    lines = [_line(sweep, states[sweep.pk]) for sweep in page]
    context = {"project": project, "lines": lines, "page_obj": page, "can_edit": can_edit(project)}
    return render(request, "sweeps/list.html", context)


@login_required
@require_GET
def sweep_detail(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """Which change of a sweep brought which gain."""
    project, sweep = own(request, slug, Sweep, pk)
    context = {"project": project, "sweep": sweep, "board": board_of(sweep), "can_edit": can_edit(project)}
    return render(request, "sweeps/detail.html", context)


@login_required
@require_POST
def sweep_remove(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """Delete a sweep; its runs stay."""
    _project, sweep = own(request, slug, Sweep, pk, need=Role.EDITOR)
    sweep_delete(sweep=sweep)
    messages.success(request, _("%(name)s is deleted; its runs stay.") % {"name": sweep.name})
    return redirect("sweep-list", slug=slug)


@login_required
@require_http_methods(["GET", "POST"])
def sweep_remove_all(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """Delete a sweep with its runs and all that they recorded."""
    project, sweep = own(request, slug, Sweep, pk, need=Role.OWNER)
    back, then = reverse("sweep-detail", args=[slug, pk]), reverse("sweep-list", args=[slug])
    delete = partial(sweep_delete, sweep=sweep, with_runs=True)
    return confirm_page(request, project, sweep_forecast(sweep), Act.DELETE_RUN, delete, back, then)
