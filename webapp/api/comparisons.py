"""Comparisons over the API."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

from django.http import HttpRequest
from ninja import Query, Router, Status
from pydantic import Field

from webapp.api.answers import comparing as comparing_answers
from webapp.api.base import caller
from webapp.api.idempotency import once
from webapp.api.schemas import Body
from webapp.common.answers import Extended
from webapp.evaluation.comparison.contestants import contestants_of
from webapp.evaluation.comparison.rewards import evaluations, offer_of, rescore
from webapp.evaluation.comparison.verdicts import conclusions
from webapp.evaluation.rescoring.models import Rescoring
from webapp.evaluation.rescoring.services import rescoring_cancel
from webapp.people.teams.access import object_for, project_for
from webapp.people.teams.models import Role

router = Router(tags=["comparisons"])


@router.get("/projects/{slug:slug}/compare", response=comparing_answers.Comparison)
def compare(
    request: HttpRequest, slug: str, c: Annotated[list[str] | None, Query(max_length=100)] = None, spec: str = ""
) -> dict[str, Any]:
    """Evaluations, and runs that train by the tasks that they held out, side by side.

    `c` names runs, and may be repeated; `spec` is what rewards are weighed by.

    `answer` says in one sentence which is better, as the page does, and what that leaves out. `figures` are those of
    the page, each `{value, low, high, tasks}`; rewards only where one spec gave or weighed all.
    `lacking` names the components of `spec` that an evaluation has not recorded: what of them was computed, what lacks
    and why; `to_score` says what `POST …/compare/rescore` would do about it.
    """
    project = project_for(caller(request), slug)
    contestants, notes = contestants_of(project, c or [])
    read = evaluations(project, contestants, spec)
    headline, verdicts = conclusions(contestants, read)
    answer: dict[str, Any] = {"answer": headline, "notes": notes, "specs_differ": False, "items": []}
    answer |= {"verdicts": verdicts, "lacking": [], "to_score": None}
    if read is None:
        return answer
    playing, numbers, rewards = read
    answer["specs_differ"] = rewards.differ
    for item, sheet, intervals in zip(playing, numbers.sheets, numbers.intervals, strict=True):
        figures = {name: found for name, found in intervals.items() if name != "reward" or rewards.comparable}
        left_out = {"tasks": len(sheet.tasks), "missing_tasks": sheet.missing, "excluded": int(sheet.excluded.sum())}
        answer["items"].append(Extended(item.run, figures=figures, **left_out))
    lacking = zip(playing, numbers.lacks, strict=True)
    answer["lacking"] = [Extended(lacks, id=item.run.pk) for item, lacks in lacking if lacks.by_name]
    answer["to_score"] = offer_of(project, read)
    return answer


class RescoreIn(Body):
    """Evaluations whose recorded rollouts are to be scored by a spec."""

    runs: list[str] = Field(max_length=100, description="ids of one to eight evaluations of the project")
    spec: str = Field(max_length=200, description="a run's id or reward:name@version")
    confirmed: bool = Field(default=False, description="needed where judges or models are asked, which may cost money")


def _rescoring_for(request: HttpRequest, pk: UUID, need: Role = Role.VIEWER) -> Rescoring:
    within = Rescoring.objects.select_related("project__team", "created_by")
    return object_for(caller(request), Rescoring, pk, need=need, within=within)


@router.post("/projects/{slug:slug}/compare/rescore", response={201: comparing_answers.Rescoring})
@once
def compare_rescore(request: HttpRequest, slug: str, body: RescoreIn) -> Status[Rescoring]:
    """Have what the evaluations have not recorded of a spec computed from their transcripts. A scoring that is open
    already is returned. 409 where nothing is left to score, 422 with the sentence where judges must be confirmed."""
    project = project_for(caller(request), slug, need=Role.EDITOR)
    made = rescore(project=project, user=caller(request), runs=body.runs, spec=body.spec, confirmed=body.confirmed)
    return Status(201, made)


@router.get("/rescorings/{uuid:rescoring_id}", response=comparing_answers.Rescoring)
def rescoring_get(request: HttpRequest, rescoring_id: UUID) -> Rescoring:
    """How far the scoring of recorded rollouts is."""
    return _rescoring_for(request, rescoring_id)


@router.post("/rescorings/{uuid:rescoring_id}/cancel", response=comparing_answers.Rescoring)
def rescoring_end(request: HttpRequest, rescoring_id: UUID) -> Rescoring:
    """Cancel it; what was scored until then is kept. One that has ended is returned unchanged."""
    rescoring = _rescoring_for(request, rescoring_id, Role.EDITOR)
    rescoring_cancel(rescoring=rescoring, user=caller(request))
    return rescoring
