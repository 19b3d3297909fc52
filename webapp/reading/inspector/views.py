"""The rollouts of a run or a project: the address is the view."""

from __future__ import annotations

from typing import Any, cast
from urllib.parse import urlencode
from uuid import UUID

from django import forms
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import ValidationError
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.cache import patch_vary_headers
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from training.plain import number_in
from webapp.common.ids import name_validator
from webapp.common.pages import add_errors
from webapp.common.words import Outcome
from webapp.datasets.rollouts import MAX_GAP
from webapp.people.teams.access import can_edit, own, project_for
from webapp.people.teams.models import Project, Role, User
from webapp.reading.inspector import page
from webapp.reading.inspector.causes import NOT_SOLVED
from webapp.reading.inspector.clusters import Cluster, clusters_of
from webapp.reading.inspector.filters import (
    CHOICES,
    MEASURES,
    PART,
    Filters,
    Scope,
    Span,
    address_of,
    carried,
    filters_of,
    number_text,
    parse_uuid,
    project_scope,
    run_scope,
    without,
)
from webapp.reading.inspector.finding import Figures, View, categories_in, figures_of
from webapp.reading.inspector.models import SavedView
from webapp.reading.inspector.saving import TARGETS, found_save, view_delete, views_of, would_save
from webapp.runs.models import Run
from webapp.runs.numbering import changed
from webapp.runs.records.selectors import own_run
from webapp.runs.states import TERMINAL

NO_ROLLOUT = UUID(int=0)
"""In an address: the place of a rollout's id."""


def scope_of(request: HttpRequest, slug: str, pk: UUID | None, need: Role = Role.VIEWER) -> Scope:
    """The scope of an address, if the person may see it: a run, or runs of the project."""
    if pk is not None:
        return run_scope(*own_run(request, slug, pk, need=need))
    return project_scope(project_for(request.user, slug, need=need), request.GET.getlist("run"))


@login_required
@require_GET
def rollout_list(request: HttpRequest, slug: str, pk: UUID | None = None) -> HttpResponse:
    """Rollouts under the address's filters, with their distributions; the form asks for a part of this page again."""
    scope = scope_of(request, slug, pk)
    view = View(scope, filters_of(request.GET))
    followed = request.headers.get("HX-Target") == "found-list"
    if followed and not _has_advanced(view, request.GET.get("since", "")):
        return HttpResponse(status=204)
    titles = page.component_names(scope)
    figures = figures_of(view, list(titles))
    context = found_context(request, view, figures, titles)
    part = getattr(request, "htmx", None) and not request.htmx.history_restore_request  # type: ignore[attr-defined]
    if not part:
        everything = View(scope, Filters())  # the form offers all values, not only those under the filters
        context |= form_context(view, figures if view.filters == Filters() else figures_of(everything, []), titles)
    template = "_rows.html" if followed else "_found.html" if part else "list.html"
    response = render(request, f"inspector/{template}", context)
    patch_vary_headers(response, ["HX-Request", "HX-Target"])
    return response


def _has_advanced(view: View, since: str) -> bool:
    """Whether a page that follows a run has something to draw: a rollout began or advanced, or the run has ended."""
    run = view.scope.run
    if run is None or run.state in TERMINAL:
        return True
    return changed(view.rows, number_in(since, 18) or 0).order_by().exists()


def found_context(request: HttpRequest, view: View, figures: Figures, titles: dict[str, str]) -> dict[str, Any]:
    """The template's context of what was found: rows, counts, bars."""
    scope, filters = view.scope, view.filters
    rows, after = view.page(request.GET.get("after", "")[:300], page.PER_PAGE)
    pairs = filters.pairs()
    found = page.blocks(rows, filters)
    bar = page.step_bar(view, figures, rows)
    following = bar is not None and bar.following
    carries = carried(scope.run, pairs)
    failures = any(figures.of_outcome(item) for item in NOT_SOLVED)
    return {
        "project": scope.project,
        "run": scope.run,
        "scope": scope,
        "filters": filters,
        "searched": view.searched,
        "count": view.count,
        "chips": page.chips(view, counted=not rows),
        "histograms": page.drawn(figures, filters, titles),
        "sampled": figures.rows if figures.sampled else 0,
        "blocks": found,
        "bar": bar,
        "since": str(scope.run.seq) if scope.run is not None else "",
        "spread_open": bool(filters.spans.keys() - {"step"}),
        "chosen": parse_uuid(request.GET.get("rollout", "")) or page.first_to_read(found),
        "pane_url": f"{reverse('rollout-pane', args=[scope.project.slug, NO_ROLLOUT])}{carries}",
        "sorts": page.sort_links(filters),
        "next": f"?{urlencode([*pairs, ('after', after)])}" if after else "",
        "begun": bool(request.GET.get("after")),
        "here": f"?{urlencode(pairs)}",
        "opened": carries,
        "save_url": f"{address_of(scope.project, scope.run, 'rollouts-save')}?{urlencode(pairs)}",
        "causes_url": _causes_url(view) if failures and not following else "",
        "fresh_url": "" if following else _fresh_url(view),
        "can_edit": can_edit(scope.project),
    }


