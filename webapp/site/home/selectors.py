"""The data of the front page and of a project at a glance."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.db.models import Count, Max, Model, OuterRef, Q, QuerySet, Subquery
from django.utils import timezone
from django.utils.translation import gettext as _

from training.config import RewardComponent
from webapp.common.pages import url_or_none
from webapp.datasets.models import Dataset, DatasetState
from webapp.environments.models import Environment
from webapp.people.teams.access import projects_of
from webapp.people.teams.models import DEMO, Project, User
from webapp.rewards.models import RewardSpec
from webapp.runs.config import title_of
from webapp.runs.models import Run
from webapp.runs.registry.models import RegisteredModel
from webapp.runs.states import LEASED, TERMINAL

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
    """How many runs a project has, how many of them are still ``open``, and how many names of each kind of object."""
    runs = Run.objects.filter(project=OuterRef("pk")).order_by().values("project")
    still = Count("pk", filter=~Q(state__in=TERMINAL))
    asked = {
        "all": Subquery(runs.annotate(number=Count("pk")).values("number")),
        "open": Subquery(runs.annotate(number=still).values("number")),
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
