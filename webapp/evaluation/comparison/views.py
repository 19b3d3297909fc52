"""Pages that compare."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode

from django.conf import settings
from django.contrib.auth.decorators import login_required
from django.core.paginator import Page, Paginator
from django.db.models import F, Max, OuterRef, Subquery, Sum
from django.http import Http404, HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.template.loader import render_to_string
from django.templatetags.static import static
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET

from training.metrics import METRICS
from webapp.common.pages import page_number
from webapp.common.serving import csv_lines
from webapp.common.static_files import PLOTLY
from webapp.common.text import translated
from webapp.evaluation.comparison import figures, tasks
from webapp.evaluation.comparison.boards import boards
from webapp.evaluation.comparison.contestants import LEAST, Contestant, contestants_of
from webapp.evaluation.comparison.forest import Forest, leads, levels
from webapp.evaluation.comparison.rewards import Evaluations, Offer, Rewards, evaluations, offer_of
from webapp.evaluation.comparison.tasks import MOST_TRIES, Side, aligned, examples_of, played_tasks, texts_of
from webapp.evaluation.comparison.verdicts import Headline, Verdict, conclusions
from webapp.people.teams.access import project_for
from webapp.people.teams.models import Project
from webapp.runs.config import flat, plain
from webapp.runs.metrics.models import MetricPoint
from webapp.runs.metrics.selectors import curves_of
from webapp.runs.models import Attempt, Run
from webapp.runs.records.selectors import STEP_TIME, axes, played

# --- Options ---------------------------------------------------------------------------------------------------------
# The options in which several runs differ, by group.


class OptionRow(NamedTuple):
    """An option that is not the same for all; a value for each contestant, marked where it is not the first one's."""

    path: str
    values: list[tuple[str, bool]]
    names: list[str]

    @property
    def cells(self) -> list[tuple[str, str, bool]]:
        """Each value with the name of the contestant that has it."""
        return [(name, *value) for name, value in zip(self.names, self.values, strict=True)]


class OptionGroup(NamedTuple):
    """Options of one group of the config."""

    name: str
    rows: list[OptionRow]


def differing(contestants: Sequence[Contestant]) -> list[OptionGroup]:
    """The options that differ, as people wrote them: references, not their targets."""
    configs = [flat(item.run.config) for item in contestants]
    paths = list(dict.fromkeys(path for config in configs for path in config))
    names = [item.run.name for item in contestants]
    groups: dict[str, list[OptionRow]] = {}
    for path in paths:
        values = [config.get(path) for config in configs]
        if any(value != values[0] for value in values):
            row = OptionRow(path, [(plain(value), value != values[0]) for value in values], names)
            groups.setdefault(path.partition(".")[0], []).append(row)
    return [OptionGroup(name, rows) for name, rows in groups.items()]


# --- Report ---------------------------------------------------------------------------------------------------------
# A page of a comparison as one file that needs nothing else: to be sent, printed, kept.

STYLES = (
    "tokens.css",
    "base.css",
    *(f"components/{name}.css" for name in ("shell", "card", "table", "parts", "figures")),
    "pages/comparison.css",
)


def as_file(page: str, name: str, *more_styles: str) -> HttpResponse:
    """The page as a download that carries its style sheets; ``more_styles`` are those of its own."""
    # No page of ours has inline styles, but a standalone file cannot load a style sheet.
    folder = Path(settings.BASE_DIR) / "static" / "css"
    styles = "\n".join((folder / sheet).read_text(encoding="utf-8") for sheet in (*STYLES, *more_styles, "print.css"))
    answer = HttpResponse(page.replace("</head>", f"<style>{styles}</style></head>", 1))
    answer["Content-Disposition"] = f'attachment; filename="{name}"'
    return answer


# --- Curves ----------------------------------------------------------------------------------------------------------
# The curves of runs that train, over one axis for all: steps, time, rollouts or tokens. Runs that differ in their seed
# alone are one setting: the page draws their mean and range.

POINTS = 400
CURVES_SHOWN = (
    "heldout/success", "rollouts/task_success", "reward", "loss", "kl", "entropy", "completions/mean_length",
    "rollouts/excluded_share", "groups/zero_variance_share", "mean_token_accuracy",
)  # fmt: skip
SEED = "run.seed"