def _causes_url(view: View) -> str:
    """Where the causes of the view's failures are."""
    scope = view.scope
    return f"{address_of(scope.project, scope.run, 'rollouts-causes')}?{urlencode(view.filters.pairs())}"


@login_required
@require_GET
def rollout_causes(request: HttpRequest, slug: str, pk: UUID | None = None) -> HttpResponse:
    """Why rollouts of the view did not solve their task; a part of the list's page, or a page of its own."""
    scope = scope_of(request, slug, pk)
    filters = filters_of(request.GET)
    found = clusters_of(View(scope, filters))
    others = without(filters, ["cause"])
    here, save = address_of(scope.project, scope.run), address_of(scope.project, scope.run, "rollouts-save")
    context = {
        "project": scope.project,
        "run": scope.run,
        "found": found,
        "lines": [_cause_line(scope.run, cluster, others) for cluster in found.items],
        "here": here,
        "save": save,
        "everything": f"{here}?{urlencode(others)}",
        "chosen": filters.one("cause"),
        "can_edit": can_edit(scope.project),
    }
    part = request.headers.get("HX-Request") == "true"
    response = render(request, "inspector/_causes.html" if part else "inspector/causes.html", context)
    patch_vary_headers(response, ["HX-Request"])
    return response


def _cause_line(run: Run | None, cluster: Cluster, others: list[tuple[str, str]]) -> tuple[Cluster, str, str]:
    """A cluster, the query of the view of its rollouts, and that view as the pages of these carry it."""
    pairs = [*others, ("cause", cluster.cause)]
    return cluster, urlencode(pairs), carried(run, pairs)


def _fresh_url(view: View) -> str:
    """The address where the page of a run at work asks for new rollouts; empty for one that has ended, and for
    several."""
    run = view.scope.run
    if run is None or run.state in TERMINAL:
        return ""
    asked = urlencode([*view.filters.pairs(), ("since", str(run.seq))])
    return f"{address_of(view.scope.project, run, 'rollouts-fresh')}?{asked}"


def form_context(view: View, figures: Figures, titles: dict[str, str]) -> dict[str, Any]:
    """The template's context of the form."""
    scope = view.scope
    counts = dict(figures.values["outcome"])
    outcomes = [(item.value, counts.get(item.value, 0)) for item in Outcome]
    stages = [str(each["stage"]) for run in scope.runs for each in run.health.get("stages") or []]
    held_out = any("held_out" in run.health for run in scope.runs)
    measures = [(name, item.title, item.help) for name, item in MEASURES.items()]
    measures += [(f"{PART}{name}", title, "") for name, title in titles.items()]
    return {
        "on": {name: view.filters.one(name) for name in CHOICES},
        "outcomes": page.options(view, "outcome", outcomes),
        "tools": page.options(view, "tool", figures.values["tool"]),
        "boundaries": page.options(view, "boundary", figures.values["boundary"]),
        "categories": page.options(view, "category", categories_in(scope)),
        "stages": page.options(view, "stage", [(each, 0) for each in dict.fromkeys(stages)]),
        "held_out": held_out or bool(view.filters.one("held_out")),
        "runs": page.options(view, "run", [(str(run.pk), 0) for run in scope.runs]) if scope.run is None else [],
        "measures": [_measure_field(view.filters, *each) for each in measures],
        "bounded": bool(view.filters.spans.keys() - {"step"}),
        "steps": _step_range(scope, figures),
        "saved_views": views_of(scope),
    }


