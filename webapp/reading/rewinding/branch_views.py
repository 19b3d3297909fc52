"""The page of a rollout's branches: kept side by side, and made into data."""

from __future__ import annotations

from typing import Any, Literal, cast, get_args
from urllib.parse import urlencode
from uuid import UUID

from django import forms
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import ValidationError
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET, require_POST

from training.config import POLICY_CHOICES, Policy, RolloutConfig, kind_in
from training.errors import ConfigError, TiltyardError
from training.plain import number_in
from webapp.common.text import in_words, translated
from webapp.common.words import failure
from webapp.datasets.selectors import latest_datasets
from webapp.evaluation.suites.services import contestants_offered
from webapp.people.teams.access import can_edit
from webapp.people.teams.models import Project, Role, User
from webapp.reading.access import own_rollout
from webapp.reading.rewinding.beside import MOST_COLUMNS, beside, chosen_of
from webapp.reading.rewinding.continuations import MAX_TIMES, USUAL_TIMES, continuation_create
from webapp.reading.rewinding.continuing import rollout_continue
from webapp.reading.rewinding.models import Branch
from webapp.reading.rewinding.played import continuing
from webapp.reading.rewinding.services import MAX_BRANCHES, branch_delete, branch_of, branch_save, branches_of
from webapp.runs.registry.selectors import registered_as
from webapp.runs.rollouts.models import Rollout
from webapp.runs.rollouts.selectors import rollout_view

# --- Forms ----------------------------------------------------------------------------------------------------------
# The form that lets a contestant continue.


class ContinuationForm(forms.Form):
    """Who continues, from which turn, how often; without a temperature at that of the recorded run."""

    contestant = forms.CharField(max_length=200)
    turn = forms.IntegerField(min_value=1, max_value=2**31 - 1)
    times = forms.IntegerField(min_value=1, max_value=MAX_TIMES)
    temperature = forms.FloatField(required=False, min_value=0.01, max_value=5)

    @property
    def problem(self) -> str:
        """What is wrong, in one sentence for each field."""
        return " ".join(f"{name}: {error}" for name, errors in self.errors.items() for error in errors)


MAX_NAMES = 200
STARTER = "starter"