def overlay(contestants: Sequence[Contestant], charts: Sequence[str] = CURVES_SHOWN) -> dict[str, Any] | None:
    """The data that the page's script draws; ``None`` where fewer than two of them train.

    ``axes`` hold for each run what had gone by at the end of each step that it knows: hours, rollouts, tokens.
    """
    training = [item for item in contestants if item.run.method.trains]
    if len(training) < 2:
        return None
    comparable = all(figures.same_rewards(training[0].components, item.components) for item in training)
    names = [name for name in charts if name != "reward" or comparable]
    settings: list[str] = []
    runs: list[dict[str, Any]] = []
    drawn = curves_of([item.run for item in training], (names, POINTS), ([STEP_TIME], 10**6))
    known = played(item.run.pk for item in training)
    for item, found in zip(training, drawn, strict=True):
        key = _config_without_seed(item)
        if key not in settings:
            settings.append(key)
        runs.append(
            {
                "name": item.run.name,
                "number": item.number,
                "setting": settings.index(key),
                "axes": axes(found.get(STEP_TIME, {}), known.get(item.run.pk, [])),
                "curves": {
                    name: {"steps": found[name]["steps"], "values": found[name]["values"]}
                    for name in names
                    if name in found
                },
            }
        )
    shown = [name for name in names if any(name in run["curves"] for run in runs)]
    return {
        "runs": runs,
        "charts": [{"name": name, "title": translated(METRICS[name].title)} for name in shown],
        "plotly": static(PLOTLY),
        "rewards_differ": not comparable,
        "words": {"of": _("{name}: mean and range of {n} seeds")},
    }


def _config_without_seed(item: Contestant) -> str:
    config = flat(item.run.config)
    config.pop(SEED, None)
    return json.dumps(config, sort_keys=True, default=str)


# --- Tables ---------------------------------------------------------------------------------------------------------
# A comparison as tables for a spreadsheet.


def figures_csv(read: Evaluations) -> Iterator[str]:
    """A line for each figure of each contestant, named as in the API; rewards only where they may be compared."""
    header = ["run", "contestant", "figure", "value", "low", "high", "tasks"]
    return csv_lines(
        header,
        (
            (item.run.name, item.who, name, found.value, found.low, found.high, found.tasks)
            for item, intervals in zip(read.playing, read.numbers.intervals, strict=True)
            for name, found in intervals.items()
            if read.rewards.comparable or name != "reward"
        ),
    )


def tasks_csv(read: Evaluations) -> Iterator[str]:
    """A line for each task: the share of tries that each contestant solves, empty where it has no counted try."""
    contestants, numbers, _rewards = read
    tasks = sorted({task for sheet in numbers.sheets for task in sheet.tasks})
    texts = texts_of(contestants, tasks)
    shares = [dict(zip(sheet.tasks, sheet.of("success"), strict=True)) for sheet in numbers.sheets]
    header = ["task", "category", "text", *(item.run.name for item in contestants)]
    return csv_lines(
        header,
        (
            (
                task,
                numbers.categories.get(task, ""),
                texts.get(task, ""),
                *(_finite_or_none(share.get(task)) for share in shares),
            )
            for task in tasks
        ),
    )


def _finite_or_none(value: float | None) -> float | None:
    return None if value is None or math.isnan(value) else float(value)


# --- Page -----------------------------------------------------------------------------------------------------------
# The contents of a comparison's page, from its address.

TASKS_PER_PAGE = 50
TRAINED = "num_tokens"
"""TRL's metric: tokens that have gone into training so far."""


class Cost(NamedTuple):
    """The cost of a contestant: seconds of a worker's device, tokens that were sampled, tokens that gradients were
    computed for (prompts among them; ``None`` where nothing was trained), money."""

    contestant: Contestant
    seconds: float | None
    tokens: int
    trained: int | None
    money: float | None


@dataclass
class TaskList:
    """The tasks of a pair, by who solves them; ``page`` has the lines that are shown."""

    first: Contestant
    second: Contestant
    group: str
    category: str
    counts: list[tuple[str, str, int]]
    pairs: list[tuple[str, str, str, bool]]
    page: Page[Any]


