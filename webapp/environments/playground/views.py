"""The page of the playground."""

from __future__ import annotations

from uuid import UUID

from django.contrib.auth.decorators import login_required
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.translation import get_language
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET

from training.plain import number_in
from webapp.common.errors import error_body
from webapp.common.strings import run_strings
from webapp.datasets.models import Dataset
from webapp.datasets.selectors import latest_datasets, ready_datasets
from webapp.environments.models import Environment
from webapp.environments.playground.play import start_of_row
from webapp.environments.selectors import health_view
from webapp.people.teams.access import object_for, own
from webapp.people.teams.models import Role
from webapp.rewards.selectors import component_titles

# --- Strings --------------------------------------------------------------------------------------------------------
# The texts of the playground's scripts.


def playground_strings() -> dict[str, str]:
    """Those of a transcript, and the playground's own."""
    return {**run_strings(), **_state_strings(), **_acting_strings(), **_saving_strings()}


def _state_strings() -> dict[str, str]:
    return {
        "play.connecting": _("connecting"),
        "play.ready": _("ready"),
        "play.playing": _("episode open"),
        "play.over": _("episode over"),
        "play.closed": _("episode ended"),
        "play.lost": _("not connected"),
        "play.waiting": _("waiting for the environment"),
        "play.latency": _("{n} ms"),
        "play.done_yes": _("yes"),
        "play.done_no": _("no"),
        "play.not_yet": _("not yet"),
        "play.start": _("Choose a task and start an episode; the conversation appears here."),
        "play.close.4401": _("You have been logged out. Log in again to continue."),
        "play.close.4403": _("Your role does not allow playing here; ask an owner of your team."),
        "play.close.4404": _("This environment was removed."),
        "play.close.4429": _(
            "You play this environment in another tab already, or four environments at once. Close one, then reload."
        ),
        "play.close.4400": _("The server did not understand this page. Reload it."),
        "play.close.other": _("The connection was lost and with it the episode. Reload the page to start again."),
        "play.empty_info": _("The environment reported nothing."),
        "play.items": _("{n} entries"),
    }


def _acting_strings() -> dict[str, str]:
    return {
        "play.text_tab": _("Text"),
        "play.message": _("Message"),
        "play.message_beside": _("Text next to the calls"),
        "play.optional": _("optional"),
        "play.send_text": _("Send the text"),
        "play.send_call": _("Call it"),
        "play.send_queued": _("Send {n} calls"),
        "play.unqueue": _("Remove"),
        "play.no_parameters": _("This tool takes no arguments."),
        "play.required": _("This argument is required."),
        "play.not_number": _("This must be a number."),
        "play.not_integer": _("This must be a whole number."),
        "play.not_json": _("This is not valid JSON."),
        "play.not_object": _('This must be a JSON object, such as {"a": 1}.'),
        "play.not_list": _("This must be a JSON list, such as [1, 2]."),
        "play.unset": _("not set"),
        "play.true": _("true"),
        "play.false": _("false"),
        "play.default": _("If left empty: {value}"),
        "play.example": _("For example: {value}"),
        "play.too_large": _("This is larger than the {n} KB that one turn may have."),
        "play.too_many_calls": _("A turn has at most {n} calls."),
    }


def _saving_strings() -> dict[str, str]:
    return {
        "play.task_not_json": _("The task is not a JSON object."),
        "play.seed_bad": _("The seed is a whole number from 0 to 2147483647."),
        "play.no_dataset": _("Choose a dataset first."),
        "play.saved_row": _("Added to {name}."),
        "play.saved_case": _("Saved as the reward test case {name}."),
        "play.range_bad": _("A range needs two numbers, the lower one first."),
    }


MAX_DATASETS = 200
MAX_ROW_DIGITS = 9
NEEDED = Role.EDITOR  # playing takes a slot, so it needs the role that may launch runs


@login_required
@require_GET
def playground(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """The page to play an environment by hand; the episode's frames come over the socket."""
    project, environment = own(request, slug, Environment, pk, need=NEEDED)
    page = {
        "socket": f"/ws/environments/{environment.pk}/play/?language={get_language() or ''}",
        "row": reverse("environment-play-row", args=[slug, pk]),
    }
    context = {
        "project": project,
        "environment": environment,
        "health": health_view(environment),
        "page": page,
        "datasets": list(ready_datasets(project)[:MAX_DATASETS]),
        "strings": playground_strings(),
        "names": list(latest_datasets(project).values_list("name", flat=True)[:MAX_DATASETS]),
        "components": list(component_titles(project).items()),
    }
    return render(request, "environments/playground.html", context)


@login_required
@require_GET
def playground_row(request: HttpRequest, slug: str, pk: UUID) -> JsonResponse:
    """One row of a dataset, as an episode would begin with it."""
    project, _environment = own(request, slug, Environment, pk, need=NEEDED)
    number = number_in(request.GET.get("row", "1"), MAX_ROW_DIGITS)
    if number is None:
        return JsonResponse(error_body(request, "invalid", _("A row's number is a whole number from 1.")), status=422)
    try:
        wanted = UUID(request.GET.get("dataset", ""))
    except ValueError:
        return JsonResponse(error_body(request, "invalid", _("Choose a dataset first.")), status=422)
    dataset = object_for(request.user, Dataset, wanted, within=ready_datasets(project))
    try:
        start = start_of_row(dataset, number)
    except ValidationError as exc:
        return JsonResponse(error_body(request, "invalid", " ".join(exc.messages)), status=422)
    messages = [message.model_dump(mode="json", exclude_none=True) for message in start.messages]
    return JsonResponse({"ok": True, "messages": messages, "rows": dataset.rows, "name": str(dataset)})
