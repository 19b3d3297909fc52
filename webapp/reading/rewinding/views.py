"""The pages of a rewound rollout and of its branches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, cast, get_args
from urllib.parse import urlencode
from uuid import UUID

from django import forms
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import ValidationError
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import get_language
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET, require_POST

from training.config import POLICY_CHOICES, Policy, RolloutConfig, kind_in
from training.errors import ConfigError, TiltyardError
from training.plain import number_in
from webapp.common.answers import in_shape
from webapp.common.text import in_words, translated
from webapp.common.words import failure
from webapp.datasets.selectors import latest_datasets
from webapp.environments.playground.views import playground_strings
from webapp.environments.selectors import health_view
from webapp.evaluation.suites.services import contestants_offered
from webapp.people.teams.access import can_edit
from webapp.people.teams.models import Project, Role, User
from webapp.reading.rewinding import services
from webapp.reading.rewinding.models import Branch
from webapp.reading.rewinding.scene import Scene, continuing, recorded_messages, scene_of
from webapp.reading.selectors import own_rollout
from webapp.reading.turns import Message, message_of
from webapp.rewards.selectors import component_titles
from webapp.runs import answers
from webapp.runs.config import component_titles as titles_of
from webapp.runs.registry.selectors import registered_as
from webapp.runs.rollouts.models import Rollout

# --- Strings --------------------------------------------------------------------------------------------------------
# The texts of a rewound rollout's script.


def rewind_strings() -> dict[str, str]:
    """The playground's, and those of a replay."""
    return {
        **playground_strings(),
        "play.start": _("The recorded turns are being played again."),
        "play.close.4404": _("This rollout, or its environment, was removed."),
        "play.close.other": _("The connection was lost and with it the episode. Reload the page to rewind again."),
        "rewind.same": _("same"),
        "rewind.other": _("other answer"),
        "rewind.unchecked": _("as recorded"),
        "rewind.all_same": _(
            "The turns before it were played again in {ms} ms, and every answer is the recorded one. "
            "Turn {turn} is yours."
        ),
        "rewind.none": _("The episode is at its beginning, as recorded. Turn {turn} is yours."),
        "rewind.not_asked": _(
            "This server keeps no episode, so nothing was asked again: the conversation is the recorded one. "
            "Turn {turn} is yours."
        ),
        "rewind.over": _("The episode is over here; choose an earlier turn to continue from."),
        "rewind.messages": _("The environment answers differently from turn {turn} on."),
        "rewind.opening": _("The environment opens the episode differently from the recording."),
        "rewind.ended": _("The episode ended after turn {turn}, although more was recorded."),
        "rewind.reward": _("The environment gives another reward at the end."),
        "rewind.not_scored": _("When the episode is over, or you end it, the branch is scored here and kept."),
        "rewind.failed": _("The recorded turns could not be played again."),
        "rewind.branches": _("Side by side with the recorded rollout"),
        "rewind.recorded": _("Recorded"),
        "rewind.now": _("Now"),
        "rewind.nothing": _("(nothing)"),
        "rewind.turn_bad": _("Choose a turn from 1 to {n}."),
    }


MAX_NAMES = 200


