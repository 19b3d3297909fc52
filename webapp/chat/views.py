"""Pages of chats. What a person does in an open chat goes through the API."""

from __future__ import annotations

from typing import Any, cast
from uuid import UUID

from django.conf import settings
from django.contrib.auth.decorators import login_required
from django.core.exceptions import ValidationError
from django.core.paginator import Paginator
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from webapp.chat import selectors, services
from webapp.chat.beginning import beginning_of
from webapp.chat.contestants import choices
from webapp.chat.models import Chat
from webapp.chat.parameters import Parameters
from webapp.common.pages import errors_by_field, page_number
from webapp.common.strings import run_strings
from webapp.datasets.selectors import latest_datasets
from webapp.environments.selectors import environments_of
from webapp.people.teams.access import can_edit, own, project_for
from webapp.people.teams.models import Project, Role, User

# --- Strings --------------------------------------------------------------------------------------------------------
# The texts of the chat's scripts.


def chat_strings() -> dict[str, str]:
    """Those of a transcript, and the chat's own."""
    return {**run_strings(), **_state_strings(), **_wait_strings(), **_act_strings()}


def _state_strings() -> dict[str, str]:
    return {
        "chat.you": _("You"),
        "chat.environment": _("Environment"),
        "chat.begins": _("The environment begins."),
        "chat.status.connecting": _("connecting"),
        "chat.status.live": _("live"),
        "chat.status.stale": _("no updates for a while"),
        "chat.status.paused": _("database unreachable"),
        "chat.status.reconnecting": _("reconnecting"),
        "chat.status.login": _("logged out"),
        "chat.status.forbidden": _("no access"),
        "chat.status.gone": _("deleted"),
        "chat.closed.login": _("You have been logged out. Log in again to continue."),
        "chat.closed.forbidden": _("You can no longer see this chat."),
        "chat.closed.gone": _("This chat was deleted."),
        "chat.answering": _("being written"),
        "chat.stopped": _("stopped"),
        "chat.cut": _("cut off"),
        "chat.length": _("cut at {n} tokens: raise “Tokens at most” and regenerate"),
        "chat.turns": _("stopped after {n} turns with the environment"),
        "chat.differs": _("The environment answered earlier calls differently this time."),
        "chat.nothing": _("Nothing was written."),
        "chat.tokens": _("{n} tokens"),
        "chat.first": _("first after {t}"),
        "chat.reward": _("reward {n}"),
        "chat.said.done": _("{name} has answered."),
        "chat.said.other": _("{name}: {state}."),
    }


def _wait_strings() -> dict[str, str]:
    return {
        "chat.wait.loading": _("Loading the model, for {t} so far."),
        "chat.wait.starting": _("Waiting for a worker, for {t} so far."),
        "chat.wait.busy": _("Waiting for {t}: other chats have the worker; {n} before this one."),
        "chat.wait.run": _("Waiting for {t}: the run {run} has the worker."),
        "chat.wait.run_left": _("Waiting for {t}: the run {run} has the worker, for about {left} more."),
        "chat.wait.other_run": _("Waiting for {t}: a run of another project has the worker."),
        "chat.wait.other_run_left": _(
            "Waiting for {t}: a run of another project has the worker, for about {left} more."
        ),
        "chat.wait.no_worker": _("No worker is available. Waiting for {t}."),
        "chat.wait.open_run": _("Open the run"),
        "chat.wait.workers": _("Look at the workers"),
        "chat.wait.kept": _("Your message is kept; you may leave this page."),
    }


def _act_strings() -> dict[str, str]:
    return {
        "chat.edit": _("Edit"),
        "chat.edit_send": _("Send the changed message"),
        "chat.edit_note": _("Later messages are kept as an earlier version."),
        "chat.cancel": _("Cancel"),
        "chat.again": _("Regenerate"),
        "chat.try": _("{n} of {all}"),
        "chat.try_before": _("Earlier answer"),
        "chat.try_next": _("Later answer"),
        "chat.versions": _("Earlier versions ({n})"),
        "chat.no_answer": _("this call got no answer"),
        "chat.arguments": _("Arguments"),
        "chat.result": _("Answer"),
        "chat.too_long": _("This message has {n} characters; at most {most} fit."),
        "chat.refused": _("That did not work. Try again in a moment."),
        "chat.saved_row": _("Added to {name}."),
        "chat.saved_case": _("Saved as the reward test case {name}."),
        "chat.range": _("Enter two numbers for the total, the lower one first."),
    }


