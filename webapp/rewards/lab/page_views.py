"""Pages of the reward lab: the rollout sets of a project, and the lab itself."""

from __future__ import annotations

from typing import Any, cast
from uuid import UUID

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import ValidationError
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET, require_http_methods, require_POST
from pydantic import BaseModel, ConfigDict, Field
from pydantic import ValidationError as ShapeError

from webapp.common.errors import error_body
from webapp.common.failures import failure
from webapp.common.pages import add_errors, errors_by_field, page_number
from webapp.people.teams.access import can_edit, object_for, project_for
from webapp.people.teams.models import Project, Role, User
from webapp.rewards.lab import page, selectors, sets
from webapp.rewards.lab.forms import PLACE, SetForm, editors
from webapp.rewards.lab.requests import Components
from webapp.rewards.lab.strings import lab_strings
from webapp.rewards.models import RolloutSet, SetKind, SetState
from webapp.rewards.services import reward_spec_save
from webapp.rewards.shape import ShapeForm
from webapp.runs.models import Run

SETS_PER_PAGE = 50


def _own_set(request: HttpRequest, slug: str, pk: UUID, *, need: Role = Role.VIEWER) -> tuple[Project, RolloutSet]:
    project = project_for(request.user, slug, need=need)
    return project, object_for(
        request.user, RolloutSet, pk, need=need, within=selectors.rollout_sets_of(project), project=project
    )


@login_required
@require_http_methods(["GET", "POST"])
def lab(request: HttpRequest, slug: str) -> HttpResponse:
    """The rollout sets of a project, and a form to make one."""
    if request.method == "POST":
        return _create_set(request, project_for(request.user, slug, need=Role.EDITOR))
    project = project_for(request.user, slug)
    if request.GET.get("run"):
        return _open_run(request, project, request.GET["run"])
    return _render_list(request, project, SetForm(runs=page.runs_with_rollouts(project)))


def _create_set(request: HttpRequest, project: Project) -> HttpResponse:
    form = SetForm(request.POST, runs=page.runs_with_rollouts(project))
    if form.is_valid():
        given = form.cleaned_data
        if not given["name"]:
            given["name"] = page.set_name(given["kind"], given["run"], given["first_step"], given["last_step"])
        try:
            made = sets.rollout_set_create(project=project, user=cast(User, request.user), **given)
        except ValidationError as exc:
            add_errors(form, exc)
        else:
            return _to_set(request, project, made)
    return _render_list(request, project, form, status=422)


def _open_run(request: HttpRequest, project: Project, key: str) -> HttpResponse:
    """Where a run's rollouts can be scored: its newest set, or one that is made now."""
    run = object_for(request.user, Run, key, within=Run.objects.filter(project=project).select_related("project"))
    found = selectors.rollout_sets_of(project).filter(run=run).exclude(state=SetState.FAILED).first()
    if found is not None:
        return _to_set(request, project, found)
    form = SetForm(runs=page.runs_with_rollouts(project), initial={"run": run.pk})
    if not can_edit(project):
        messages.info(request, _("No rollout set of %(run)s has been made yet; ask an editor.") % {"run": run.name})
        return _render_list(request, project, form)
    try:
        made = sets.rollout_set_create(
            project=project,
            user=cast(User, request.user),
            kind=SetKind.RUN,
            run=run,
            name=page.set_name(SetKind.RUN, run, None, None),
        )
    except ValidationError as exc:
        messages.error(request, " ".join(exc.messages))
        return _render_list(request, project, form)
    return _to_set(request, project, made)


def _to_set(request: HttpRequest, project: Project, rollout_set: RolloutSet) -> HttpResponse:
    spec = page.spec_named(project, request.GET.get("spec", ""))
    kept = f"?spec={spec.pk}" if spec else ""
    return redirect(reverse("lab-set", args=[project.slug, rollout_set.pk]) + kept)


def _render_list(request: HttpRequest, project: Project, form: SetForm, status: int = 200) -> HttpResponse:
    rows = selectors.rollout_sets_of(project).select_related(None).select_related("created_by")
    found = Paginator(rows, SETS_PER_PAGE)
    shown = found.get_page(page_number(request.GET.get("page")))
    context = {
        "project": project,
        "page": shown,
        "form": form,
        "can_edit": can_edit(project),
        "rows": [(item, selectors.percent_of(item)) for item in shown],
        "building": any(item.state == SetState.BUILDING for item in shown),
        "spec": page.spec_named(project, request.GET.get("spec", "")),
    }
    return render(request, "rewards/lab/list.html", context, status=status)


