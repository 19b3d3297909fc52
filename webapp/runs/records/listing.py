"""The list of runs: which are shown, in which order, and what each line has, for its page, its CSV and the API."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from typing import Any, NamedTuple, get_args
from uuid import UUID

from django.contrib.postgres.aggregates import ArrayAgg
from django.core.paginator import Paginator
from django.db.models import (
    Count,
    DurationField,
    Exists,
    ExpressionWrapper,
    F,
    FloatField,
    OuterRef,
    Q,
    QuerySet,
    Subquery,
    Sum,
)
from django.db.models.fields.json import KeyTextTransform, KeyTransform
from django.db.models.functions import Cast, Coalesce, Now

from training.config import Kind, Reference, ReferenceKind, name_in
from webapp.common.answers import in_shape
from webapp.common.text import finite
from webapp.common.words import Failure, failure
from webapp.people.teams.models import Project, User
from webapp.runs import answers
from webapp.runs.advisories.selectors import DiagnosisView, diagnosis_words, open_count
from webapp.runs.config import having
from webapp.runs.metrics.selectors import sparklines
from webapp.runs.models import Attempt, Run, RunStar
from webapp.runs.records.marks import tags_of_rows
from webapp.runs.records.queue import Queued, read_queue
from webapp.runs.records.selectors import stalled, with_ages
from webapp.runs.reports import held_text
from webapp.runs.states import TERMINAL, RunState

PAGE_MAX = 200
ALL_MAX = 10_000
KINDS = frozenset(get_args(Kind))
UNREAD = ("resolved", "baselines", "evaluation")
"""Large columns that a line does not need."""
_UNREAD_BEFORE = [f"after__{field.name}" for field in Run._meta.fields if field.name not in {"id", "name", "state"}]
"""The columns that a line does not need of the run that this one waits for."""
_SOLVED = KeyTransform("success", KeyTransform("figures", "evaluation"))
_SUCCESS = Coalesce(Cast(KeyTextTransform("value", _SOLVED), FloatField()), F("success"))
_WORKED = Coalesce("ended_at", Now()) - F("started_at")
_DEVICE = Attempt.objects.filter(run=OuterRef("pk")).order_by().values("run").annotate(all=Sum(_WORKED)).values("all")


def _config_option(group: str, name: str) -> KeyTextTransform:
    return KeyTextTransform(name, KeyTransform(group, "config"))


SORTS: dict[str, Any] = {
    "created": F("created_at"),
    "started": F("started_at"),
    "name": F("name"),
    "state": F("state"),
    "step": F("step"),
    "reward": F("last_reward"),
    "success": _SUCCESS,
    "heldout": F("heldout_success"),
    "owner": F("created_by__username"),
    "spec": _config_option("rewards", "spec"),
    "model": _config_option("model", "source"),
    "dataset": _config_option("data", "train"),
    "duration": ExpressionWrapper(Coalesce("finished_at", Now()) - F("started_at"), output_field=DurationField()),
    "device": Subquery(_DEVICE, output_field=DurationField()),
}


@dataclass(frozen=True)
class RunRow:
    """One line of the list of runs. ``success`` is the newest step's, or of all tasks where an evaluation has ended;
    then ``success_range`` is its interval. ``spec`` is empty where no saved spec rewards; then ``own_parts`` says
    whether the config has components of its own. ``sweep``: id and name of the one that it belongs to."""

    run: Run
    view: dict[str, Any]
    owner: str
    starred: bool
    success: float | None
    success_range: tuple[float, float] | None
    heldout: float | None
    spec: str
    own_parts: bool
    model: str
    dataset: str
    duration_seconds: float | None
    device_seconds: float | None
    sparkline: list[float | None]
    advisories: int = 0
    diagnosis: DiagnosisView | None = None
    queue: Queued | None = None
    sweep: tuple[UUID, str] | None = None

    @cached_property
    def failure(self) -> Failure | None:
        """Its error in the reader's words, made for those who show it."""
        return failure(self.view["error"])

    @property
    def stalled(self) -> bool:
        """Whether its trainer has been silent for too long."""
        return stalled(self.run)

    @property
    def held(self) -> str:
        """The reason why its step waits; empty when it does not wait."""
        return held_text(self.run.held, short=True)


