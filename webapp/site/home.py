"""The front page, a project at a glance, and the styleguide."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, cast
from uuid import UUID

from django.conf import settings
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.db.models import Count, Max, Model, OuterRef, Q, QuerySet, Subquery
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.templatetags.static import static
from django.utils import timezone
from django.utils.cache import patch_vary_headers
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET, require_POST

from training.config import RewardComponent
from webapp.common.pages import url_or_none
from webapp.common.static_files import PLOTLY
from webapp.datasets.models import Dataset, DatasetState
from webapp.environments.models import Environment
from webapp.evaluation.suites.services import leaders_of
from webapp.people.notifications.selectors import news_of
from webapp.people.teams.access import object_for, project_for, projects_of
from webapp.people.teams.models import DEMO, Project, Role, User
from webapp.people.teams.selectors import teams_owned
from webapp.people.teams.views import MemberForm
from webapp.rewards.models import RewardSpec
from webapp.runs.config import title_of
from webapp.runs.models import Run
from webapp.runs.pins.models import PinnedChart
from webapp.runs.pins.services import chart_unpin, pins_shown
from webapp.runs.records.columns import SHORT, columns_named, heads, table_rows
from webapp.runs.records.listing import run_lines, runs_sorted
from webapp.runs.registry.models import RegisteredModel
from webapp.runs.states import LEASED, TERMINAL, RunState

NEWEST = 4
DEMO_TAKES = timedelta(minutes=3)
SHELVED: tuple[type[Model], ...] = (Dataset, RewardSpec, Environment, RegisteredModel)


@dataclass
class Shelf:
    """One kind of object on the project's overview: how many, the newest, and what to do when there are none."""

    title: str
    icon: str
    count: int
    newest: list[tuple[Any, str, str]]  # object, address, a few words about it
    url: str | None
    new_url: str | None
    new_label: str
    empty: str


def home_projects(user: User) -> QuerySet[Project]:
    """The person's projects, with how many runs each has and how many are at work."""
    return projects_of(user).annotate(
        run_count=Count("runs", distinct=True),
        active_count=Count("runs", filter=Q(runs__state__in=LEASED), distinct=True),
        last_run_at=Max("runs__created_at"),
    )


def project_counts(project: Project) -> dict[str, int]:
    """How many runs a project has, how many of them are still ``open``, ``working``, ``waiting`` or ``paused``, and
    how many names of each kind of object."""
    runs = Run.objects.filter(project=OuterRef("pk")).order_by().values("project")
    states = {
        "all": Q(),
        "open": ~Q(state__in=TERMINAL),
        "working": Q(state__in=LEASED),
        "waiting": Q(state=RunState.QUEUED) | Q(state=RunState.DRAFT) & ~Q(phase=""),
        "paused": Q(state=RunState.PAUSED),
    }
    asked = {
        **{name: Subquery(runs.annotate(n=Count("pk", filter=wanted)).values("n")) for name, wanted in states.items()},
        **{model.__name__: _named_in(model) for model in SHELVED},
    }
    found = Project.objects.filter(pk=project.pk).values_list(*asked.values()).get()
    return {name: count or 0 for name, count in zip(asked, found, strict=True)}


def demo_is_pending(project: Project, counts: dict[str, int]) -> bool:
    """Whether ``manage.py demo`` may still be writing the data of this project's first runs."""
    return not counts["all"] and project.name == DEMO and timezone.now() - project.created_at < DEMO_TAKES


def shelves(project: Project, counts: dict[str, int]) -> list[Shelf]:
    """Datasets, rewards, environments and models of a project."""
    makers = (_datasets_shelf, _rewards_shelf, _environments_shelf, _models_shelf)
    return [make(project, counts[model.__name__]) for model, make in zip(SHELVED, makers, strict=True)]


def _shelf_of(
    project: Project, name: str, rows: QuerySet[Any], count: int, words: Callable[[Any], str], **texts: str
) -> Shelf:
    """The newest of ``rows``, newest first, with the addresses of their pages and a few words about each."""
    everything = url_or_none(f"{name}-list", project.slug)
    newest = [
        (row, url_or_none(f"{name}-detail", project.slug, row.pk) or everything or "", words(row))
        for row in rows.order_by("-created_at")[:NEWEST]
    ]
    new_url = url_or_none(f"{name}-new", project.slug)
    return Shelf(icon=f"{name}s", count=count, newest=newest, url=everything, new_url=new_url, **texts)


