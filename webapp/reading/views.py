"""The pages of rollouts and of a run's groups and tasks: a link to one works for years, and without scripts."""

from __future__ import annotations

from typing import Any, NamedTuple, cast
from urllib.parse import urlencode
from uuid import UUID

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import ValidationError
from django.core.paginator import Paginator
from django.db.models import Max
from django.http import Http404, HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_GET, require_POST

from training.plain import number_in
from webapp.common.answers import in_shape
from webapp.common.pages import add_errors, page_number
from webapp.common.words import failure
from webapp.engine.services import Act, rollout_order
from webapp.evaluation.comparison.verdicts import p_text
from webapp.people.teams.access import can_edit
from webapp.people.teams.models import Project, Role, User
from webapp.reading.case_form import CaseForm
from webapp.reading.groups import (
    MOST_COLUMNS,
    Group,
    beside,
    beside_winner,
    chosen_of,
    group_of,
    group_rollouts,
    spark_of,
    stack_of,
    task_row,
    winner_of,
)
from webapp.reading.inspector.causes import cause_and_answer, cause_title
from webapp.reading.inspector.filters import Filters, address_of, carried, filters_of, project_scope, run_scope
from webapp.reading.inspector.finding import View
from webapp.reading.inspector.saving import case_of
from webapp.reading.parts import config_for, parts_of, spec_of
from webapp.reading.selectors import neighbours_of, own_rollout, phases_of, seeds_of, siblings_of
from webapp.reading.tags import WORDED, reach
from webapp.reading.task_map import (
    FLICKERS,
    KINDS,
    NEEDS,
    PER_PAGE,
    SORTS,
    Kind,
    Sort,
    TaskMap,
    Visit,
    category_map,
    courses_of,
    task_map,
    usual_sort,
    visits_of,
)
from webapp.reading.turns import turn_page
from webapp.rewards.cases import reward_case_create
from webapp.rewards.models import RewardCase
from webapp.runs import answers
from webapp.runs.config import component_curves, component_titles
from webapp.runs.models import Run
from webapp.runs.records.selectors import own_run
from webapp.runs.rollouts.models import Rollout, RolloutStatus, Turn

# --- Cases ----------------------------------------------------------------------------------------------------------
# A recorded rollout as a reward test case.

Ranges = dict[str, list[float]]


def rollout_case_save(
    *,
    rollout: Rollout,
    project: Project,
    user: User | None,
    name: str,
    expected: Ranges | None = None,
    total: list[float] | None = None,
) -> RewardCase:
    """Keep what was played under a name, with the ranges that are expected of it. Raises ``ValidationError``."""
    if rollout.status == RolloutStatus.RUNNING:
        raise ValidationError(_("It is still in flight."))
    turns = list(Turn.objects.filter(rollout=rollout).defer("words").order_by("number"))
    if not any(turn.number for turn in turns):
        raise ValidationError(_("Its transcript is not stored (any more)."))
    config = config_for(rollout)
    found = task_row(rollout, config, spec_of(rollout.run, config))
    case = case_of(rollout, turns)
    case.name, case.row = name, found.row if found else {}
    case.expected, case.total = expected or {}, total
    return reward_case_create(case=case, project=project, user=user)


# --- Found ----------------------------------------------------------------------------------------------------------
# The view that a rollout was found in: the inspector's parameters, carried by the addresses of what was found.
#
# ``found`` is the query string of the view, ``in=project`` says that it is one of several runs. Without ``found`` a
# rollout was opened by its address alone.

QUERY_MAX = 4_000


class Found(NamedTuple):
    """Where a rollout was found: under which filters, in one ``run`` or in several of the project."""

    project: Project
    run: Run | None
    filters: Filters

    @property
    def list_url(self) -> str:
        """The page of the view."""
        return f"{address_of(self.project, self.run)}?{urlencode(self.filters.pairs())}"

    @property
    def carried(self) -> str:
        """The query string for the addresses of the view's other rollouts."""
        return carried(self.run, self.filters.pairs())

    def beside(self, rollout: Rollout) -> tuple[Rollout | None, Rollout | None]:
        """The rollouts before and after it in the view."""
        if self.run is not None:
            scope = run_scope(self.project, self.run)
        else:
            scope = project_scope(self.project, self.filters.chosen.get("run", ()))
        return View(scope, self.filters).beside(rollout)


def found_of(request: HttpRequest, project: Project, rollout: Rollout) -> Found | None:
    """The view that the address names; ``None`` where it names none."""
    raw = request.GET.get("found")
    if raw is None:
        return None
    run = None if request.GET.get("in") == "project" else rollout.run
    return Found(project, run, filters_of(QueryDict(raw[:QUERY_MAX])))


# --- Strings --------------------------------------------------------------------------------------------------------
# The texts of these pages' scripts.