@dataclass
class Comparison:
    """Everything that the page says."""

    contestants: list[Contestant]
    notes: list[str]
    answer: Headline
    rewards: Rewards | None = None
    offer: Offer | None = None
    verdicts: list[Verdict] = field(default_factory=list)
    columns: list[figures.Column] = field(default_factory=list)
    lines: list[figures.Line] = field(default_factory=list)
    component_columns: list[figures.Column] = field(default_factory=list)
    component_lines: list[figures.Line] = field(default_factory=list)
    categories: list[tasks.CategoryLine] = field(default_factory=list)
    options: list[OptionGroup] = field(default_factory=list)
    costs: list[Cost] = field(default_factory=list)
    task_list: TaskList | None = None
    levels: Forest[Contestant] | None = None
    leads: Forest[Contestant] | None = None
    read: Evaluations | None = None

    @cached_property
    def examples(self) -> list[Side]:
        """Tasks that only one of the pair of the answer solves; read where a page shows them."""
        if self.read is None or self.answer.pair is None:
            return []
        return examples_of(self.read.playing, self.read.numbers, self.answer.pair)

    @property
    def evaluations(self) -> list[Contestant]:
        """Those that a suite can repeat."""
        return [item for item in self.contestants if item.evaluates]

    @property
    def playing(self) -> list[Contestant]:
        """Those that have figures."""
        return [line.contestant for line in self.lines]


def compare(project: Project, contestants: list[Contestant], notes: list[str], asked: QueryDict) -> Comparison:
    """Read everything; ``asked`` may name a reward spec, a pair, a group of tasks, a category and a page."""
    read = evaluations(project, contestants, asked.get("spec", ""))
    answer, verdicts = conclusions(contestants, read)
    made = Comparison(contestants, notes, answer, verdicts=verdicts, read=read)
    made.options, made.costs = differing(contestants), _costs_of(contestants)
    if read is None:
        return made
    playing, numbers, rewards = read
    made.rewards, made.offer = rewards, offer_of(project, read)
    made.columns = [c for c in figures.columns_of(numbers.sheets) if c.name != "reward" or rewards.comparable]
    made.lines = figures.table_of(playing, numbers, made.columns)
    made.component_columns = figures.component_columns(playing, numbers.sheets, rewards.chosen)
    made.component_lines = figures.table_of(playing, numbers, made.component_columns)
    made.levels = levels(playing, numbers)
    made.leads = leads(playing, numbers, playing.index(answer.leaders[0])) if answer.leaders else None
    made.categories = tasks.by_category(playing, numbers)
    made.task_list = _task_list(playing, numbers, asked)
    return made


def _costs_of(contestants: Sequence[Contestant]) -> list[Cost]:
    runs = [item.run.pk for item in contestants]
    attempts = Attempt.objects.filter(run=OuterRef("pk")).order_by().values("run")
    worked = attempts.annotate(time=Sum(F("ended_at") - F("started_at"))).values("time")
    sums = Run.objects.filter(pk__in=runs).values_list("pk").annotate(worked=Subquery(worked))
    spent = {
        pk: (None if time is None else time.total_seconds(), tokens or 0, money)
        for pk, time, tokens, money in sums.annotate(Sum("rollouts__tokens"), Sum("rollouts__cost"))
    }
    training = [item.run.pk for item in contestants if not item.evaluates]
    points = MetricPoint.objects.filter(run__in=training, name=TRAINED).values_list("run").annotate(Max("value"))
    once = {pk: value for pk, value in points if math.isfinite(value)} if training else {}
    found = []
    for item in contestants:
        pk = item.run.pk
        seconds, tokens, money = spent.get(pk, (None, 0, None))
        trained = round(once[pk] * _training_passes(item)) if pk in once else None
        found.append(Cost(item, seconds, tokens, trained, money))
    return found


def _training_passes(contestant: Contestant) -> int:
    """How often each token was trained on; TRL counts it once."""
    config = contestant.config
    return config.gradient.num_iterations if config is not None and config.method.learns_from == "rollouts" else 1


def _task_list(playing: Sequence[Contestant], numbers: figures.Numbers, asked: QueryDict) -> TaskList | None:
    """The tasks of the pair that was asked for, else of the first that played the same ones."""
    pairs, sheets, named = list(numbers.pairs), numbers.sheets, numbers.categories
    if not pairs:
        return None
    wanted = asked.get("pair", "")
    a, b = next((pair for pair in pairs if wanted == f"{pair[0]}-{pair[1]}"), pairs[0])
    first, second = playing[a], playing[b]
    groups = tasks.grouped(sheets[a], sheets[b])
    group = asked.get("tasks", "")
    if group not in groups:
        group = next((name for name in tasks.GROUPS if groups[name]), tasks.GROUPS[0])
    category = asked.get("category", "")[:80]
    chosen = [task for task in groups[group] if not category or named.get(task) == category]
    page: Page[Any] = Paginator(chosen, TASKS_PER_PAGE).get_page(page_number(asked.get("page")))
    page.object_list = tasks.lines_of(playing, sheets, list(page.object_list), named)
    names = first.run.name, second.run.name
    return TaskList(
        first,
        second,
        group,
        category,
        counts=[(name, tasks.title_of_group(name, *names), len(groups[name])) for name in tasks.GROUPS],
        pairs=[
            (f"{one}-{two}", playing[one].run.name, playing[two].run.name, (one, two) == (a, b)) for one, two in pairs
        ],
        page=page,
    )