PER_PAGE, MAX_NAMES = 50, 200


@login_required
@require_GET
def chat_list(request: HttpRequest, slug: str) -> HttpResponse:
    """The project's chats, or only those that the reader began."""
    project = project_for(request.user, slug)
    rows = selectors.chats_of(project)
    mine = request.GET.get("mine") == "1"
    if mine:
        rows = rows.filter(created_by=cast(User, request.user))
    page = Paginator(rows, PER_PAGE).get_page(page_number(request.GET.get("page")))
    context = {"project": project, "page": page, "mine": mine, "can_edit": can_edit(project)}
    return render(request, "chat/list.html", context)


@login_required
@require_http_methods(["GET", "POST"])
def chat_new(request: HttpRequest, slug: str) -> HttpResponse:
    """Start a chat: choose its contestants, and its environment."""
    project = project_for(request.user, slug, need=Role.EDITOR)
    values: dict[str, Any] = (request.POST if request.method == "POST" else request.GET).dict()
    errors: dict[str, list[str]] = {}
    begun = None
    if request.method == "GET":
        try:
            begun = beginning_of(cast(User, request.user), project, request.GET)
        except ValidationError as exc:
            errors = errors_by_field(exc)
        values = (begun.values if begun else {}) | values
    else:
        try:
            chat = services.chat_create(
                project=project,
                user=cast(User, request.user),
                contestants=_chosen_contestants(values),
                environment=values.get("environment", ""),
                parameters={"system": values.get("system", "")},
                first=values.get("first", ""),
            )
            return redirect("chat-detail", slug, chat.pk)
        except ValidationError as exc:
            errors = errors_by_field(exc)
    groups = choices(project)
    context = {
        "project": project,
        "groups": groups,
        "known": {choice.value for _label, found in groups for choice in found},
        "environments": environments_of(project),
        "values": values,
        "begun": begun,
        "errors": errors,
    }
    return render(request, "chat/new.html", context, status=422 if errors else 200)


def _chosen_contestants(values: dict[str, Any]) -> list[dict[str, Any]]:
    """The form's one or two choices; ``hub`` has a field of its own."""
    found = [values.get(name, "").strip() for name in ("model", "other")]
    return [{"source": values.get("hub", "").strip() if source == "hub" else source} for source in found if source]


def _with_environments(project: Project) -> QuerySet[Chat]:
    return selectors.chats_of(project).select_related("environment")


@login_required
@require_GET
def chat_detail(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """The page of one chat; its messages come over its socket."""
    project, chat = own(request, slug, Chat, pk, within=_with_environments)
    page = {
        "id": str(chat.pk),
        "socket": f"/ws/chats/{chat.pk}/",
        "api": f"/api/v1/chats/{chat.pk}",
        "runs": f"/p/{slug}/runs/",
        "workers": reverse("worker-list"),
        "may": can_edit(project),
        "contestants": [one["title"] for one in chat.contestants],
        "environment": chat.environment_name,
        "most_chars": services.MAX_TEXT_CHARS,
    }
    context = {
        "project": project,
        "chat": chat,
        "can_edit": can_edit(project),
        "parameters": Parameters.model_validate(chat.parameters),
        "page": page,
        "strings": chat_strings(),
        "names": list(latest_datasets(project).values_list("name", flat=True)[:MAX_NAMES]),
        "idle_s": settings.CHAT_IDLE_S,
    }
    return render(request, "chat/detail.html", context)


@login_required
@require_POST
def chat_delete(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """Delete a chat."""
    _project, chat = own(request, slug, Chat, pk, need=Role.EDITOR, within=_with_environments)
    services.chat_delete(chat=chat)
    return redirect("chat-list", slug)
