"""Pages of suites."""

from __future__ import annotations

from typing import cast
from uuid import UUID

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import ValidationError
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from training.errors import ConfigError
from webapp.common.pages import add_errors
from webapp.evaluation.suites import forms, services
from webapp.evaluation.suites.contestants import contestants_offered, may_play
from webapp.evaluation.suites.models import Suite, SuiteVersion
from webapp.evaluation.suites.results import SuiteBoard, board_of
from webapp.people.teams.access import can_edit, object_for, project_for
from webapp.people.teams.models import Project, Role, User
from webapp.runs.models import Run

SHOWN = 100


def _suite_of(request: HttpRequest, project: Project, pk: UUID, need: Role = Role.VIEWER) -> Suite:
    return object_for(request.user, Suite, pk, need=need, within=Suite.objects.filter(project=project), project=project)


@login_required
@require_GET
def suite_list(request: HttpRequest, slug: str) -> HttpResponse:
    """The project's suites, each with the best that has played its newest version."""
    project = project_for(request.user, slug)
    rows: list[tuple[Suite, SuiteBoard]] = []
    for suite in Suite.objects.filter(project=project)[:SHOWN]:
        newest = suite.versions.first()
        if newest is not None:
            rows.append((suite, board_of(newest, judged=False)))
    return render(request, "suites/list.html", {"project": project, "rows": rows, "can_edit": can_edit(project)})


@login_required
@require_http_methods(["GET", "POST"])
def suite_new(request: HttpRequest, slug: str) -> HttpResponse:
    """A new suite; ``c`` names evaluations that it repeats, as the address of a comparison does."""
    project = project_for(request.user, slug, need=Role.EDITOR)
    if request.method == "POST":
        return _save_suite(request, project, None)
    ids = [value for value in request.GET.getlist("c")[: forms.MOST_ROWS] if forms.is_uuid(value)]
    runs = [run for run in Run.objects.filter(project=project, pk__in=ids) if run.method.evaluates]
    common, rows = forms.rows_of_runs(runs)
    return _render_form(request, project, forms.SuiteForm(initial=common), forms.part_forms(project, rows=rows))


@login_required
@require_http_methods(["GET", "POST"])
def suite_edit(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """Change a suite: other parts make a new version."""
    project = project_for(request.user, slug, need=Role.EDITOR)
    version = _version_of(_suite_of(request, project, pk, Role.EDITOR), "")
    if request.method == "POST":
        return _save_suite(request, project, version)
    common, rows = forms.rows_of_version(version)
    form = forms.SuiteForm(initial=common, version=version)
    return _render_form(request, project, form, forms.part_forms(project, rows=rows), version)


def _save_suite(request: HttpRequest, project: Project, version: SuiteVersion | None) -> HttpResponse:
    form = forms.SuiteForm(request.POST, version=version)
    rows = forms.part_forms(project, request.POST, forms.rows_of_version(version)[1] if version else None)
    whole = [form.is_valid(), *[row.is_valid() for row in rows]]
    if not all(whole):
        return _render_form(request, project, form, rows, version, status=422)
    common, user = form.cleaned_data, cast(User, request.user)
    parts = forms.parts_from(project, common, rows, version)
    try:
        if version is None:
            made = services.suite_create(
                project=project, user=user, name=common["name"], note=common["note"], parts=parts
            )
            messages.success(request, _("%(name)s is saved. Have a model play it.") % {"name": made.suite.name})
        else:
            made, new = services.suite_change(suite=version.suite, user=user, parts=parts, note=common["note"])
            said = (
                _("Version %(n)d is saved; it begins without scores.") if new else _("Saved; the parts are the same.")
            )
            messages.success(request, said % {"n": made.number} if new else said)
    except ValidationError as exc:
        add_errors(form, exc)
        return _render_form(request, project, form, rows, version, status=422)
    return redirect("suite-detail", slug=project.slug, pk=made.suite_id)


def _render_form(
    request: HttpRequest,
    project: Project,
    form: forms.SuiteForm,
    rows: list[forms.PartForm],
    version: SuiteVersion | None = None,
    status: int = 200,
) -> HttpResponse:
    context = {"project": project, "form": form, "rows": rows, "version": version}
    return render(request, "suites/form.html", context, status=status)


def _version_of(suite: Suite, raw: str) -> SuiteVersion:
    rows = suite.versions.order_by("-number")
    found = rows.filter(number=int(raw)).first() if raw.isascii() and raw.isdigit() and len(raw) < 9 else rows.first()
    if found is None:
        raise Http404
    return found


@login_required
@require_GET
def suite_detail(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """A version of a suite with its leaderboard."""
    project = project_for(request.user, slug)
    suite, asked = _suite_of(request, project, pk), request.GET.get("version", "")
    versions = list(suite.versions.order_by("-number")[:SHOWN])
    listed = (item for item in versions if asked in ("", str(item.number)))
    version = next(listed, None) or _version_of(suite, asked)
    board = board_of(version)
    context = {
        "project": project,
        "suite": suite,
        "version": version,
        "versions": versions,
        "board": board,
        "compare": _compare_links(project, board),
        "offered": contestants_offered(project) if can_edit(project) else [],
        "chosen": request.GET.get("contestant", "")[:200],
        "can_edit": can_edit(project),
    }
    return render(request, "suites/detail.html", context)


def _compare_links(project: Project, board: SuiteBoard) -> list[tuple[str, str]]:
    """For each part a comparison of the board's first contestants, task by task."""
    links = []
    for place, part in enumerate(board.version.parts):
        runs = [line.parts[place].run for line in board.lines[:8]]
        ids = [str(run.pk) for run in runs if run is not None]
        if len(ids) > 1:
            address = reverse("compare", args=[project.slug])
            links.append((str(part["title"]), f"{address}?{'&'.join(f'c={one}' for one in ids)}"))
    return links


@login_required
@require_POST
def suite_evaluate_view(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """Have a contestant play the newest version."""
    project = project_for(request.user, slug, need=Role.EDITOR)
    suite = _suite_of(request, project, pk, Role.EDITOR)
    contestant = request.POST.get("contestant", "")[:200]
    version = _version_of(suite, "")
    try:
        if not may_play(contestant):
            raise ValidationError(_("Choose who plays."))
        made = services.suite_evaluate(version=version, contestant=contestant, user=cast(User, request.user))
    except ValidationError as exc:
        messages.error(request, " ".join(exc.messages))
    except ConfigError as exc:
        messages.error(request, exc.message)
    else:
        said = _("%(n)d evaluations are queued; their score is shown here once all have ended.")
        messages.success(request, said % {"n": made.runs.count()})
    return redirect("suite-detail", slug=slug, pk=pk)


@login_required
@require_POST
def suite_delete_view(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """Delete a suite; the runs that played it stay."""
    project = project_for(request.user, slug, need=Role.EDITOR)
    suite = _suite_of(request, project, pk, Role.EDITOR)
    services.suite_delete(suite=suite)
    messages.success(request, _("%(name)s is deleted; the runs that played it stay.") % {"name": suite.name})
    return redirect("suite-list", slug=slug)
