"""Pages of chats. What a person does in an open chat goes through the API."""

from __future__ import annotations

from typing import Any, NamedTuple, cast
from uuid import UUID

from django.conf import settings
from django.contrib.auth.decorators import login_required
from django.core.exceptions import ValidationError
from django.core.paginator import Paginator
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from training.config import name_in
from training.plain import number_in
from webapp.chat import selectors, services
from webapp.chat.conversation import Parameters, choices
from webapp.chat.models import Chat
from webapp.common.pages import errors_by_field, page_number
from webapp.common.strings import run_strings
from webapp.common.words import failure_strings
from webapp.datasets.models import Dataset, DatasetState
from webapp.datasets.selectors import datasets_of, latest_datasets, runs_using
from webapp.environments.models import DatasetOrder, Environment
from webapp.environments.playground.play import start_of_row
from webapp.environments.selectors import environments_of
from webapp.people.teams.access import can_edit, object_for, own, project_for
from webapp.people.teams.models import Project, Role, User
from webapp.runs.models import Run
from webapp.runs.registry.selectors import checkpoints_of
from webapp.runs.rollouts.models import Rollout, Turn

# --- Beginning ------------------------------------------------------------------------------------------------------
# The first messages of a chat that starts from a dataset's row or a rollout. Addresses name these, never their
# text.


class Beginning(NamedTuple):
    """The source (in words, and its page), and the fields of the form; unknown ones are empty."""

    title: str
    url: str
    system: str = ""
    first: str = ""
    environment: str = ""
    model: str = ""

    @property
    def values(self) -> dict[str, str]:
        """The fields of the form that it fills."""
        named = {name: getattr(self, name) for name in ("system", "first", "environment", "model")}
        return {name: value for name, value in named.items() if value}


def beginning_of(user: User, project: Project, asked: QueryDict) -> Beginning | None:
    """The beginning that ``?dataset=<id>&row=<from 1>`` or ``?rollout=<id>`` names; ``None`` without either.

    Raises ``Http404`` for what is not in this project, ``ValidationError`` for a row that is not there.
    """
    rollout, dataset = str(asked.get("rollout", "")), str(asked.get("dataset", ""))
    if rollout:
        return _beginning_of_rollout(project, rollout)
    if not dataset:
        return None
    within = datasets_of(project).filter(state=DatasetState.READY)
    found = object_for(user, Dataset, dataset, within=within, project=project)
    return _beginning_of_row(found, str(asked.get("row", "")))


def _beginning_of_row(dataset: Dataset, row: str) -> Beginning:
    number = number_in(row, 11)
    if number is None:
        raise ValidationError({"row": _("Say which row: a number from 1.")})
    start = start_of_row(dataset, number)
    made = Environment.objects.filter(pk__in=DatasetOrder.objects.filter(dataset=dataset).values("environment"))
    place = made.values_list("name", flat=True).first()
    if place is None:  # no environment wrote the rows: that of the newest run on them
        newest = runs_using(dataset).order_by("-created_at").first()
        place = _environment_of(newest) if newest is not None else ""
    title = _("Row %(row)s of %(name)s") % {"row": row, "name": dataset}
    url = reverse("dataset-detail", args=[dataset.project.slug, dataset.pk])
    messages = [message.model_dump() for message in start.messages]
    return Beginning(title, url, *_system_and_question(messages), environment=place)


def _beginning_of_rollout(project: Project, pk: str) -> Beginning:
    rows = Rollout.objects.filter(run__project=project).select_related("run")
    try:
        rollout = rows.filter(pk=UUID(pk)).first()
    except ValueError:
        rollout = None
    if rollout is None:
        raise Http404
    turn = Turn.objects.filter(rollout=rollout, number=0).first()
    left = checkpoints_of(project).filter(run=rollout.run, final=True).first()
    title = _("Rollout %(place)s of %(run)s") % {
        "place": f"{rollout.step}.{rollout.group}.{rollout.index}",
        "run": rollout.run.name,
    }
    return Beginning(
        title,
        reverse("rollout-detail", args=[project.slug, rollout.pk]),
        *_system_and_question(turn.messages if turn is not None else []),
        environment=_environment_of(rollout.run),
        model=left.reference if left is not None else "",
    )


def _system_and_question(messages: list[dict[str, Any]]) -> tuple[str, str]:
    """The system message and the first user message; imported runs may have recorded odd ones."""
    contents = [(message.get("role"), str(message.get("content") or "")) for message in messages]
    system = contents[0][1] if contents and contents[0][0] == "system" else ""
    return system, next((text for role, text in contents if role == "user"), "")


def _environment_of(run: Run) -> str:
    """The environment that a run names, while the project has it."""
    wanted = name_in("environment", str((run.config.get("environment") or {}).get("name") or ""))
    return wanted if wanted and Environment.objects.filter(project=run.project_id, name=wanted).exists() else ""


# --- Strings --------------------------------------------------------------------------------------------------------
# The texts of the chat's scripts.


def chat_strings() -> dict[str, str]:
    """Those of a transcript, and the chat's own."""
    return {**run_strings(), **failure_strings(), **_state_strings(), **_wait_strings(), **_act_strings()}


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
        "chat.device.cpu": _("on the processor"),
        "chat.device.cuda": _("on a GPU"),
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
        "chat.wait.no_room": _("The model does not fit into the memory that is free next to that run."),
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
