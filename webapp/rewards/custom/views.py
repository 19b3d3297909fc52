"""The editor of a reward in Python: write, test, save. Every step asks whether custom rewards are on."""

from __future__ import annotations

from typing import Any, cast
from uuid import UUID

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import PermissionDenied, ValidationError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods, require_POST

from training.rewards.custom import CUSTOM
from training.sandbox.modules import ALLOWED
from webapp.common.pages import add_errors, probe_allowed
from webapp.people.teams.access import project_for
from webapp.people.teams.audit import audit
from webapp.people.teams.models import AuditAction, Project, Role, User
from webapp.people.teams.switches import custom_rewards_on
from webapp.rewards.custom.examples import BY_KEY, EXAMPLES
from webapp.rewards.custom.forms import CodeForm, CustomRewardForm
from webapp.rewards.custom.sources import samples_of
from webapp.rewards.custom.testing import Tested, code_test
from webapp.rewards.selectors import specs_of
from webapp.rewards.services import reward_spec_save


def _require_on() -> None:
    if not custom_rewards_on():
        raise PermissionDenied(_("Custom rewards are off. An administrator of this installation switches them on."))


def _editor_start(request: HttpRequest, project: Project) -> dict[str, Any]:
    """The editor's initial values: an example, or the code of a component of a spec of this project."""
    example = BY_KEY.get(request.GET.get("example", ""), EXAMPLES[0])
    start: dict[str, Any] = {"code": example.code, "name": f"my_{example.key}"}
    try:
        spec = specs_of(project).filter(pk=UUID(request.GET.get("spec", ""))).first()
    except ValueError:
        spec = None
    if spec is None:
        return start
    start["spec"] = spec.name
    part = next((item for item in spec.components if item["name"] == request.GET.get("part")), None)
    if part is not None and (part.get("function") or part["name"]) == CUSTOM:
        start |= {"name": part["name"], "weight": part["weight"], **part["params"]}
    return start


def _editor_page(
    request: HttpRequest, project: Project, form: CodeForm, *, status: int = 200, **more: Any
) -> HttpResponse:
    context = {
        "project": project,
        "form": form,
        "examples": EXAMPLES,
        "modules": [n for n in ALLOWED if n[0] != "_"],
        "on": custom_rewards_on(),
        **more,
    }
    return render(request, "rewards/custom.html", context, status=status)


@login_required
@require_http_methods(["GET", "POST"])
def custom_edit(request: HttpRequest, slug: str) -> HttpResponse:
    """The editor; saving takes only code that was tested without an error, known by its hash."""
    project = project_for(request.user, slug, need=Role.EDITOR)
    if request.method == "GET":
        return _editor_page(
            request, project, CustomRewardForm(project=project, initial=_editor_start(request, project))
        )
    _require_on()
    form = CustomRewardForm(request.POST, project=project)
    if form.is_valid():
        user = cast(User, request.user)
        name = form.cleaned_data["spec"] or form.cleaned_data["spec_name"]
        try:
            spec = reward_spec_save(project=project, user=user, name=name, components=form.components())
        except ValidationError as exc:
            add_errors(form, exc)
        else:
            sha256 = form.params.sha256 if form.params else ""
            audit(AuditAction.CODE_SAVED, subject=sha256, project=project)
            messages.success(request, _("%(name)s is saved.") % {"name": spec})
            return redirect("reward-detail", slug=slug, pk=spec.pk)
    return _editor_page(request, project, form, status=422)


@login_required
@require_POST
def custom_try(request: HttpRequest, slug: str) -> HttpResponse:
    """Run the code on rollouts; a test without an error is noted, and its code can be saved from then on."""
    project = project_for(request.user, slug, need=Role.EDITOR)
    _require_on()
    form, tested = CodeForm(request.POST, project=project), None
    if form.is_valid():
        tested = _run_test(request, project, form)
    if request.headers.get("HX-Request") == "true":
        return render(request, "rewards/_custom_tested.html", {"form": form, "tested": tested})
    whole = CustomRewardForm(request.POST, project=project)
    for name, errors in form.errors.items():
        whole.errors[name] = errors
    return _editor_page(request, project, whole, tested=tested, status=200 if tested else 422)


def _run_test(request: HttpRequest, project: Project, form: CodeForm) -> Tested | None:
    user, cleaned = cast(User, request.user), form.cleaned_data
    if form.params is None:
        return None
    try:
        if not probe_allowed(user):
            raise ValidationError(_("Too many tests in one minute. Wait a moment."))
        tested = code_test(form.params, samples_of(project, cleaned["source"], cleaned["pasted"]))
    except ValidationError as exc:
        add_errors(form, exc)
        return None
    if tested.passed:
        audit(AuditAction.CODE_TESTED, subject=tested.sha256, project=project)
    return tested
