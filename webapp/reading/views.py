"""The page of one rollout: a link to it works for years, and without scripts."""

from __future__ import annotations

from typing import Any, cast
from uuid import UUID

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET, require_POST

from webapp.common.failures import failure
from webapp.common.pages import add_errors
from webapp.people.teams.access import can_edit
from webapp.people.teams.models import Project, Role, User
from webapp.reading.access import own_rollout
from webapp.reading.case_form import CaseForm
from webapp.reading.cases import rollout_case_save
from webapp.reading.facts import neighbours_of, phases_of, seeds_of, siblings_of
from webapp.reading.found import found_of
from webapp.reading.parts import config_for, parts_of, spec_of
from webapp.reading.rows import task_row
from webapp.reading.strings import rollout_strings
from webapp.reading.turns import turn_page
from webapp.runs.rollouts.models import Rollout
from webapp.runs.rollouts.selectors import rollout_view

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
    text = str(raw or "0")
    return min(int(text), MAX_TURN) if text.isascii() and text.isdigit() and len(text) < 11 else 0


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