@dataclass(frozen=True)
class RunPage:
    """One page of the list, and how many runs there are on all."""

    rows: list[RunRow]
    total: int
    page: int
    pages: int


def run_list(
    project: Project,
    filters: Mapping[str, Any] | None = None,
    sort: str = "-created",
    page: int = 1,
    per_page: int = 50,
    *,
    user: User | None = None,
    trends: bool = True,
) -> RunPage:
    """A page of the project's runs, in a constant number of queries, with the stars of ``user``. Without
    ``trends`` no row has a ``sparkline``: for those all steps are read.

    ``filters`` knows ``state`` (a state, or ``active``), ``kind``, ``owner`` (user name), ``q`` (part of the name or of
    the notes), ``tags`` (a list: all of them), ``spec`` (``name@version``), ``sweep`` (an id), ``starred``, and
    ``archived``: without it archived runs are left out, with it only they are shown. ``sort`` is a key of ``SORTS``,
    with ``-`` for the highest first. Unknown ones are ignored.
    """
    ids = runs_sorted(project, filters or {}, sort, user=user).values_list("pk", flat=True)
    pages = Paginator(ids, max(1, min(per_page, PAGE_MAX)))
    shown = pages.get_page(page)
    return RunPage(run_lines(list(shown), user=user, trends=trends), pages.count, shown.number, pages.num_pages)


def runs_sorted(project: Project, filters: Mapping[str, Any], sort: str, *, user: User | None) -> QuerySet[Run]:
    """The runs of the list in their order, without the values of a line: ``run_lines`` works them out for those that
    are shown, not for all before them."""
    return _sort_rows(filtered(Run.objects.filter(project=project), filters, user), sort)


def run_lines(ids: Sequence[UUID], *, user: User | None, trends: bool) -> list[RunRow]:
    """The lines of runs, in the order of their ids."""
    read = {run.pk: run for run in _with_line_columns(Run.objects.filter(pk__in=ids), user).order_by()}
    found = [read[pk] for pk in ids if pk in read]  # one may be deleted between the two reads
    drawn = sparklines(run.pk for run in found) if trends else {}
    queue = read_queue() if any(run.state == RunState.QUEUED for run in found) else None
    return [_run_row(run, drawn.get(run.pk, []), queue.queued(run.pk) if queue is not None else None) for run in found]


def run_rows(
    project: Project, filters: Mapping[str, Any], sort: str, *, user: User, chosen: Sequence[UUID] | None = None
) -> Iterator[RunRow]:
    """Every line of the list, ``ALL_MAX`` at most, or those of the chosen runs, archived ones too."""
    rows = Run.objects.filter(project=project)
    rows = filtered(rows, filters, user) if chosen is None else rows.filter(pk__in=chosen)
    for run in _sort_rows(_with_line_columns(rows, user), sort)[:ALL_MAX].iterator(chunk_size=PAGE_MAX):
        yield _run_row(run, [])


class Around(NamedTuple):
    """The list's data besides its lines: how many runs it hides, and who owns any of the project's."""

    archived: int
    owners: list[str]


def around(project: Project) -> Around:
    """Both in one query."""
    name = "created_by__username"
    owned = Q(created_by__isnull=False)
    hidden = Count("pk", filter=Q(archived_at__isnull=False))
    owners = ArrayAgg(name, filter=owned, distinct=True, order_by=name, default=[])
    found = project.runs.order_by().aggregate(hidden=hidden, owners=owners)
    return Around(found["hidden"], found["owners"])


def run_tags(project: Project) -> list[str]:
    """Every tag that a run of the project has, by name."""
    return tags_of_rows(Run.objects.filter(project=project))