def _named_in(model: type[Model]) -> Subquery:
    """How many names a project has of these, not counting versions."""
    rows = model._default_manager.filter(project=OuterRef("pk")).order_by().values("project")
    return Subquery(rows.annotate(names=Count("name", distinct=True)).values("names"))


def _datasets_shelf(project: Project, count: int) -> Shelf:
    rows = Dataset.objects.filter(project=project)
    return _shelf_of(
        project,
        "dataset",
        rows,
        count,
        _rows_words,
        title=_("Datasets"),
        new_label=_("Upload a dataset"),
        empty=_("JSON Lines or Parquet with the tasks to train on. Every row is checked before it is used."),
    )


def _rows_words(dataset: Dataset) -> str:
    """How many rows a dataset has, or why that is not known yet."""
    ready = dataset.state == DatasetState.READY
    return _("%(n)s rows") % {"n": f"{dataset.rows:,}"} if ready else str(dataset.get_state_display())


def _component_titles(components: list[dict[str, Any]]) -> list[str]:
    return [title_of(RewardComponent.model_validate(item)) for item in components]


def _rewards_shelf(project: Project, count: int) -> Shelf:
    rows = RewardSpec.objects.filter(project=project)
    return _shelf_of(
        project,
        "reward",
        rows,
        count,
        lambda r: " · ".join(_component_titles(r.components[:3])),
        title=_("Rewards"),
        new_label=_("Create a reward spec"),
        empty=_("A named list of weighted components. Try it on a conversation before you train with it."),
    )


def _environments_shelf(project: Project, count: int) -> Shelf:
    rows = Environment.objects.filter(project=project)
    return _shelf_of(
        project,
        "environment",
        rows,
        count,
        lambda e: str(e.server_name),
        title=_("Environments"),
        new_label=_("Register a server"),
        empty=_("The servers that rollouts act in. Register one by its address; its health is monitored from then on."),
    )


def _models_shelf(project: Project, count: int) -> Shelf:
    rows = RegisteredModel.objects.filter(project=project)
    return _shelf_of(
        project,
        "model",
        rows,
        count,
        lambda m: str(m.get_kind_display()),
        title=_("Models"),
        new_label=_("Register a model"),
        empty=_("What runs start from: a local folder, a Hugging Face model, or the model of an earlier run."),
    )


# Taking a pinned chart off the project's page.


@login_required
@require_POST
def pin_remove(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """Unpin a chart; its run keeps it."""
    project = project_for(request.user, slug, need=Role.EDITOR)
    chart_unpin(pin=object_for(request.user, PinnedChart, pk, need=Role.EDITOR, project=project))
    messages.success(request, _("The chart is no longer pinned. It stays on its run's page."))
    return redirect("project-page", slug=slug)


NEWEST_RUNS = 6
LEADERS = 4  # suites


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
    """What happened in a project since the reader was there, what is at work, and its newest runs."""
    project = project_for(request.user, slug)
    counts, shown = project_counts(project), heads(columns_named(SHORT))
    context = {
        "project": project,
        "lines": table_rows(run_lines(_newest_runs(project), user=None, trends=True), shown, slug),
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
    news = news_of(cast(User, request.user), project)
    return render(request, "teams/project.html", {**context, "pins": pins, "pinned": pinned, "news": news})


def _newest_runs(project: Project) -> list[UUID]:
    """The newest runs; evaluations that have ended only where there is nothing else, since they outnumber trainings and
    are shown by suite."""
    newest = runs_sorted(project, {}, "-created", user=None).values_list("pk", flat=True)
    others = newest.exclude(kind="evaluate", state__in=TERMINAL)[:NEWEST_RUNS]
    return list(others) or list(newest[:NEWEST_RUNS])


@login_required
@require_GET
def project_shelves(request: HttpRequest, slug: str) -> HttpResponse:
    """The best contestant of each suite, and what a project has: the lower part of its page, or a page of its own."""
    project = project_for(request.user, slug)
    context = {
        "project": project,
        "leaders": leaders_of(project, LEADERS),
        "shelves": shelves(project, project_counts(project)),
    }
    part = request.headers.get("HX-Request") == "true"
    response = render(request, "teams/_shelves.html" if part else "teams/shelves.html", context)
    patch_vary_headers(response, ["HX-Request"])
    return response


@require_GET
def styleguide(request: HttpRequest) -> HttpResponse:
    """Every component on one page; only where TILTYARD_DEBUG is set."""
    if not settings.DEBUG:
        raise Http404
    return render(request, "styleguide.html", {"member_form": MemberForm({"username": "no spaces!", "role": "x"})})