def _step_range(scope: Scope, figures: Figures) -> dict[str, int] | None:
    """The first and the last step of the slider; ``None`` where there is nothing to choose."""
    found = next((item for item in figures.histograms if item.name == "step"), None)
    if found is None:
        return None
    high = max(int(found.high), *(run.step for run in scope.runs))  # the figures may be a sample
    low = min(int(found.low), 1)
    return {"low": low, "high": high} if high > low else None


def _measure_field(filters: Filters, name: str, title: Any, about: Any) -> dict[str, Any]:
    span = filters.spans.get(name, Span())
    low, high, below = (None if value is None else number_text(value) for value in span)
    return {"name": name, "title": title, "help": about, "low": low, "high": high, "below": below}


@login_required
@require_GET
def rollouts_fresh(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """How many rollouts of the view began or continued since the page was made; asked while a run is at work."""
    scope = scope_of(request, slug, pk)
    since = number_in(request.GET.get("since", ""), 18) or 0
    view = View(scope, filters_of(request.GET))
    number = changed(view.rows, since).order_by()[:1000].count() if view.searched is None else 0
    context = {
        "number": number,
        "url": f"{address_of(scope.project, scope.run)}?{urlencode(view.filters.pairs())}",
        "again": request.get_full_path() if scope.run and scope.run.state not in TERMINAL else "",
    }
    return render(request, "inspector/_fresh.html", context)


# --- Saving views ---------------------------------------------------------------------------------------------------
# Pages that save what the inspector found, and that open or delete a named view.


class SaveForm(forms.Form):
    """The kind of object to save as, and its name."""

    kind = forms.ChoiceField(label=gettext_lazy("Save as"), widget=forms.RadioSelect)
    name = forms.CharField(
        label=gettext_lazy("Name"),
        max_length=80,
        validators=[name_validator],
        help_text=gettext_lazy("A dataset of this name gets a new version; earlier versions do not change."),
    )

    min_gap = forms.FloatField(
        label=gettext_lazy("Minimum gap"),
        required=False,
        min_value=0,
        max_value=MAX_GAP,
        help_text=gettext_lazy(
            "For preference pairs: reward of the better rollout minus that of the worse one. Empty: any difference, "
            "which may be noise."
        ),
    )

    def __init__(self, data: Any = None, kind: str = "view") -> None:
        super().__init__(data, initial={"kind": kind})
        cast(forms.ChoiceField, self.fields["kind"]).choices = [(item.kind, item.title) for item in TARGETS.values()]


@login_required
@require_http_methods(["GET", "POST"])
def rollouts_save(request: HttpRequest, slug: str, pk: UUID | None = None) -> HttpResponse:
    """Ask what to save the view as, and save it."""
    scope = scope_of(request, slug, pk, need=Role.EDITOR)
    view = View(scope, filters_of(request.GET))
    asked = request.GET.get("kind", "")
    form = SaveForm(request.POST if request.method == "POST" else None, asked if asked in TARGETS else "view")
    if form.is_valid():
        try:
            kept = found_save(view=view, user=cast(User, request.user), **form.cleaned_data)
        except ValidationError as exc:
            add_errors(form, exc)
        else:
            if kept.kind == "view":
                messages.success(request, _("Saved as “%(name)s”.") % {"name": kept.label})
            return redirect(kept.url)
    would = would_save(view)
    context = {
        "project": scope.project,
        "run": scope.run,
        "form": form,
        "targets": [(item, would.get(item.kind)) for item in TARGETS.values()],
        "chosen": form["kind"].value(),
        "count": view.count,
        "chips": page.chips(view),
        "back": f"{address_of(scope.project, scope.run)}?{urlencode(view.filters.pairs())}",
    }
    return render(request, "inspector/save.html", context, status=422 if form.errors else 200)


def _views_of(project: Project) -> QuerySet[SavedView]:
    return SavedView.objects.filter(project=project).select_related("project", "run")


@login_required
@require_GET
def view_open(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """The rollouts of a named view: its address stays when its filters change."""
    project, view = own(request, slug, SavedView, pk, within=_views_of)
    scope = run_scope(project, view.run) if view.run is not None else scope_of(request, slug, None)
    return redirect(f"{address_of(scope.project, scope.run)}?{view.query}")


@login_required
@require_POST
def view_delete_page(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """Delete a named view; rollouts and datasets stay."""
    project, view = own(request, slug, SavedView, pk, need=Role.EDITOR, within=_views_of)
    scope = run_scope(project, view.run) if view.run is not None else scope_of(request, slug, None)
    view_delete(view=view)
    return redirect(address_of(scope.project, scope.run))