@login_required
@require_GET
def branch_list(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """The branches of a rollout next to it: what others did from one of its turns on."""
    project, rollout = own_rollout(request, slug, pk)
    return _branches_page(request, project, rollout)


def _branches_page(
    request: HttpRequest, project: Project, rollout: Rollout, problem: str = "", status: int = 200
) -> HttpResponse:
    branches = branches_of(rollout)
    shown = chosen_of(branches, request.GET.getlist("show"))
    context: dict[str, Any] = {
        "project": project,
        "rollout": rollout,
        "run": rollout.run,
        "view": rollout_view(rollout),
        "can_edit": can_edit(project),
        "lines": [
            (item, item in shown, _toggle_address(item, shown), _reward_gain(item, rollout)) for item in branches
        ],
        "beside": beside(rollout, shown) if shown else None,
        "most": MOST_COLUMNS,
        "limit": MAX_BRANCHES,
        "problem": problem,
        "going": continuing(rollout),
        "contestants": [(value, title) for value, title in contestants_offered(project) if _plays_here(value)],
        "contestant": _default_contestant(rollout),
        "times": USUAL_TIMES,
        "turn": _parse_turn(request.GET.get("turn", "")),
        "most_times": MAX_TIMES,
        "temperature": rollout.run.config.get("rollout", {}).get("temperature", RolloutConfig().temperature),
        "policies": [(name, translated(title)) for name, title in POLICY_CHOICES.items()],
        "names": list(latest_datasets(project).values_list("name", flat=True)[:MAX_NAMES]),
    }
    return render(request, "rewinding/branches.html", context, status=status)


def _error_sentence(error: TiltyardError) -> str:
    """The error in the reader's language: a config's own sentence, else the title and hint of its code."""
    if isinstance(error, ConfigError):
        return in_words(error.sentence)
    told = failure(error.info.model_dump(mode="json"))
    return f"{told.title} {told.hint}" if told else error.message


def _parse_turn(asked: str) -> int:
    """The turn that an address names; else the first one."""
    return number_in(asked, 5) or 1


def _plays_here(reference: str) -> bool:
    """Whether a contestant is worth a run: policies continue at once in the form below, the starter knows nothing."""
    return kind_in(reference) != "policy" and reference != STARTER


def _default_contestant(rollout: Rollout) -> str:
    """The contestant that the form chooses at first: the model that the recorded run made, or played with."""
    run = rollout.run
    if not run.method.trains:
        return str(run.config.get("model", {}).get("source", ""))
    return registered_as(run.project, run.reference) or run.reference


def _reward_gain(branch: Branch, rollout: Rollout) -> float | None:
    """The branch's reward minus that of the recorded rollout; ``None`` where one has none."""
    return None if branch.reward is None or rollout.reward is None else branch.reward - rollout.reward


def _toggle_address(branch: Branch, shown: list[Branch]) -> str:
    """The address that shows a branch, or no longer shows it."""
    ids = [str(item.pk) for item in shown]
    own = str(branch.pk)
    wanted = [pk for pk in ids if pk != own] if own in ids else [own, *ids][: MOST_COLUMNS - 1]
    return "?" + urlencode([("show", pk) for pk in wanted])


@login_required
@require_POST
def continuation_new(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """Have a contestant continue from a turn, several times."""
    project, rollout = own_rollout(request, slug, pk, need=Role.EDITOR)
    form = ContinuationForm(request.POST)
    try:
        if not form.is_valid():
            raise ValidationError(form.problem)
        continuation_create(rollout=rollout, user=cast(User, request.user), **form.cleaned_data)
    except ValidationError as exc:
        return _branches_page(request, project, rollout, " ".join(exc.messages), status=422)
    except TiltyardError as exc:
        return _branches_page(request, project, rollout, _error_sentence(exc), status=422)
    query = urlencode({"turn": form.cleaned_data["turn"]})
    return redirect(f"{reverse('branch-list', args=[project.slug, rollout.pk])}?{query}")


@login_required
@require_POST
def branch_continue(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """Let scripted policies continue from a turn."""
    project, rollout = own_rollout(request, slug, pk, need=Role.EDITOR)
    turn = number_in(str(request.POST.get("turn", "")), 5)
    policies = [name for name in get_args(Policy) if name in request.POST.getlist("policy")]
    try:
        if turn is None:
            raise ValidationError(_("Say from which turn: a number from 1."))
        user = cast(User, request.user)
        made = rollout_continue(rollout=rollout, user=user, turn=turn, policies=policies)
    except ValidationError as exc:
        return _branches_page(request, project, rollout, " ".join(exc.messages), status=422)
    except TiltyardError as exc:
        return _branches_page(request, project, rollout, _error_sentence(exc), status=422)
    query = urlencode([("show", str(item.pk)) for item in made[: MOST_COLUMNS - 1]])
    return redirect(f"{reverse('branch-list', args=[project.slug, rollout.pk])}?{query}#side")


@login_required
@require_POST
def branch_save_view(request: HttpRequest, slug: str, pk: UUID, branch_id: UUID) -> HttpResponse:
    """Add a branch to a dataset, as a demonstration or as a pair with the recorded rollout."""
    project, rollout = own_rollout(request, slug, pk, need=Role.EDITOR)
    branch = _own_branch(rollout, branch_id)
    asked = request.POST.get("kind")
    if asked not in ("row", "pair"):
        return _branches_page(request, project, rollout, _("Choose what to make of the branch."), status=422)
    kind: Literal["row", "pair"] = "row" if asked == "row" else "pair"
    try:
        made = branch_save(
            branch=branch, user=cast(User, request.user), kind=kind, name=str(request.POST.get("name", ""))
        )
    except ValidationError as exc:
        return _branches_page(request, project, rollout, " ".join(exc.messages), status=422)
    messages.success(request, _("Added to %(name)s.") % {"name": made})
    return redirect("dataset-detail", slug=project.slug, pk=made.pk)


@login_required
@require_POST
def branch_delete_view(request: HttpRequest, slug: str, pk: UUID, branch_id: UUID) -> HttpResponse:
    """Delete a branch; datasets that it was added to keep its rows."""
    project, rollout = own_rollout(request, slug, pk, need=Role.EDITOR)
    try:
        branch_delete(branch=_own_branch(rollout, branch_id))
    except ValidationError as exc:
        return _branches_page(request, project, rollout, " ".join(exc.messages), status=422)
    messages.success(request, _("The branch is deleted."))
    return redirect("branch-list", slug=project.slug, pk=rollout.pk)


def _own_branch(rollout: Rollout, pk: UUID) -> Branch:
    """A branch of this rollout, with the rollout set on it. Raises ``Http404``."""
    branch = branch_of(rollout, pk)
    if branch is None:
        raise Http404
    branch.rollout = rollout
    return branch
