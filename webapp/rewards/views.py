"""Pages of reward specs."""

from __future__ import annotations

from typing import Any, cast
from uuid import UUID

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import ValidationError
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.functional import SimpleLazyObject
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from training.config import RewardComponent
from training.errors import ScorerDied
from webapp.common.errors import TooMany
from webapp.common.pages import add_errors, page_number
from webapp.people.teams.access import can_edit, object_for, project_for
from webapp.people.teams.models import Project, Role, User
from webapp.people.teams.switches import custom_rewards_on
from webapp.rewards import cases, selectors, services
from webapp.rewards.forms import RewardSpecForm, TryForm, addable
from webapp.rewards.models import RewardCase, RewardSpec
from webapp.rewards.paid import paid_for

ROWS_PER_PAGE = 50


def own_spec(request: HttpRequest, slug: str, pk: UUID, *, need: Role = Role.VIEWER) -> tuple[Project, RewardSpec]:
    """The project and its spec, for a person whose role is at least ``need``. Raises ``Http404`` or
    ``PermissionDenied``."""
    project = project_for(request.user, slug, need=need)
    return project, object_for(
        request.user, RewardSpec, pk, need=need, within=selectors.specs_of(project), project=project
    )


def _components_of(spec: RewardSpec) -> list[RewardComponent]:
    return [RewardComponent.model_validate(part) for part in spec.components]


@login_required
@require_GET
def reward_list(request: HttpRequest, slug: str) -> HttpResponse:
    """The newest version of every spec."""
    project = project_for(request.user, slug)
    page = Paginator(selectors.latest_specs(project), ROWS_PER_PAGE).get_page(page_number(request.GET.get("page")))
    rows = [(spec, selectors.parts_of(spec)) for spec in page]
    context = {"project": project, "page": page, "rows": rows, "can_edit": can_edit(project)}
    return render(request, "rewards/list.html", context)


@login_required
@require_http_methods(["GET", "POST"])
def reward_new(request: HttpRequest, slug: str) -> HttpResponse:
    """A new spec; starts with task success and the five components of tool calling."""
    project = project_for(request.user, slug, need=Role.EDITOR)
    return _edit_spec(request, project, None)


@login_required
@require_http_methods(["GET", "POST"])
def reward_edit(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """Make the next version from this one."""
    project, spec = own_spec(request, slug, pk, need=Role.EDITOR)
    return _edit_spec(request, project, spec)


def _edit_spec(request: HttpRequest, project: Project, spec: RewardSpec | None) -> HttpResponse:
    start = _components_of(spec) if spec else None
    data = request.POST if request.method == "POST" else None
    form = RewardSpecForm(data, components=start, initial={"name": spec.name if spec else ""})
    context = {"project": project, "form": form, "spec": spec, "addable": addable(), "custom_on": custom_rewards_on()}
    context["paid"] = paid_for(project, start) if start else None
    if data is None or "add" in data:
        return render(request, "rewards/edit.html", context, status=422 if form.add_problem else 200)
    if form.is_valid():
        try:
            saved = services.reward_spec_save(
                project=project,
                user=cast(User, request.user),
                name=form.cleaned_data["name"],
                components=form.cleaned_data["components"],
            )
        except ValidationError as exc:
            add_errors(form, exc)
        else:
            unchanged = spec is not None and saved.pk == spec.pk
            text = (
                _("Nothing changed, so there is no new version of %(name)s.") if unchanged else _("%(name)s is saved.")
            )
            messages.success(request, text % {"name": saved})
            return redirect("reward-detail", slug=project.slug, pk=saved.pk)
    return render(request, "rewards/edit.html", context, status=422)


def _detail_context(request: HttpRequest, project: Project, spec: RewardSpec, **more: Any) -> dict[str, Any]:
    versions = list(selectors.versions_of(spec)[:50])
    older = next((item for item in versions if item.version < spec.version), None)
    compared = next((item for item in versions if str(item.version) == request.GET.get("against")), older)
    changes = selectors.changes_between(compared, spec) if compared and compared.pk != spec.pk else []
    return {
        "project": project,
        "spec": spec,
        "parts": selectors.parts_of(spec),
        "paid": paid_for(project, _components_of(spec)),
        "versions": versions,
        "compared": compared if compared and compared.pk != spec.pk else None,
        "changes": changes,
        "runs": selectors.runs_using(spec).order_by("-created_at")[:20],
        "can_edit": can_edit(project),
        "try_form": TryForm(),
        "cases": SimpleLazyObject(lambda: cases.cases_under(spec, cast(User, request.user))),
        **more,
    }


@login_required
@require_GET
def reward_detail(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """One version: its components, what it changed, who uses it, and a box to try it."""
    project, spec = own_spec(request, slug, pk)
    return render(request, "rewards/detail.html", _detail_context(request, project, spec))


@login_required
@require_POST
def reward_try(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """Score a pasted conversation. Nothing is stored, so viewers may too."""
    project, spec = own_spec(request, slug, pk)
    form, tried, wait_s = TryForm(request.POST), None, 0
    if form.is_valid():
        try:
            user, text = cast(User, request.user), form.cleaned_data["conversation"]
            tried = services.reward_try(user=user, components=_components_of(spec), text=text)
        except ValidationError as exc:
            form.add_error("conversation", exc)
        except ScorerDied as exc:
            form.add_error("conversation", exc.message)
        except TooMany as exc:
            form.add_error("conversation", str(exc))
            wait_s = exc.wait_s
    context = _detail_context(request, project, spec, try_form=form, tried=tried)
    name = "rewards/_tried.html" if request.headers.get("HX-Request") == "true" else "rewards/detail.html"
    # HTMX swaps only successful answers, and the fragment carries its own errors.
    failed = tried is None and name == "rewards/detail.html"
    answer = render(request, name, context, status=(429 if wait_s else 422) if failed else 200)
    if wait_s:
        answer["Retry-After"] = str(wait_s)
    return answer


@login_required
@require_POST
def reward_remove(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """Delete one version."""
    _project, spec = own_spec(request, slug, pk, need=Role.EDITOR)
    try:
        services.reward_spec_delete(spec=spec)
    except ValidationError as exc:
        messages.error(request, " ".join(exc.messages))
        return redirect("reward-detail", slug=slug, pk=pk)
    messages.success(request, _("%(name)s was deleted.") % {"name": spec})
    return redirect("reward-list", slug=slug)


@login_required
@require_POST
def reward_case_remove(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """Delete one test case; back to the page that showed it."""
    project = project_for(request.user, slug, need=Role.EDITOR)
    case = object_for(request.user, RewardCase, pk, need=Role.EDITOR, within=cases.cases_of(project))
    cases.reward_case_delete(case=case)
    messages.success(request, _("The test case %(name)s was deleted.") % {"name": case.name})
    spec = selectors.specs_of(project).filter(pk=_parse_uuid(request.POST.get("spec"))).first()
    if spec is None:
        return redirect("reward-list", slug=slug)
    return redirect("reward-detail", slug=slug, pk=spec.pk)


def _parse_uuid(text: str | None) -> UUID:
    """The id that a form sent; the zero id where it is none."""
    try:
        return UUID(text or "")
    except ValueError:
        return UUID(int=0)
