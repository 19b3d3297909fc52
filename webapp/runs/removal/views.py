"""The page that asks before something is deleted: what goes, how many bytes that frees, and the name to type."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast
from uuid import UUID

from django.contrib import messages
from django.contrib.auth import logout
from django.contrib.auth.decorators import login_required
from django.core.exceptions import PermissionDenied, ValidationError
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST

from webapp.common.pages import own_address
from webapp.people.teams.access import administrator, object_of_team, own, project_for, team_for
from webapp.people.teams.models import Project, Role, Team, User
from webapp.people.teams.selectors import person
from webapp.people.teams.services import kept_of, lost_with, may_delete, obstacles, person_delete
from webapp.people.teams.sudo import Act, ask
from webapp.runs.models import Run
from webapp.runs.registry.models import Checkpoint
from webapp.runs.registry.selectors import checkpoints_of
from webapp.runs.removal.models import Removal
from webapp.runs.removal.services import Forecast, Item, forecast, removal_retry, remove

BULKY = (Project, Team)
"""What may hold the files of many runs: their sizes are read once the page is there."""
DELETES: dict[type, Act] = {
    Run: Act.DELETE_RUN,
    Checkpoint: Act.DELETE_CHECKPOINT,
    Project: Act.DELETE_PROJECT,
    Team: Act.DELETE_TEAM,
}


@login_required
@require_http_methods(["GET", "POST"])
def run_delete(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """Delete a run with all that it recorded."""
    project, run = own(request, slug, Run, pk, need=Role.OWNER)
    return _delete_page(request, project, run, reverse("run-detail", args=[slug, pk]), reverse("run-list", args=[slug]))


@login_required
@require_http_methods(["GET", "POST"])
def checkpoint_delete(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """Delete one checkpoint's files."""
    project, item = own(request, slug, Checkpoint, pk, need=Role.OWNER, within=checkpoints_of)
    models = reverse("model-list", args=[slug])
    return _delete_page(request, project, item, models, models)


@login_required
@require_http_methods(["GET", "POST"])
def project_delete(request: HttpRequest, slug: str) -> HttpResponse:
    """Delete a project with all that is in it."""
    project = project_for(request.user, slug, need=Role.OWNER)
    return _delete_page(request, project, project, reverse("team-settings", args=[slug]), "/?all=1")


@login_required
@require_http_methods(["GET", "POST"])
def team_delete(request: HttpRequest, pk: UUID) -> HttpResponse:
    """Delete a team with all its projects."""
    team = team_for(request.user, pk, need=Role.OWNER)
    return _delete_page(request, None, team, "/?all=1", "/?all=1")


@never_cache
@login_required
@require_http_methods(["GET", "POST"])
def account_delete(request: HttpRequest) -> HttpResponse:
    """Delete one's own account."""
    user = cast(User, request.user)
    answer = _person_page(request, user, reverse("set-password"), reverse("login"))
    if user.deleted_at is not None:
        logout(request)
        messages.success(request, _("Your account was deleted."))
    return answer


@never_cache
@login_required
@require_http_methods(["GET", "POST"])
def person_delete_page(request: HttpRequest, pk: UUID) -> HttpResponse:
    """Delete another person's account, as an administrator."""
    by, user = administrator(request), person(pk)
    if user is None:
        raise Http404
    if user.pk == by.pk:
        return redirect("account-delete")
    if not may_delete(by=by, user=user):
        raise PermissionDenied(_("An administrator cannot delete another administrator."))
    return _person_page(request, user, reverse("site"), reverse("site"))


def _person_page(request: HttpRequest, user: User, back: str, then: str) -> HttpResponse:
    by = cast(User, request.user)
    found = Forecast(user.username, None, lost_with(user), obstacles(user), kept_of(user), weighs=False)
    return confirm_page(request, None, found, Act.DELETE_PERSON, lambda: person_delete(user=user, by=by), back, then)


@login_required
@require_POST
def removal_again(request: HttpRequest, pk: UUID) -> HttpResponse:
    """Try a deletion again that failed."""
    removal = object_of_team(request.user, Removal, pk, need=Role.OWNER)
    if removal_retry(removal):
        messages.success(request, _("%(name)s is being deleted again.") % {"name": removal.name})
    return redirect(own_address(request, request.POST.get("back", ""), "/?all=1"))


def _delete_page(request: HttpRequest, project: Project | None, item: Item, back: str, then: str) -> HttpResponse:
    weigh = not isinstance(item, BULKY) or "weigh" in request.GET
    found = forecast(item, weigh=weigh)
    return confirm_page(request, project, found, DELETES[type(item)], lambda: remove(item), back, then)


def confirm_page(
    request: HttpRequest,
    project: Project | None,
    found: Forecast,
    act: Act,
    delete: Callable[[], None],
    back: str,
    then: str,
) -> HttpResponse:
    """The page with a forecast; once the name was typed and the person confirmed, ``delete`` and lead to ``then``."""
    problems = []
    if request.method == "POST":
        if request.POST.get("name", "").strip() != found.name:
            problems = [_("Type the name exactly as it is shown.")]
        else:
            ask(request, act)
            try:
                delete()
            except ValidationError as exc:
                problems = list(exc.messages)
            else:
                messages.success(request, _("%(name)s was deleted.") % {"name": found.name})
                return redirect(then)
    context = {"project": project, "found": found, "problems": problems, "back": back}
    return render(request, "removal/confirm.html", context, status=422 if problems else 200)
