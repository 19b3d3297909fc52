"""What the palette finds for what a person types, as JSON."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, cast
from urllib.parse import urlencode

from django.contrib.auth.decorators import login_required
from django.db.models import Case, IntegerField, Q, QuerySet, Value, When
from django.http import HttpRequest, JsonResponse
from django.urls import reverse
from django.utils.functional import Promise
from django.utils.translation import get_language, gettext_lazy, ngettext
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET
from pydantic.fields import FieldInfo

from training.config import DEFAULT_KIND, METHODS, JobConfig
from webapp.common.pages import addresses_of
from webapp.common.text import translated
from webapp.datasets.models import Dataset
from webapp.environments.models import Environment
from webapp.evaluation.suites.models import Suite
from webapp.launch.forms import option_groups
from webapp.people.teams.access import can_edit, project_for, projects_of
from webapp.people.teams.models import Project, User
from webapp.people.teams.selectors import teams_owned
from webapp.reading.inspector.filters import TEXT_MAX
from webapp.reading.inspector.hits import Hit, newest_hits
from webapp.rewards.models import RewardSpec
from webapp.runs.advisories.selectors import diagnosis_view
from webapp.runs.models import Run
from webapp.runs.registry.models import RegisteredModel
from webapp.site.rail import RAIL, pages_for

# What the palette lists: items in groups, as its script reads them.


@dataclass(frozen=True)
class Item:
    """A line that leads somewhere. ``about`` is a few words next to the title; ``state`` draws a dot, whose word is
    ``state_word``. ``said`` is the part of the title that was searched, between two others, where the title is a text
    that someone wrote."""

    title: str
    url: str
    about: str = ""
    icon: str = ""
    state: str = ""
    state_word: str = ""
    said: tuple[str, str, str] | None = None


@dataclass(frozen=True)
class Group:
    """Items under a heading. ``note`` says what was not searched."""

    title: str
    items: Sequence[Item]
    note: str = ""

    def as_json(self) -> dict[str, Any]:
        """The group for the script."""
        return asdict(self)


def fits(text: str, phrase: str) -> bool:
    """Whether a text has each word of a phrase, upper or lower case."""
    within = text.casefold()
    return all(word in within for word in phrase.casefold().split())


def fitting(items: Iterable[Item], phrase: str, most: int) -> list[Item]:
    """The first items whose title or words fit; those whose title fits come first."""
    found = [item for item in items if fits(f"{item.title} {item.about}", phrase)]
    return sorted(found, key=lambda item: not fits(item.title, phrase))[:most]


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
    """Runs of a project by name."""
    rows = _runs_named(phrase).filter(project=project).select_related("examination")
    shown = rows.only("name", "state", "examination__diagnosis")[:RUNS_MOST]
    address = addresses_of("run-detail", project.slug)
    return [_run_item(run, address(run.pk), getattr(diagnosis_view(run), "title", "")) for run in shown]


def runs_anywhere(user: User, phrase: str) -> list[Item]:
    """Runs of all projects of a person by name, each with the name of its project."""
    rows = _runs_named(phrase).filter(project__in=projects_of(user)).select_related("project")
    shown = rows.only("name", "state", "project__name", "project__slug")[:RUNS_MOST]
    return [_run_item(run, reverse("run-detail", args=[run.project.slug, run.pk]), run.project.name) for run in shown]


def _runs_named(phrase: str) -> QuerySet[Run]:
    """Those that begin with the phrase first, then the newest."""
    begins = Case(When(name__istartswith=phrase, then=Value(0)), default=Value(1), output_field=IntegerField())
    order = [begins, "-created_at"] if phrase else ["-created_at"]
    return Run.objects.filter(named(phrase)).order_by(*order)


def _run_item(run: Run, url: str, about: str) -> Item:
    return Item(run.name, url, about, state=run.state, state_word=str(run.get_state_display()))


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


# Pages and actions of the palette, and the options of a run: only those that the reader may open.

# Label, icon, address name: what editors and owners may do in a project.
ACTIONS: tuple[tuple[Promise, str, str], ...] = (
    (gettext_lazy("New run"), "play", "run-new"),
    (gettext_lazy("Import a run"), "upload", "run-import"),
    (gettext_lazy("Upload a dataset"), "upload", "dataset-new"),
    (gettext_lazy("Create a reward spec"), "plus", "reward-new"),
    (gettext_lazy("Register a server"), "plus", "environment-new"),
    (gettext_lazy("Register a model"), "plus", "model-new"),
    (gettext_lazy("Add an endpoint"), "plus", "endpoint-new"),
    (gettext_lazy("New suite"), "plus", "suite-new"),
    (gettext_lazy("Start a chat"), "chat", "chat-new"),
)
# The pages of a person, whatever the project.
ACCOUNT: tuple[tuple[Promise, str, str], ...] = (
    (gettext_lazy("Notifications"), "bell", "notification-list"),
    (gettext_lazy("Notification settings"), "bell", "notification-settings"),
    (gettext_lazy("API tokens"), "link", "token-list"),
    (gettext_lazy("Change password"), "user", "set-password"),
)


def pages_of(project: Project) -> Iterator[Item]:
    """The pages of the rail, and what the reader may do in the project."""
    for group in RAIL:
        pages = pages_for(project, group)
        for page in pages:
            about = str(group.label) if len(pages) > 1 else ""
            title = str(page.label if about else group.label)
            yield Item(title, page.url(project), "" if about == title else about, group.icon)
    if can_edit(project):
        yield from (Item(str(label), reverse(name, args=[project.slug]), icon=icon) for label, icon, name in ACTIONS)


def account_pages(user: User) -> Iterator[Item]:
    """The person's own pages, and those of the installation for its administrators."""
    yield Item(_("All projects"), f"{reverse('home')}?all=1", icon="home")
    if teams_owned(user).exists():
        yield Item(_("New project"), reverse("project-new"), icon="plus")
    own = _("Your account")
    yield from (Item(str(label), reverse(name), own, icon) for label, icon, name in ACCOUNT)
    yield Item(_("API reference"), reverse("api-docs"), icon="info")
    yield Item(_("Workers"), reverse("worker-list"), icon="runs")
    yield Item(_("Usage"), reverse("device-usage"), icon="columns")
    if user.is_superuser:
        yield Item(_("This installation"), reverse("site"), icon="settings")