@login_required
@require_GET
def lab_set(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """The lab; while the set is built its progress, and what to do when that failed."""
    project, rollout_set = _own_set(request, slug, pk)
    context = _state_context(rollout_set) | {"project": project, "can_edit": can_edit(project)}
    if rollout_set.state != SetState.READY:
        return render(request, "rewards/lab/waiting.html", context)
    asked = [request.GET.get("spec", ""), request.GET.get("against", "")]
    choices = page.choices_for(project, rollout_set, asked)
    chosen = page.chosen_of(choices, asked[0])
    spec = page.spec_named(project, chosen.key)
    context |= {
        "choices": choices,
        "chosen": chosen,
        "spec": spec,
        "shape": ShapeForm(prefix=PLACE),
        "editors": editors(),
        "strings": lab_strings(),
        "facts": _script_facts(project, rollout_set, choices, chosen),
    }
    return render(request, "rewards/lab/set.html", context)


def _script_facts(
    project: Project, rollout_set: RolloutSet, choices: list[page.Choice], chosen: page.Choice
) -> dict[str, Any]:
    """The data that the page's script starts with."""
    of_set = [project.slug, rollout_set.pk]
    nobody = UUID(int=0)
    return {
        "set": {"id": str(rollout_set.pk), "rollouts": rollout_set.rollouts, "groups": rollout_set.groups},
        "spec": chosen.key,
        "choices": [item._asdict() for item in choices],
        "functions": page.functions(),
        "can_edit": can_edit(project),
        "urls": {
            "score": reverse("lab-score", args=of_set),
            "save": reverse("lab-save", args=[project.slug]),
            "rollout": reverse("lab-rollout", args=[*of_set, nobody]).removesuffix(f"{nobody}/"),
            "recorded": reverse("rollout-detail", args=[project.slug, nobody]).removesuffix(f"{nobody}/")
            if rollout_set.run
            else None,
            "launch": page.launch_address(project, rollout_set),
        },
    }


def _state_context(rollout_set: RolloutSet) -> dict[str, Any]:
    """The context of the changing part of the page."""
    return {
        "set": rollout_set,
        "percent": selectors.percent_of(rollout_set),
        "States": SetState,
        "failure": failure(rollout_set.error),
    }


@login_required
@require_GET
def lab_set_progress(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """How far the building has come, as a fragment; makes HTMX load the page again once it has ended."""
    project, rollout_set = _own_set(request, slug, pk)
    response = render(request, "rewards/lab/_progress.html", _state_context(rollout_set) | {"project": project})
    if rollout_set.state != SetState.BUILDING:
        response["HX-Refresh"] = "true"
    return response


@login_required
@require_POST
def lab_set_remove(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """Delete a set; the run that it was made of keeps its rollouts."""
    project, rollout_set = _own_set(request, slug, pk, need=Role.EDITOR)
    try:
        sets.rollout_set_delete(rollout_set=rollout_set)
    except ValidationError as exc:
        messages.error(request, " ".join(exc.messages))
    else:
        messages.success(request, _("The rollout set %(name)s was deleted.") % {"name": rollout_set})
    return redirect("lab", slug=project.slug)


class SaveRequest(BaseModel):
    """A spec as the lab's page sends it."""

    model_config = ConfigDict(extra="forbid")

    name: str = Field(max_length=200)
    components: Components


@login_required
@require_POST
def lab_save(request: HttpRequest, slug: str) -> JsonResponse:
    """Save the changes made in the lab as the next version of a spec."""
    project = project_for(request.user, slug, need=Role.EDITOR)
    try:
        asked = SaveRequest.model_validate_json(request.body)
        spec = reward_spec_save(
            project=project, user=cast(User, request.user), name=asked.name, components=asked.components
        )
    except ShapeError as exc:
        return JsonResponse(error_body(request, "invalid", detail=page.problems_of(exc)), status=422)
    except ValidationError as exc:
        found = errors_by_field(exc)
        sentence = " ".join(text for texts in found.values() for text in texts)
        return JsonResponse(error_body(request, "invalid", sentence, found), status=422)
    return JsonResponse({"ok": True, "key": str(spec.pk), "label": str(spec), "reference": spec.reference})
