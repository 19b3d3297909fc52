"""Pages of chats. What a person does in an open chat goes through the API."""

from __future__ import annotations

from typing import Any, cast
from uuid import UUID

from django.conf import settings
from django.contrib.auth.decorators import login_required
from django.core.exceptions import ValidationError
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from webapp.chat import selectors, services
from webapp.chat.beginning import beginning_of
from webapp.chat.contestants import choices
from webapp.chat.models import Chat
from webapp.chat.parameters import Parameters
from webapp.chat.strings import chat_strings
from webapp.common.pages import errors_by_field, page_number
from webapp.datasets.selectors import latest_datasets
from webapp.environments.selectors import environments_of
from webapp.people.teams.access import can_edit, object_for, project_for
from webapp.people.teams.models import Project, Role, User

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


def _own_chat(request: HttpRequest, slug: str, pk: UUID, need: Role = Role.VIEWER) -> tuple[Project, Chat]:
    project = project_for(request.user, slug, need=need)
    within = selectors.chats_of(project).select_related("environment")
    return project, object_for(request.user, Chat, pk, need=need, within=within)


@login_required
@require_GET
def chat_detail(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """The page of one chat; its messages come over its socket."""
    project, chat = _own_chat(request, slug, pk)
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
    _project, chat = _own_chat(request, slug, pk, need=Role.EDITOR)
    services.chat_delete(chat=chat)
    return redirect("chat-list", slug)
