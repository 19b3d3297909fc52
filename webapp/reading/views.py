"""The page of one rollout: a link to it works for years, and without scripts."""

from __future__ import annotations

from typing import Any, NamedTuple, cast
from urllib.parse import urlencode
from uuid import UUID

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET, require_POST

from training.plain import number_in
from webapp.common.pages import add_errors
from webapp.common.words import failure
from webapp.people.teams.access import can_edit
from webapp.people.teams.models import Project, Role, User
from webapp.reading.access import own_rollout
from webapp.reading.case_form import CaseForm
from webapp.reading.facts import neighbours_of, phases_of, seeds_of, siblings_of
from webapp.reading.inspector.filters import Filters, filters_of
from webapp.reading.inspector.finding import View
from webapp.reading.inspector.saving import case_of
from webapp.reading.inspector.scope import address_of, carried, project_scope, run_scope
from webapp.reading.parts import config_for, parts_of, spec_of
from webapp.reading.rows import task_row
from webapp.reading.turns import turn_page
from webapp.rewards.cases import reward_case_create
from webapp.rewards.models import RewardCase
from webapp.runs.models import Run
from webapp.runs.rollouts.models import Rollout, RolloutStatus, Turn
from webapp.runs.rollouts.selectors import rollout_view

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
    found = task_row(rollout, config, spec_of(rollout, config))
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
    components = spec_of(rollout, config)
    siblings = siblings_of(rollout)
    parts = parts_of(rollout, components)
    transcript = _transcript_context(request, project, rollout)
    context = transcript | {
        "run": rollout.run,
        "can_edit": can_edit(project),
        "branches": rollout.branches.count(),
        "view": rollout_view(rollout),
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
    """What the turns' fragment needs."""
    whole = request.GET.get("whole") == "1"
    view = request.GET.get("view", "")
    return {
        "project": project,
        "rollout": rollout,
        "imported": rollout.run.imported_from,
        "rewindable": can_edit(project) and _was_played(rollout),
        "whole": whole,
        "shown": view if view in VIEWS else VIEWS[0],
        "part": turn_page(rollout, _parse_turn(request.GET.get("first")), whole=whole),
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
    """What the page's script asks. Words are marked in rendered text alone."""
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
@require_POST
def rollout_case(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """Save the rollout as a reward test case."""
    project, rollout = own_rollout(request, slug, pk, need=Role.EDITOR)
    parts = parts_of(rollout, spec_of(rollout, config_for(rollout)))
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