@login_required
@require_GET
def rollout_rewind(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """The page on which a person continues from a turn of a recorded rollout; the episode's frames come over the
    socket."""
    project, rollout = own_rollout(request, slug, pk, need=Role.EDITOR)
    context: dict[str, Any] = {
        "project": project,
        "rollout": rollout,
        "run": rollout.run,
        "view": in_shape(answers.Rollout, rollout),
    }
    try:
        scene = scene_of(rollout)
    except ValidationError as exc:
        context["refused"] = " ".join(exc.messages)
        return render(request, "rewinding/rewind.html", context)
    turn = number_in(request.GET.get("turn", ""), 5) or 1
    return render(request, "rewinding/rewind.html", context | _player_context(project, rollout, scene, turn))


def _player_context(project: Project, rollout: Rollout, scene: Scene, turn: int) -> dict[str, Any]:
    """The context of the player, at an existing turn."""
    environment = scene.environment
    begin = max(1, min(turn, scene.last))
    return {
        "environment": environment,
        "health": health_view(environment),
        "turn": begin,
        "last": scene.last,
        "names": list(latest_datasets(project).values_list("name", flat=True)[:MAX_NAMES]),
        "components": list(component_titles(project).items()),
        "strings": rewind_strings(),
        "branches": services.branch_count(rollout),
        "page": {
            "socket": f"/ws/rollouts/{rollout.pk}/rewind/?language={get_language() or ''}",
            "turn": begin,
            "last": scene.last,
            "titles": titles_of(scene.components),
            "branches": reverse("branch-list", args=[project.slug, rollout.pk]),
            "weights": {part.name: part.weight for part in scene.components},
        },
    }


# --- Side by side ---------------------------------------------------------------------------------------------------
# Branches of a rollout next to it, message by message, from the first turn that was not the recorded one.

MOST_COLUMNS = 4
ROWS = 60
TEXT_CHARS = 4_000
Raw = dict[str, Any]


class Column(NamedTuple):
    """The recorded rollout (no ``branch``) or one of its branches."""

    branch: Branch | None
    messages: list[Raw]


class Cell(NamedTuple):
    """The content of a column at a place: one message, or none after its end."""

    branch: Branch | None
    messages: list[Message]


class Row(NamedTuple):
    """One place of the conversation; ``first``: the first place at which they are not all the same."""

    cells: list[Cell]
    same: bool
    first: bool


class Sides(NamedTuple):
    """The columns, the rows from ``skipped`` on, and how many messages come after them."""

    columns: list[Column]
    rows: list[Row]
    skipped: int
    left: int


def chosen_of(branches: Sequence[Branch], asked: Sequence[str]) -> list[Branch]:
    """The branches that an address names by id; without any the newest ones."""
    found = [branch for branch in branches if str(branch.pk) in asked]
    return (found or list(branches))[: MOST_COLUMNS - 1]


def beside(rollout: Rollout, branches: Sequence[Branch]) -> Sides:
    """The recorded rollout and these branches; what all of them begin with is left out but for its last message."""
    recorded = recorded_messages(rollout)
    columns = [Column(None, recorded), *(Column(item, item.conversation(recorded)) for item in branches)]
    length = max(len(column.messages) for column in columns)
    differs = next((at for at in range(length) if not _same_message(columns, at)), None)
    skipped = max(0, (length if differs is None else differs) - 1)
    rows = [_row_at(columns, at, differs) for at in range(skipped, min(length, skipped + ROWS))]
    return Sides(columns, rows, skipped, max(0, length - skipped - ROWS))


def _message_at(column: Column, at: int) -> Raw | None:
    return column.messages[at] if at < len(column.messages) else None


def _same_message(columns: Sequence[Column], at: int) -> bool:
    first = _message_at(columns[0], at)
    return all(_message_at(column, at) == first for column in columns[1:])


def _row_at(columns: Sequence[Column], at: int, differs: int | None) -> Row:
    return Row([_cell_at(column, at) for column in columns], _same_message(columns, at), at == differs)


def _cell_at(column: Column, at: int) -> Cell:
    raw = _message_at(column, at)
    return Cell(column.branch, [] if raw is None else [message_of(raw, at, TEXT_CHARS)])


# The page of a rollout's branches: kept side by side, and made into data.

# --- Forms ----------------------------------------------------------------------------------------------------------
# The form that lets a contestant continue.


class ContinuationForm(forms.Form):
    """Who continues, from which turn, how often; without a temperature at that of the recorded run."""

    contestant = forms.CharField(max_length=200)
    turn = forms.IntegerField(min_value=1, max_value=2**31 - 1)
    times = forms.IntegerField(min_value=1, max_value=services.MAX_TIMES)
    temperature = forms.FloatField(required=False, min_value=0.01, max_value=5)

    @property
    def problem(self) -> str:
        """The form's errors, one sentence for each field."""
        return " ".join(f"{name}: {error}" for name, errors in self.errors.items() for error in errors)


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
    branches = services.branches_of(rollout)
    shown = chosen_of(branches, request.GET.getlist("show"))
    context: dict[str, Any] = {
        "project": project,
        "rollout": rollout,
        "run": rollout.run,
        "view": in_shape(answers.Rollout, rollout),
        "can_edit": can_edit(project),
        "lines": [
            (item, item in shown, _toggle_address(item, shown), _reward_gain(item, rollout)) for item in branches
        ],
        "sides": beside(rollout, shown) if shown else None,
        "most": MOST_COLUMNS,
        "limit": services.MAX_BRANCHES,
        "problem": problem,
        "going": continuing(rollout),
        "contestants": [(value, title) for value, title in contestants_offered(project) if _plays_here(value)],
        "contestant": _default_contestant(rollout),
        "times": services.USUAL_TIMES,
        "turn": _parse_turn(request.GET.get("turn", "")),
        "most_times": services.MAX_TIMES,
        "temperature": rollout.run.config.get("rollout", {}).get("temperature", RolloutConfig().temperature),
        "policies": [(name, translated(title)) for name, title in POLICY_CHOICES.items()],
        "names": list(latest_datasets(project).values_list("name", flat=True)[:MAX_NAMES]),
    }
    return render(request, "rewinding/branches.html", context, status=status)


def _error_sentence(error: TiltyardError) -> str:
    """The error in the reader's language: a config's own sentence, else the title and hint of its code."""
    if isinstance(error, ConfigError):
        return in_words(error.sentence)
    shown = failure(error.info.model_dump(mode="json"))
    return f"{shown.title} {shown.hint}" if shown else error.message


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
        services.continuation_create(rollout=rollout, user=cast(User, request.user), **form.cleaned_data)
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
        made = services.rollout_continue(rollout=rollout, user=user, turn=turn, policies=policies)
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
        made = services.branch_save(
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
        services.branch_delete(branch=_own_branch(rollout, branch_id))
    except ValidationError as exc:
        return _branches_page(request, project, rollout, " ".join(exc.messages), status=422)
    messages.success(request, _("The branch is deleted."))
    return redirect("branch-list", slug=project.slug, pk=rollout.pk)


def _own_branch(rollout: Rollout, pk: UUID) -> Branch:
    """A branch of this rollout, with the rollout set on it. Raises ``Http404``."""
    branch = services.branch_of(rollout, pk)
    if branch is None:
        raise Http404
    branch.rollout = rollout
    return branch