def filtered(rows: QuerySet[Run], filters: Mapping[str, Any], user: User | None = None) -> QuerySet[Run]:
    """The runs that ``filters`` of ``run_list`` leave."""
    state, kind, owner, text, spec = (
        _clean_filter(filters.get(key)) for key in ("state", "kind", "owner", "q", "spec")
    )
    if state == "active":
        rows = rows.exclude(state__in=TERMINAL).exclude(state=RunState.DRAFT, phase="")
    elif state in RunState.values:
        rows = rows.filter(state=state)
    if kind in KINDS:
        rows = rows.filter(kind=kind)
    if owner:
        rows = rows.filter(created_by__username=owner)
    if spec:
        rows = rows.filter(having("rewards", "spec", str(Reference("reward", spec))))
    if tags := [tag for tag in map(_clean_filter, filters.get("tags") or []) if tag]:
        rows = rows.filter(tags__contains=tags[:20])
    if sweep := _clean_filter(filters.get("sweep")):
        rows = _of_sweep(rows, sweep)
    if filters.get("starred") and user is not None:
        rows = rows.filter(Exists(RunStar.objects.filter(run=OuterRef("pk"), user=user)))
    rows = rows.filter(archived_at__isnull=not filters.get("archived"))
    return rows.filter(Q(name__icontains=text) | Q(notes__icontains=text)) if text else rows


def _of_sweep(rows: QuerySet[Run], sweep: str) -> QuerySet[Run]:
    """The runs of a sweep; none where the text is no id."""
    try:
        return rows.filter(sweep_run__sweep=UUID(sweep))
    except ValueError:
        return rows.none()


def _clean_filter(value: Any) -> str:
    return str(value or "")[:120].replace("\x00", "")


def _sort_rows(rows: QuerySet[Run], sort: str) -> QuerySet[Run]:
    key, down = sort.removeprefix("-"), sort.startswith("-")
    if key not in SORTS or key == "created":
        return rows.order_by("-created_at" if down or key not in SORTS else "created_at", "pk")  # as the index has them
    by = SORTS[key]
    return rows.order_by(by.desc(nulls_last=True) if down else by.asc(nulls_last=True), "-created_at", "pk")


def _with_line_columns(rows: QuerySet[Run], user: User | None) -> QuerySet[Run]:
    """The runs with every column of their lines but the trend."""
    starred = RunStar.objects.filter(run=OuterRef("pk"), user=user) if user else RunStar.objects.none()
    return (
        with_ages(rows)
        .select_related("after")
        .defer(*UNREAD, *_UNREAD_BEFORE)
        .annotate(solved=_SOLVED, starred=Exists(starred), device=SORTS["device"], advised=open_count())
        .annotate(owner=SORTS["owner"], diagnosed=F("examination__diagnosis"))
        .annotate(sweep_id=F("sweep_run__sweep"), sweep_name=F("sweep_run__sweep__name"))
    )


def _run_row(run: Run, trend: list[float | None], queue: Queued | None = None) -> RunRow:
    end = run.finished_at or getattr(run, "read_at", None)
    seconds = (end - run.started_at).total_seconds() if run.started_at and end else None
    view = in_shape(answers.RunState, run)
    solved: dict[str, Any] = getattr(run, "solved", None) or {}
    device: timedelta | None = getattr(run, "device", None)
    low, high = solved.get("low"), solved.get("high")
    whole = solved.get("value")
    return RunRow(
        run=run,
        view=view,
        owner=getattr(run, "owner", None) or "",
        starred=getattr(run, "starred", False),
        success=finite(run.success if whole is None else whole),
        success_range=None if low is None or high is None else (low, high),
        heldout=finite(run.heldout_success),
        spec=_config_name(run, "rewards", "spec", "reward"),
        own_parts=bool((run.config.get("rewards") or {}).get("components")),
        model=_config_name(run, "model", "source", "model"),
        dataset=_config_name(run, "data", "train", "dataset"),
        duration_seconds=seconds,
        device_seconds=None if device is None or run.imported_from else device.total_seconds(),
        sparkline=trend,
        advisories=getattr(run, "advised", None) or 0,
        diagnosis=diagnosis_words(getattr(run, "diagnosed", None)),
        queue=queue,
        sweep=(sweep, getattr(run, "sweep_name", "")) if (sweep := getattr(run, "sweep_id", None)) else None,
    )


def _config_name(run: Run, group: str, option: str, kind: ReferenceKind) -> str:
    """The object of this kind that the config names there, or what else it has there."""
    return name_in(kind, str((run.config.get(group) or {}).get(option) or ""))