def rollout_strings() -> dict[str, str]:
    """The page of one rollout."""
    return {
        "words.looking": _("Looking for the words that earned it…"),
        "words.failed": _("The words that earned it could not be read. Reload the page to try again."),
        "words.none": _("Nothing in the text is marked for it."),
        "words.whole": _("the whole message"),
        "words.message": _("Message {n}"),
        "words.hint": _("Choose a component to see the words that earned it."),
        "tokens.looking": _("Reading the tokens…"),
        "tokens.failed": _("The tokens could not be read. Reload the page to try again."),
        "tokens.prompt": _("prompt"),
        "tokens.model": _("model"),
        "tokens.environment": _("environment"),
        "tokens.count": _("{n} tokens"),
        "tokens.none": _("Point at a token, or choose one with the arrow keys, to see its values."),
        "tokens.token": _("token {n}, id {id}"),
        "tokens.logprob": _("log-probability"),
        "tokens.entropy": _("entropy"),
        "tokens.ratio": _("importance ratio"),
        "tokens.advantage": _("advantage"),
        "tokens.learned": _("learned from"),
        "tokens.not_learned": _("not learned from"),
        "tokens.of_environment": _("not sampled by the model"),
        "tokens.nats": _("{n} nats"),
        "copy.long": _("Copied without its turns after {n}: read the others over the API."),
    }


VIEWS = ("rendered", "raw", "tokens")
MAX_TURN = 2**31 - 1


