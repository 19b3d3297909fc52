"""Pages of a run's groups and tasks."""

from __future__ import annotations

from typing import Any, cast
from urllib.parse import urlencode
from uuid import UUID

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import ValidationError
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_GET, require_POST

from training.plain import number_in
from webapp.common.pages import page_number
from webapp.engine.services import Act, rollout_order
from webapp.evaluation.comparison.figures import p_text
from webapp.people.teams.models import Role, User
from webapp.reading.access import own_rollout
from webapp.reading.courses import courses_of
from webapp.reading.groups import Group, group_of, group_rollouts
from webapp.reading.parts import config_for, spec_of
from webapp.reading.rows import MOST_COLUMNS, beside, chosen_of, task_row
from webapp.reading.task_map import PER_PAGE, TaskMap, category_map, spark_of, stack_of, task_map
from webapp.reading.visits import FLICKERS, KINDS, SORTS, Kind, Sort, Visit, usual_sort, visits_of
from webapp.runs.config import component_curves, component_titles
from webapp.runs.models import Run
from webapp.runs.records.selectors import own_run
from webapp.runs.rollouts.models import Rollout

MAX_INT = 2**31 - 1
VISITS_SHOWN = 30
NOISE = 1e-6
"""Shares of an advantage below this part of the largest are 0: components whose value is the same in the whole
group."""
KIND_LABELS = {
    "forgotten": gettext_lazy("forgotten"),
    "learned": gettext_lazy("learned"),
    "flickering": gettext_lazy("flickering"),
    "never": gettext_lazy("not learned"),
    "kept": gettext_lazy("still solved"),
    "unclear": gettext_lazy("changed, maybe by chance"),
    "once": gettext_lazy("seen once"),
}
SORT_LABELS = {
    "row": gettext_lazy("order of the dataset"),
    "gain": gettext_lazy("most gained"),
    "drop": gettext_lazy("most lost"),
    "changes": gettext_lazy("most changes"),
    "share": gettext_lazy("hardest first"),
}


@login_required
@require_GET
def run_group(request: HttpRequest, slug: str, pk: UUID, step: int, group: int) -> HttpResponse:
    """A group side by side: why did this one win?"""
    project, run = own_run(request, slug, pk)
    rollouts = group_rollouts(run, step, group) if max(step, group) <= MAX_INT else []
    if not rollouts:
        raise Http404
    found = group_of(run, rollouts)
    first = rollouts[0]
    config = config_for(first)
    components = spec_of(first, config)
    shown = chosen_of(found.members, request.GET.getlist("show"))
    curves = component_curves(run)
    visits = _visits_of_rollout(run, first)
    context = {
        "project": project,
        "run": run,
        "step": step,
        "group": group,
        "found": found,
        "lines": [_table_line(request, found, member.rollout, shown) for member in found.members],
        "beside": beside(shown, _parse_place(request.GET.get("first"))),
        "most": MOST_COLUMNS,
        "task": task_row(first, config, components),
        "text": first.task,
        "titles": [(title, curves.get(name)) for name, title in component_titles(components).items()],
        "visits": visits[-VISITS_SHOWN:],
        "visits_all": len(visits),
        "told": _visit_sentences(visits),
        "spark": spark_of([visit.share for visit in visits], _visit_place(visits, step)),
        "before": _next_group(run, first, after=False),
        "after": _next_group(run, first, after=True),
    }
    return render(request, "reading/group.html", context)


def _parse_place(raw: Any) -> int:
    return min(number_in(str(raw or ""), 10) or 0, MAX_INT - 100)


def _table_line(request: HttpRequest, found: Group, rollout: Rollout, shown: list[Any]) -> dict[str, Any]:
    """A line of the group's table: its bars as a drawing, and the address that shows it or no longer shows it."""
    member = next(item for item in found.members if item.rollout is rollout)
    indices = [item.rollout.index for item in shown]
    on = rollout.index in indices
    wanted = [index for index in indices if index != rollout.index] if on else [*indices, rollout.index][-MOST_COLUMNS:]
    said = [bar for bar in member.bars if abs(bar.value) > NOISE * found.extent]
    return {
        "member": member,
        "said": said,
        "zeros": len(member.bars) - len(said),
        "stack": stack_of([(bar.curve, bar.value) for bar in member.bars], found.extent),
        "shown": on,
        "address": "?" + urlencode([("show", index) for index in wanted]) if wanted else "?",
    }


def _visits_of_rollout(run: Run, rollout: Rollout) -> list[Visit]:
    """The visits to its task over all steps; none where it is no row of a dataset, or the run does not train."""
    if rollout.row is None or not run.method.trains:
        return []
    courses = courses_of(run)
    return visits_of(run, courses, courses.at(rollout.step, rollout.part), rollout.row)


def _visit_place(visits: list[Visit], step: int) -> int | None:
    return next((place for place, visit in enumerate(visits) if visit.step == step), None)


