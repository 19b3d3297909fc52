"""Comparisons over the API."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any
from uuid import UUID

from django.http import HttpRequest
from ninja import Query, Router, Status
from pydantic import Field

from webapp.api.answers import comparing as comparing_answers
from webapp.api.base import caller
from webapp.api.idempotency import once
from webapp.api.schemas import Body
from webapp.common.text import clean_json, in_words
from webapp.common.words import failure
from webapp.evaluation.comparison.contestants import Contestant, contestants_of
from webapp.evaluation.comparison.figures import Numbers, learned_notes, verdicts
from webapp.evaluation.comparison.rewards import Offer, evaluations, offer_of, rescore
from webapp.evaluation.rescoring.models import Rescoring
from webapp.evaluation.rescoring.services import rescoring_cancel
from webapp.people.teams.access import object_for, project_for
from webapp.people.teams.models import Role

router = Router(tags=["comparisons"])


@router.get("/projects/{slug:slug}/compare", response=comparing_answers.Comparison)
def compare(
    request: HttpRequest, slug: str, c: Annotated[list[str] | None, Query(max_length=100)] = None, spec: str = ""
) -> dict[str, Any]:
    """Evaluations side by side: `c` names runs, and may be repeated; `spec` is what rewards are weighed by.

    `figures` are those of the page, each `{value, low, high, tasks}`; rewards only where one spec gave or weighed all.
    `lacking` names the components of `spec` that an evaluation has not recorded: what of them was computed, what lacks
    and why; `to_score` says what `POST …/compare/rescore` would do about it.
    """
    project = project_for(caller(request), slug)
    contestants, notes = contestants_of(project, c or [])
    answer: dict[str, Any] = {"notes": notes, "specs_differ": False, "items": [], "verdicts": []}
    answer |= {"lacking": [], "to_score": None}
    read = evaluations(project, contestants, spec)
    if read is None:
        return answer
    playing, numbers, rewards = read
    answer["specs_differ"] = rewards.differ
    answer["notes"] += learned_notes(playing)
    for item, sheet, intervals in zip(playing, numbers.sheets, numbers.intervals, strict=True):
        figures = {name: found._asdict() for name, found in intervals.items()}
        if not rewards.comparable:
            figures.pop("reward", None)
        left_out = {"tasks": len(sheet.tasks), "missing_tasks": sheet.missing, "excluded": int(sheet.excluded.sum())}
        answer["items"].append(
            {"id": str(item.run.pk), "name": item.run.name, "figures": clean_json(figures), **left_out}
        )
    answer["verdicts"] = [
        {
            "better": str(found.better.run.pk),
            "worse": str(found.worse.run.pk),
            "told_apart": found.told,
            "p_value": found.p_value,
            "text": found.text,
        }
        for found in verdicts(playing, numbers)
    ]
    answer["lacking"] = _lacks_out(playing, numbers)
    answer["to_score"] = _offer_out(offer_of(project, read))
    return answer


def _offer_out(offer: Offer | None) -> dict[str, Any] | None:
    if offer is None:
        return None
    newest = rescoring_out(offer.newest) if offer.newest else None
    return {"rollouts": offer.rollouts, "asks": offer.asks, "refusal": offer.refusal, "newest": newest}


def _lacks_out(playing: Sequence[Contestant], numbers: Numbers) -> list[dict[str, Any]]:
    return [
        {
            "id": str(item.run.pk),
            "rollouts": lacks.rollouts,
            "components": {
                name: {
                    "computed": lack.computed,
                    "unscored": lack.unscored,
                    "failed": {in_words(reason): count for reason, count in lack.failed.items()},
                }
                for name, lack in lacks.by_name.items()
            },
        }
        for item, lacks in zip(playing, numbers.lacks, strict=True)
        if lacks.by_name
    ]


class RescoreIn(Body):
    """Evaluations whose recorded rollouts are to be scored by a spec."""

    runs: list[str] = Field(max_length=100, description="ids of one to eight evaluations of the project")
    spec: str = Field(max_length=200, description="a run's id or reward:name@version")
    confirmed: bool = Field(default=False, description="needed where judges or models are asked, which may cost money")


def rescoring_out(rescoring: Rescoring) -> dict[str, Any]:
    """The scoring of recorded rollouts as the API shows it."""
    found, ended = failure(rescoring.error), rescoring.ended_at
    return {
        "id": str(rescoring.pk),
        "spec": rescoring.name,
        "runs": rescoring.runs,
        "state": rescoring.state,
        "done": rescoring.progress.get("done", rescoring.rollouts),
        "total": rescoring.progress.get("total", rescoring.rollouts),
        "error": " ".join(text for text in (found.title, found.detail) if text) if found else None,
        "created_by": rescoring.created_by.username if rescoring.created_by else None,
        "created_at": rescoring.created_at.isoformat(),
        "ended_at": ended.isoformat() if ended else None,
    }


def _rescoring_for(request: HttpRequest, pk: UUID, need: Role = Role.VIEWER) -> Rescoring:
    within = Rescoring.objects.select_related("project__team", "created_by")
    return object_for(caller(request), Rescoring, pk, need=need, within=within)


@router.post("/projects/{slug:slug}/compare/rescore", response={201: comparing_answers.Rescoring})
@once
def compare_rescore(request: HttpRequest, slug: str, body: RescoreIn) -> Status[dict[str, Any]]:
    """Have what the evaluations have not recorded of a spec computed from their transcripts. A scoring that is open
    already is returned. 409 where nothing is left to score, 422 with the sentence where judges must be confirmed."""
    project = project_for(caller(request), slug, need=Role.EDITOR)
    made = rescore(project=project, user=caller(request), runs=body.runs, spec=body.spec, confirmed=body.confirmed)
    return Status(201, rescoring_out(made))


@router.get("/rescorings/{uuid:rescoring_id}", response=comparing_answers.Rescoring)
def rescoring_get(request: HttpRequest, rescoring_id: UUID) -> dict[str, Any]:
    """How far the scoring of recorded rollouts is."""
    return rescoring_out(_rescoring_for(request, rescoring_id))


@router.post("/rescorings/{uuid:rescoring_id}/cancel", response=comparing_answers.Rescoring)
def rescoring_end(request: HttpRequest, rescoring_id: UUID) -> dict[str, Any]:
    """Cancel it; what was scored until then is kept. One that has ended is returned unchanged."""
    rescoring = _rescoring_for(request, rescoring_id, Role.EDITOR)
    rescoring_cancel(rescoring=rescoring, user=caller(request))
    return rescoring_out(rescoring)
