"""Scoring the recorded rollouts of a comparison by its spec: what that would do, and the request for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, cast
from urllib.parse import urlencode
from uuid import UUID

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET, require_POST

from webapp.common.pages import errors_by_field
from webapp.common.words import Failure, failure
from webapp.evaluation.comparison.contestants import MOST, Contestant, contestants_of
from webapp.evaluation.comparison.figures import Spec
from webapp.evaluation.comparison.rewards import Evaluations, spec_named
from webapp.evaluation.rescoring.models import Rescoring, RescoringState
from webapp.evaluation.rescoring.services import (
    asked_by,
    asks_text,
    newest_for,
    percent_of,
    refusal_of,
    rescoring_cancel,
    rescoring_create,
    rescorings_of,
)
from webapp.people.teams.access import own, project_for
from webapp.people.teams.models import Project, Role, User


class Offer(NamedTuple):
    """What scoring would do: for how many rollouts, which judges and models it would ask, why it cannot be done; and
    the last request.

    ``spec`` is how addresses name the spec. ``again``: all of these were tried before, without a value.
    """

    spec: str
    rollouts: int
    asks: str
    refusal: str
    newest: Rescoring | None
    again: bool

    @property
    def open(self) -> bool:
        """Whether a worker does it, or it waits for one."""
        return self.newest is not None and self.newest.state in self.newest.OPEN

    @property
    def percent(self) -> int:
        """How far it has come."""
        return percent_of(self.newest) if self.newest else 0

    @property
    def cancelled(self) -> bool:
        """Whether it was cancelled the last time."""
        return self.newest is not None and self.newest.state == RescoringState.CANCELLED

    @property
    def failure(self) -> Failure | None:
        """Why it failed the last time."""
        failed = self.newest is not None and self.newest.state == RescoringState.FAILED
        return failure(self.newest.error) if failed and self.newest else None


def offer_of(project: Project, read: Evaluations) -> Offer | None:
    """What there is to score; ``None`` where nothing lacks and no scoring is open."""
    playing, numbers, rewards = read
    if rewards.chosen is None or not any(lacks.by_name for lacks in numbers.lacks):
        return None
    components = {item.name: item for item in rewards.chosen.components}
    lacking = [
        (components[name], lack) for lacks in numbers.lacks for name, lack in lacks.by_name.items() if lack.missing
    ]
    newest = newest_for(project, [item.run.pk for item in playing], rewards.chosen.components)
    if not lacking and (newest is None or newest.state not in newest.OPEN):
        return None
    return Offer(
        spec=rewards.asked,
        rollouts=sum(lacks.rollouts for lacks in numbers.lacks),
        asks=asks_text(asked_by((item, lack.missing) for item, lack in lacking)),
        refusal=refusal_of(project, list({item.name: item for item, _lack in lacking}.values())),
        newest=newest,
        again=not any(lack.unscored for _item, lack in lacking),
    )


def rescore(*, project: Project, user: User | None, runs: Sequence[str], spec: str, confirmed: bool) -> Rescoring:
    """Have the evaluations among these runs scored by a spec, named as in addresses. Raises ``ValidationError``."""
    playing, chosen = _contestants_and_spec(project, runs, spec)
    return rescoring_create(
        project=project,
        user=user,
        name=chosen.name,
        components=chosen.components,
        runs=[item.run for item in playing],
        confirmed=confirmed,
    )


def _contestants_and_spec(project: Project, runs: Sequence[str], spec: str) -> tuple[list[Contestant], Spec]:
    wanted = list(dict.fromkeys(text.lower() for text in runs))
    if len(wanted) > MOST:
        sentence = _("%(most)d can be compared at once, and these are %(n)d; choose fewer.")
        raise ValidationError({"runs": sentence % {"most": MOST, "n": len(wanted)}})
    contestants, _notes = contestants_of(project, wanted)
    if missing := len(wanted) - len(contestants):
        sentence = _("Not in this project, or deleted: %(n)d of the %(all)d runs. Choose others.")
        raise ValidationError({"runs": sentence % {"n": missing, "all": len(wanted)}})
    playing = [item for item in contestants if item.evaluates]
    if not playing:
        raise ValidationError({"runs": _("None of these runs is an evaluation; only evaluations are scored again.")})
    chosen = spec_named(project, playing, spec) if len(spec) <= 200 else None
    if chosen is None:
        raise ValidationError({"spec": _("There is no such reward spec, and none of the runs has that id.")})
    return playing, chosen


# --- Rescoring views ------------------------------------------------------------------------------------------------
# Scoring the recorded rollouts of a comparison: the button, the progress, and cancelling it.


@login_required
@require_POST
def compare_rescore(request: HttpRequest, slug: str) -> HttpResponse:
    """Have the rollouts of the evaluations ``c`` scored by ``spec``: how far that is for htmx, else the comparison."""
    project = project_for(request.user, slug, need=Role.EDITOR)
    runs, spec = request.POST.getlist("c"), request.POST.get("spec", "")
    problems: list[str] = []
    rescoring: Rescoring | None = None
    try:
        rescoring = rescore(
            project=project,
            user=cast(User, request.user),
            runs=runs[:100],
            spec=spec,
            confirmed=request.POST.get("confirmed") == "yes",
        )
    except ValidationError as exc:
        problems = [text for texts in errors_by_field(exc).values() for text in texts]
    if getattr(request, "htmx", False):
        if rescoring is not None:
            return render(request, "comparison/_rescoring.html", _state_context(project, rescoring))
        answer = render(request, "comparison/_rescoring_problem.html", {"problems": problems}, status=422)
        answer["HX-Retarget"] = "#rescoring-problem"  # the form stays
        return answer
    if problems:
        messages.error(request, " ".join(problems))
    return redirect(_compare_address(slug, runs, spec))


def _compare_address(slug: str, runs: list[str], spec: str) -> str:
    return f"{reverse('compare', args=[slug])}?{urlencode({'c': runs, 'spec': spec}, doseq=True)}"


def _state_context(project: Project, rescoring: Rescoring) -> dict[str, Any]:
    """What the changing part of the page shows."""
    return {
        "project": project,
        "rescoring": rescoring,
        "percent": percent_of(rescoring),
        "open": rescoring.state in Rescoring.OPEN,
    }


@login_required
@require_GET
def rescoring_progress(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """How far it is, as a fragment; makes htmx load the page again once it has ended."""
    project, rescoring = own(request, slug, Rescoring, pk, within=rescorings_of)
    response = render(request, "comparison/_rescoring.html", _state_context(project, rescoring))
    if rescoring.state not in Rescoring.OPEN:
        response["HX-Refresh"] = "true"
    return response


@login_required
@require_POST
def rescoring_end(request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
    """Cancel it; what was scored until then is kept."""
    project, rescoring = own(request, slug, Rescoring, pk, need=Role.EDITOR, within=rescorings_of)
    rescoring_cancel(rescoring=rescoring, user=cast(User, request.user))
    if getattr(request, "htmx", False):
        response = render(request, "comparison/_rescoring.html", _state_context(project, rescoring))
        response["HX-Refresh"] = "true"
        return response
    return redirect(_compare_address(slug, rescoring.runs, ""))