OFFERED = 50


@login_required
@require_GET
def compare_page(request: HttpRequest, slug: str) -> HttpResponse:
    """The runs that the address names (``c``), side by side; with fewer than two of them, the list to choose from."""
    project = project_for(request.user, slug)
    contestants, notes = contestants_of(project, request.GET.getlist("c"))
    context = {"project": project, "contestants": contestants, "notes": notes, "address": request.GET.urlencode()}
    if len(contestants) < LEAST:
        chosen = {item.run.pk for item in contestants}
        offered = Run.objects.filter(project=project).order_by("-created_at", "pk")[:OFFERED]
        context |= {"boards": boards(project), "offered": [(run, run.pk in chosen) for run in offered]}
        return render(request, "comparison/choose.html", context)
    context["found"] = compare(project, contestants, notes, request.GET)
    context["overlay"] = overlay(contestants)
    context["rollouts_url"] = _rollouts_url(project, [item.run for item in contestants if item.run.method.plays])
    return render(request, "comparison/page.html", context)


def _rollouts_url(project: Project, runs: Sequence[Run]) -> str:
    """Where the rollouts of all contestants are found; empty where none of them plays any."""
    asked = urlencode([("run", str(run.pk)) for run in runs])
    return f"{reverse('project-rollouts', args=[project.slug])}?{asked}" if runs else ""


@login_required
@require_GET
def compare_report(request: HttpRequest, slug: str) -> HttpResponse:
    """The comparison as one file that needs nothing else: to be sent, printed, kept."""
    project = project_for(request.user, slug)
    contestants, notes = contestants_of(project, request.GET.getlist("c"))
    if len(contestants) < LEAST:
        return redirect("compare", slug)
    context = {
        "project": project,
        "contestants": contestants,
        "found": compare(project, contestants, notes, request.GET),
        "standalone": True,
        "made_at": timezone.localtime(),
        "address": request.build_absolute_uri(reverse("compare", args=[slug]) + "?" + request.GET.urlencode()),
    }
    return as_file(render_to_string("comparison/report.html", context, request), "comparison.html")


@login_required
@require_GET
def compare_csv(request: HttpRequest, slug: str, table: str) -> HttpResponse:
    """The figures or the tasks of a comparison as CSV."""
    project = project_for(request.user, slug)
    contestants, _notes = contestants_of(project, request.GET.getlist("c"))
    read = evaluations(project, contestants, request.GET.get("spec", ""))
    if read is None:
        return redirect("compare", slug)
    lines = tasks_csv(read) if table == "tasks" else figures_csv(read)
    answer = HttpResponse("".join(lines), content_type="text/csv; charset=utf-8")
    answer["Content-Disposition"] = f'attachment; filename="comparison-{table}.csv"'
    return answer


@login_required
@require_GET
def compare_task(request: HttpRequest, slug: str, task: int) -> HttpResponse:
    """One task as the contestants played it."""
    project = project_for(request.user, slug)
    contestants, _notes = contestants_of(project, request.GET.getlist("c"))
    number = page_number(request.GET.get("try")) - 1
    if not contestants:
        return redirect("compare", slug)
    if task > 2**31 - 1 or number >= MOST_TRIES:
        raise Http404
    found = played_tasks(contestants, task, number)
    if not any(item.tries for item in found):
        raise Http404
    text = next((item.tries[0].task for item in found if item.tries), "")
    context = {
        "project": project,
        "task": task,
        "text": text,
        "found": found,
        "rows": aligned(found),
        "number": number + 1,
        "numbers": range(1, max(len(item.tries) for item in found) + 1),
        "back": request.GET.urlencode(),
    }
    return render(request, "comparison/task.html", context)