def _visit_sentences(visits: list[Visit]) -> list[str]:
    """Sentences: when the task became solved, and whether it was forgotten."""
    known = [visit for visit in visits if visit.share is not None]
    solved = [visit for visit in known if (visit.share or 0.0) > 0.5]
    if not known:
        return []
    if not solved:
        return [_("In no step did more than half of its rollouts solve it.")]
    said = [_("First solved by more than half of its rollouts at step %(step)s.") % {"step": solved[0].step}]
    if solved[-1] is not known[-1]:
        text = _("Forgotten: last solved at step %(step)s, and not since.")
        said.append(text % {"step": solved[-1].step})
    return said


def _next_group(run: Run, first: Rollout, *, after: bool) -> int | None:
    """The number of the group after (or before) this one in the step; ``None`` at an end."""
    rows = Rollout.objects.filter(run=run, step=first.step, attempt=first.attempt, held_out=False)
    rows = rows.filter(group__gt=first.group) if after else rows.filter(group__lt=first.group)
    return rows.order_by("group" if after else "-group").values_list("group", flat=True).first()


@login_required
@require_GET
def run_tasks(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """The task map: what was learned, what was forgotten?"""
    project, run = own_run(request, slug, pk)
    if not run.method.plays:
        raise Http404
    by = "category" if request.GET.get("by") == "category" else "task"
    kind, sort, page = asked_for(request.GET.get("kind", ""), request.GET.get("sort", ""), request.GET.get("page"))
    found = category_map(run) if by == "category" else task_map(run, kind=kind, sort=sort, page=page)
    if by == "task" and not found.lines and page > 1:
        page = 1
        found = task_map(run, kind=kind, sort=sort, page=page)
    context = {
        "project": project,
        "run": run,
        "by": by,
        "kind": kind or "",
        "sort": sort,
        "found": found,
        "kinds": [(name, KIND_LABELS[name], found.counts[name]) for name in KINDS],
        "all": sum(found.counts.values()),
        "sorts": [(name, SORT_LABELS[name]) for name in SORTS],
        "labels": KIND_LABELS,
        "p_values": {line.task.place: p_text(line.task.p).replace(" ", "\u00a0") for line in found.lines if line.task},
        "pages": _page_numbers(found, page),
        "ticks": _column_heads(found),
        "flickers": FLICKERS,
        "chance": _by_chance(found),
    }
    return render(request, "reading/tasks.html", context)


def _by_chance(found: TaskMap) -> list[tuple[str, int, str]]:
    """The words that are beyond chance, with how many tasks have them and would have them if none had changed."""
    return [(str(KIND_LABELS[name]), found.counts[name], f"{value:.2g}") for name, value in found.by_chance.items()]


def asked_for(kind: str, sort: str, page: Any) -> tuple[Kind | None, Sort, int]:
    """The kind, order and page of an address; unknown words are replaced by the usual ones."""
    found_kind = next((name for name in KINDS if name == kind), None)
    found_sort = next((name for name in SORTS if name == sort), usual_sort(found_kind))
    return found_kind, found_sort, page_number(page)


def _page_numbers(found: TaskMap, page: int) -> dict[str, Any]:
    last = max(1, -(-found.total // PER_PAGE))
    return {
        "number": page,
        "last": last,
        "before": page - 1 if page > 1 else None,
        "after": page + 1 if page < last else None,
    }


def _column_heads(found: TaskMap) -> list[tuple[str, str]]:
    """The head of each column: its steps, and a number above the first and every tenth column."""
    return [
        (str(first) if first == last else f"{first}–{last}", str(first) if at % 10 == 0 else "")
        for at, (first, last) in enumerate(found.columns)
    ]


# --- Order views ----------------------------------------------------------------------------------------------------
# Ending a rollout in flight, or marking it as failed, from a page.


@login_required
@require_POST
def rollout_end(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """End it: it is excluded."""
    return _order_and_redirect(request, slug, pk, "end", _("The rollout is being ended; it is excluded."))


@login_required
@require_POST
def rollout_fail(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """End it as one that failed its task."""
    return _order_and_redirect(request, slug, pk, "fail", _("The rollout is being ended; it counts as failed."))


def _order_and_redirect(request: HttpRequest, slug: str, pk: UUID, act: Act, notice: str) -> HttpResponse:
    _project, rollout = own_rollout(request, slug, pk, need=Role.EDITOR)
    try:
        rollout_order(rollout=rollout, act=act, user=cast(User, request.user))
    except ValidationError as exc:
        messages.warning(request, exc.messages[0])
    else:
        messages.success(request, notice)
    if "rollout" in request.POST:  # the button of its own page
        return redirect("rollout-detail", slug=slug, pk=pk)
    return redirect("run-detail", slug=slug, pk=rollout.run_id)
