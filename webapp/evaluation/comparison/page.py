"""The contents of a comparison's page, from its address."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from uuid import UUID

from django.core.paginator import Page, Paginator
from django.db.models import Max, Sum
from django.http import QueryDict
from django.utils.translation import gettext as _

from webapp.common.pages import page_number
from webapp.evaluation.comparison import figures, tasks
from webapp.evaluation.comparison.contestants import Contestant
from webapp.evaluation.comparison.numbers import Numbers
from webapp.evaluation.comparison.options import OptionGroup, differing
from webapp.evaluation.comparison.rescoring import Offer, offer_of
from webapp.evaluation.comparison.rewards import Rewards, evaluations
from webapp.evaluation.comparison.verdicts import Verdict, different_tasks, learned_notes, verdicts
from webapp.people.teams.models import Project
from webapp.runs.metrics.models import MetricPoint
from webapp.runs.models import Attempt
from webapp.runs.rollouts.models import Rollout

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

    @property
    def playing(self) -> list[Contestant]:
        """Those that have figures."""
        return [line.contestant for line in self.lines]


def compare(project: Project, contestants: list[Contestant], notes: list[str], asked: QueryDict) -> Comparison:
    """Read everything; ``asked`` may name a reward spec, a pair, a group of tasks, a category and a page."""
    made = Comparison(contestants, notes, options=differing(contestants), costs=_costs_of(contestants))
    read = evaluations(project, contestants, asked.get("spec", ""))
    if read is None:
        return made
    playing, numbers, rewards = read
    made.rewards, made.offer = rewards, offer_of(project, read)
    made.verdicts = verdicts(playing, numbers)
    made.columns = [c for c in figures.columns_of(numbers.sheets) if c.name != "reward" or rewards.comparable]
    made.lines = figures.table_of(playing, numbers, made.columns)
    made.component_columns = figures.component_columns(playing, numbers.sheets, rewards.chosen)
    made.component_lines = figures.table_of(playing, numbers, made.component_columns)
    made.notes += _pair_notes(playing) + learned_notes(playing)
    made.categories = tasks.by_category(playing, numbers)
    made.task_list = _task_list(playing, numbers, asked)
    return made


def _pair_notes(playing: Sequence[Contestant]) -> list[str]:
    apart = different_tasks(playing)
    if not apart:
        return []
    pairs = "; ".join(f"{a.run.name} – {b.run.name}" for a, b in apart[:3])
    more = _(" and %(n)d more") % {"n": len(apart) - 3} if len(apart) > 3 else ""
    return [
        _("Played different tasks, so they are not compared task by task: %(pairs)s%(more)s.")
        % {"pairs": pairs, "more": more}
    ]


def _costs_of(contestants: Sequence[Contestant]) -> list[Cost]:
    runs = [item.run.pk for item in contestants]
    seconds: dict[UUID, float] = {}
    for attempt in Attempt.objects.filter(run__in=runs):
        if attempt.ended_at:
            took = (attempt.ended_at - attempt.started_at).total_seconds()
            seconds[attempt.run_id] = seconds.get(attempt.run_id, 0.0) + took
    sums = Rollout.objects.filter(run__in=runs).values_list("run").annotate(Sum("tokens"), Sum("cost"))
    played = {pk: (tokens, money) for pk, tokens, money in sums}
    training = [item.run.pk for item in contestants if not item.evaluates]
    points = MetricPoint.objects.filter(run__in=training, name=TRAINED).values_list("run").annotate(Max("value"))
    once = {pk: value for pk, value in points if math.isfinite(value)}
    found = []
    for item in contestants:
        pk = item.run.pk
        tokens, money = played.get(pk, (0, None))
        trained = round(once[pk] * _training_passes(item)) if pk in once else None
        found.append(Cost(item, seconds.get(pk), tokens, trained, money))
    return found


def _training_passes(contestant: Contestant) -> int:
    """How often each token was trained on; TRL counts it once."""
    config = contestant.config
    return config.gradient.num_iterations if config is not None and config.method.learns_from == "rollouts" else 1


def _task_list(playing: Sequence[Contestant], numbers: Numbers, asked: QueryDict) -> TaskList | None:
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
