"""Comparisons over the API."""

from __future__ import annotations

from typing import Annotated, Any

from django.http import HttpRequest
from ninja import Query, Router

from webapp.api.answers import comparing as comparing_answers
from webapp.api.base import caller
from webapp.comparison.contestants import contestants_of
from webapp.comparison.rewards import evaluations
from webapp.comparison.verdicts import verdicts
from webapp.teams.access import project_for
from webapp.text import clean_json

router = Router(tags=["comparisons"])


@router.get("/projects/{slug:slug}/compare", response=comparing_answers.Comparison)
def compare(
    request: HttpRequest, slug: str, c: Annotated[list[str] | None, Query(max_length=100)] = None, spec: str = ""
) -> dict[str, Any]:
    """Evaluations side by side: `c` names runs, and may be repeated; `spec` is what rewards are weighed by.

    `figures` are those of the page, each `{value, low, high, tasks}`; rewards only where one spec gave or weighed all.
    """
    project = project_for(caller(request), slug)
    contestants, notes = contestants_of(project, c or [])
    answer: dict[str, Any] = {"notes": notes, "specs_differ": False, "items": [], "verdicts": []}
    read = evaluations(project, contestants, spec)
    if read is None:
        return answer
    playing, numbers, rewards = read
    answer["specs_differ"] = rewards.differ
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
    return answer
