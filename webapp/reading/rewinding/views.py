"""The page of a rewound rollout."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.contrib.auth.decorators import login_required
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.translation import get_language
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET

from training.plain import number_in
from webapp.datasets.selectors import latest_datasets
from webapp.environments.playground.views import playground_strings
from webapp.environments.selectors import health_view
from webapp.people.teams.models import Project, Role
from webapp.reading.access import own_rollout
from webapp.reading.rewinding.scene import Scene, scene_of
from webapp.reading.rewinding.services import branch_count
from webapp.rewards.selectors import component_titles
from webapp.runs.config import component_titles as titles_of
from webapp.runs.rollouts.models import Rollout
from webapp.runs.rollouts.selectors import rollout_view

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
        "view": rollout_view(rollout),
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
        "branches": branch_count(rollout),
        "page": {
            "socket": f"/ws/rollouts/{rollout.pk}/rewind/?language={get_language() or ''}",
            "turn": begin,
            "last": scene.last,
            "titles": titles_of(scene.components),
            "branches": reverse("branch-list", args=[project.slug, rollout.pk]),
            "weights": {part.name: part.weight for part in scene.components},
        },
    }