@login_required
@require_GET
def rollout_detail(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """One transcript with its rewards, and its neighbours in the group and in the step."""
    project, rollout = own_rollout(request, slug, pk)
    return _rollout_page(request, project, rollout)


def _rollout_page(
    request: HttpRequest, project: Project, rollout: Rollout, form: CaseForm | None = None, status: int = 200
) -> HttpResponse:
    config = config_for(rollout)
    components = spec_of(rollout.run, config)
    siblings = siblings_of(rollout)
    parts = parts_of(rollout, components)
    transcript = _transcript_context(request, project, rollout)
    context = transcript | {
        "run": rollout.run,
        "can_edit": can_edit(project),
        "branches": rollout.branches.count(),
        "view": in_shape(answers.Rollout, rollout),
        "failure": failure(rollout.error),
        "siblings": siblings,
        "neighbours": neighbours_of(rollout, siblings),
        "found": found_of(request, project, rollout),
        "parts": parts,
        "task": task_row(rollout, config, components),
        "phases": phases_of(rollout),
        "seeds": seeds_of(rollout, config),
        "form": form or _case_form(rollout, parts),
        "curl": _curl_command(request, rollout),
        "group_url": None
        if rollout.held_out
        else reverse("run-group", args=[project.slug, rollout.run_id, rollout.step, rollout.group]),
        "facts": _script_facts(rollout, transcript["shown"]),
        "strings": rollout_strings(),
    }
    return render(request, "reading/rollout.html", context, status=status)


def _transcript_context(request: HttpRequest, project: Project, rollout: Rollout) -> dict[str, Any]:
    """The context of the turns' fragment."""
    whole = request.GET.get("whole") == "1"
    view = request.GET.get("view", "")
    part = turn_page(rollout, _parse_turn(request.GET.get("first")), whole=whole)
    best = winner_of(rollout) if view not in VIEWS[1:] and not whole else None
    shown = best is not None and request.GET.get("winner") != "no"
    return {
        "loser": best is not None,
        "winner": beside_winner(rollout, best, part) if best is not None and shown else None,
        "project": project,
        "rollout": rollout,
        "imported": rollout.run.imported_from,
        "rewindable": can_edit(project) and _was_played(rollout),
        "whole": whole,
        "shown": view if view in VIEWS else VIEWS[0],
        "part": part,
    }


def _was_played(rollout: Rollout) -> bool:
    """Whether it can be played again, as far as its config says."""
    config = config_for(rollout)
    return seeds_of(rollout, config) is not None and config is not None and bool(config.environment.url)


def _parse_turn(raw: Any) -> int:
    """A turn's number of an address; anything else is the first one."""
    return min(number_in(str(raw or ""), 10) or 0, MAX_TURN)


def _case_form(rollout: Rollout, parts: list[Any], data: Any = None) -> CaseForm:
    reward = rollout.reward
    started = {"name": f"{rollout.run.name}-{rollout.step}-{rollout.group}-{rollout.index}"[:80]}
    known = {} if reward is None else {"low-0": round(reward, 6), "high-0": round(reward, 6)}
    return CaseForm(parts, data, initial=started | known)


def _curl_command(request: HttpRequest, rollout: Rollout) -> str:
    address = request.build_absolute_uri(f"/api/v1/rollouts/{rollout.pk}")
    return f'curl --header "Authorization: Bearer $TOKEN" {address}'


def _script_facts(rollout: Rollout, shown: str) -> dict[str, Any]:
    """The data for the page's script. Words are marked in rendered text alone."""
    return {"api": f"/api/v1/rollouts/{rollout.pk}", "words": shown == VIEWS[0]}


@login_required
@require_GET
def rollout_turns(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """A part of the transcript as a fragment: the turns from ``first`` on, or with ``whole`` one turn uncut."""
    project, rollout = own_rollout(request, slug, pk)
    return render(request, "reading/_turns.html", _transcript_context(request, project, rollout))


@login_required
@require_GET
def rollout_found(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """The rollouts before and after this one in the view that it was found in, as a fragment, because a search takes
    time. A rollout that was opened by its address has none."""
    project, rollout = own_rollout(request, slug, pk)
    found = found_of(request, project, rollout)
    if found is None:
        return HttpResponse()
    before, after = found.beside(rollout)
    context = {"project": project, "rollout": rollout, "found": found, "before": before, "after": after, "asked": True}
    shown = request.GET.get("view")
    return render(request, "reading/_found.html", context | {"shown": shown if shown in VIEWS else VIEWS[0]})


@login_required
@require_GET
def rollout_pane(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """One rollout as the list shows it next to its rows: why it failed, its turns next to the winner's, its reward. Of
    one in flight 204 while nothing is newer than ``since``."""
    project, rollout = own_rollout(request, slug, pk)
    newest = Turn.objects.filter(rollout=rollout).aggregate(newest=Max("seq"))["newest"] or 0
    seq = max(rollout.seq, newest)
    if (since := number_in(request.GET.get("since", ""), 18)) is not None and seq <= since:
        return HttpResponse(status=204)
    cause, expected = cause_and_answer(rollout)
    found = found_of(request, project, rollout)
    context = _transcript_context(request, project, rollout) | {
        "run": rollout.run,
        "seq": seq,
        "why": cause_title(cause) if cause else "",
        "expected": expected,
        "page_url": reverse("rollout-detail", args=[project.slug, rollout.pk]) + (found.carried if found else ""),
        "view": in_shape(answers.Rollout, rollout),
        "failure": failure(rollout.error),
        "parts": parts_of(rollout, spec_of(rollout.run, config_for(rollout))),
    }
    return render(request, "reading/_pane.html", context)


@login_required
@require_POST
def rollout_case(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """Save the rollout as a reward test case."""
    project, rollout = own_rollout(request, slug, pk, need=Role.EDITOR)
    parts = parts_of(rollout, spec_of(rollout.run, config_for(rollout)))
    form = _case_form(rollout, parts, request.POST)
    if form.is_valid():
        total, expected = form.ranges()
        name = form.cleaned_data["name"]
        try:
            made = rollout_case_save(
                rollout=rollout,
                project=project,
                user=cast(User, request.user),
                name=name,
                expected=expected,
                total=total,
            )
        except ValidationError as exc:
            add_errors(form, exc)
        else:
            messages.success(request, _("Saved as the reward test case %(name)s.") % {"name": made.name})
            return redirect("reward-list", slug=project.slug)
    return _rollout_page(request, project, rollout, form, status=422)


# --- Groups and tasks -----------------------------------------------------------------------------------------------
# Pages of a run's groups and tasks.

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
    "need": gettext_lazy("lost and not learned first"),
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
    components = spec_of(first.run, config)
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
        "sides": beside(shown, _parse_place(request.GET.get("first"))),
        "most": MOST_COLUMNS,
        "task": task_row(first, config, components),
        "text": first.task,
        "titles": [(title, curves.get(name)) for name, title in component_titles(components).items()],
        "visits": visits[-VISITS_SHOWN:],
        "visits_all": len(visits),
        "sentences": _visit_sentences(visits),
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
    earning = [bar for bar in member.bars if abs(bar.value) > NOISE * found.extent]
    return {
        "member": member,
        "said": earning,
        "zeros": len(member.bars) - len(earning),
        "stack": stack_of([(bar.curve, bar.value) for bar in member.bars], found.extent),
        "shown": on,
        "address": "?" + urlencode([("show", index) for index in wanted]) if wanted else "?",
    }


def _visits_of_rollout(run: Run, rollout: Rollout) -> list[Visit]:
    """The visits to its task over all steps; none where it is not a row of a dataset, or the run does not train."""
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
    sentences = [_("First solved by more than half of its rollouts at step %(step)s.") % {"step": solved[0].step}]
    if solved[-1] is not known[-1]:
        text = _("More than half last solved it at step %(step)s, and not since.")
        sentences.append(text % {"step": solved[-1].step})
    return sentences


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
        "kinds": [(name, KIND_LABELS[name], found.counts[name]) for name in NEEDS],
        "all": sum(found.counts.values()),
        "sorts": [(name, SORT_LABELS[name]) for name in SORTS],
        "labels": KIND_LABELS,
        "p_values": {line.task.place: p_text(line.task.p).replace(" ", "\u00a0") for line in found.lines if line.task},
        "page": Paginator(range(found.total), PER_PAGE).get_page(page),
        "ticks": _column_heads(found, by),
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


def _column_heads(found: TaskMap, by: str) -> list[tuple[str, str]]:
    """The head of each column: which visits or steps it is of; above each, or the first and every tenth, as a mark."""
    word = _("visit %(n)s") if by == "task" else _("step %(n)s")
    worded = len(found.columns) <= WORDED
    names = [word % {"n": reach(*column)} for column in found.columns]
    marks = [str(first) if at % 10 == 0 else "" for at, (first, _last) in enumerate(found.columns)]
    return list(zip(names, names if worded else marks, strict=True))


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