class Option(NamedTuple):
    """An option of a run in the reader's language. ``kind`` is a method that has it, ``words`` what may be typed."""

    path: str
    title: str
    group: str
    kind: str
    words: str


def options_found(project: Project, phrase: str, most: int) -> list[Item]:
    """Options whose name, title or help has the words, those of short titles first, each with its place in the form."""
    found = [each for each in _options(get_language()) if fits(each.words, phrase)]
    found.sort(key=lambda each: (not fits(f"{each.path} {each.title}", phrase), len(each.title)))
    form = reverse("run-new", args=[project.slug])
    return [
        Item(f"{each.group} · {each.title}", f"{form}?kind={each.kind}#id_{each.path}", each.path, "settings")
        for each in found[:most]
    ]


@functools.cache
def _options(_language: str | None) -> tuple[Option, ...]:
    """All options. There are two hundred, and a translation looks each of their texts up."""
    head = [("", None, JobConfig.model_fields["kind"], "kind")]
    grouped = [
        (name, group, info, key) for name, model, group in option_groups() for key, info in model.model_fields.items()
    ]
    return tuple(_option(*each) for each in (*head, *grouped))


def _option(name: str, group: FieldInfo | None, info: FieldInfo, key: str) -> Option:
    title, about = translated(info.title), translated(info.description or "")
    path = f"{name}.{key}" if name else key
    kinds = [kind for kind, method in METHODS.items() if not name or name in method.groups]
    return Option(
        path=path,
        title=title,
        group=translated(group.title) if group is not None else _("New run"),
        kind=DEFAULT_KIND if DEFAULT_KIND in kinds or not kinds else kinds[0],
        words=f"{path} {path.replace('_', ' ')} {title} {about}".casefold(),
    )


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
    """Outside of a project: the person's projects, their runs, and their own pages."""
    if request.GET.get("part") == "texts":
        return _answer([])
    user, phrase = cast(User, request.user), _phrase(request)
    pages = fitting(account_pages(user), phrase, PROJECTS_MOST)
    groups = [
        Group(_("Projects"), _projects(user, phrase)),
        Group(_("Runs") if phrase else _("Latest runs"), runs_anywhere(user, phrase)),
        Group(_("Pages and actions"), pages),
    ]
    return _answer(groups)


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
