"""What the palette finds in a project: runs and other objects by name, tasks and rollouts by their text."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from django.db.models import Case, IntegerField, Q, QuerySet, Value, When
from django.urls import reverse
from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from webapp.common.pages import addresses_of
from webapp.datasets.models import Dataset
from webapp.environments.models import Environment
from webapp.evaluation.suites.models import Suite
from webapp.people.teams.models import Project
from webapp.reading.inspector.hits import Hit, newest_hits
from webapp.rewards.models import RewardSpec
from webapp.runs.advisories.selectors import diagnosis_view
from webapp.runs.models import Run
from webapp.runs.registry.models import RegisteredModel
from webapp.site.palette.items import Group, Item

RUNS_MOST, OBJECTS_MOST, TEXTS_MOST = 6, 4, 5


class Shelf(NamedTuple):
    """Objects of one kind; ``versioned``: a name has several rows, and the newest counts."""

    rows: QuerySet[Any]
    title: Promise
    icon: str
    url_name: str
    versioned: bool = False


SHELVES = (
    Shelf(Dataset.objects.all(), gettext_lazy("Datasets"), "datasets", "dataset-detail", versioned=True),
    Shelf(RewardSpec.objects.all(), gettext_lazy("Rewards"), "rewards", "reward-detail", versioned=True),
    Shelf(Environment.objects.all(), gettext_lazy("Environments"), "environments", "environment-detail"),
    Shelf(RegisteredModel.objects.all(), gettext_lazy("Models"), "models", "model-detail"),
    Shelf(Suite.objects.all(), gettext_lazy("Suites"), "compare", "suite-detail"),
)


def named(phrase: str) -> Q:
    """Rows whose name has each word of the phrase, upper or lower case."""
    wanted = Q()
    for word in phrase.split():
        wanted &= Q(name__icontains=word)
    return wanted


def runs_found(project: Project, phrase: str) -> list[Item]:
    """Runs by name: those that begin with the phrase first, then the newest."""
    begins = Case(When(name__istartswith=phrase, then=Value(0)), default=Value(1), output_field=IntegerField())
    order = [begins, "-created_at"] if phrase else ["-created_at"]
    rows = Run.objects.filter(named(phrase), project=project).order_by(*order).select_related("examination")
    shown = rows.only("name", "state", "examination__diagnosis")[:RUNS_MOST]
    address = addresses_of("run-detail", project.slug)
    return [_run_item(run, address(run.pk)) for run in shown]


def _run_item(run: Run, url: str) -> Item:
    diagnosis = diagnosis_view(run)
    return Item(
        run.name,
        url,
        diagnosis.title if diagnosis is not None else "",
        state=run.state,
        state_word=str(run.get_state_display()),
    )


def objects_found(project: Project, phrase: str) -> Iterable[Group]:
    """Datasets, reward specs, environments, models and suites by name: one query for all."""
    first, *others = [_rows_named(project, phrase, number) for number in range(len(SHELVES))]
    found: dict[int, list[Item]] = {number: [] for number in range(len(SHELVES))}
    for number, pk, name in first.union(*others, all=True):
        shelf = SHELVES[number]
        found[number].append(Item(name, reverse(shelf.url_name, args=[project.slug, pk]), icon=shelf.icon))
    return [Group(str(shelf.title), found[number]) for number, shelf in enumerate(SHELVES)]


def _rows_named(project: Project, phrase: str, number: int) -> QuerySet[Any]:
    """The number of a shelf, with id and name of each of its rows."""
    shelf = SHELVES[number]
    rows = shelf.rows.filter(named(phrase), project=project)
    rows = rows.order_by("name", "-version").distinct("name") if shelf.versioned else rows.order_by("name")
    return rows.annotate(shelf=Value(number)).values_list("shelf", "pk", "name")[:OBJECTS_MOST]


def texts_found(project: Project, phrase: str) -> list[Group]:
    """Tasks and rollouts whose text has the phrase."""
    hits = newest_hits(project, phrase, TEXTS_MOST)
    note = ""
    if hits.wordless:
        note = _("Search for at least one whole word or number, or two Chinese characters.")
    elif hits.runs is not None:
        note = ngettext("The newest %(n)d run was searched.", "The newest %(n)d runs were searched.", hits.runs)
        note %= {"n": hits.runs}
    if hits.cut:
        note = f"{note} {_('Many turns have these words; some older ones were not read.')}".strip()
    return [
        Group(_("Tasks"), [_hit_item(project, hit, task=True) for hit in hits.tasks]),
        Group(_("Rollout text"), [_hit_item(project, hit) for hit in hits.texts], note),
    ]


def _hit_item(project: Project, hit: Hit, *, task: bool = False) -> Item:
    """A task leads to the group that played it, a text to its turn."""
    rollout, (turn, *said) = hit.rollout, hit.snippet
    place = _("Step %(step)s, group %(group)s") % {"step": rollout.step, "group": rollout.group}
    if task and not rollout.held_out:
        url = reverse("run-group", args=[project.slug, rollout.run_id, rollout.step, rollout.group])
    else:
        url = f"{reverse('rollout-detail', args=[project.slug, rollout.pk])}#turn-{turn}"
    return Item(
        "".join(said),
        url,
        f"{rollout.run.name} · {place}",
        state=rollout.outcome if not task else "",
        state_word=str(rollout.get_outcome_display()) if not task else "",
        icon="tool" if task else "",
        said=(said[0], said[1], said[2]),
    )
