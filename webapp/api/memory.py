"""How much memory a job needs, over the API."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.http import HttpRequest
from ninja import Router, Status
from pydantic import Field

from webapp.api.answers import memory as memory_answers
from webapp.api.base import caller
from webapp.api.runs import config_sent
from webapp.api.schemas import ConfigIn
from webapp.common.text import in_words, translated
from webapp.launch.memory import OPEN, device_default, estimate_begin
from webapp.launch.memory_view import MemoryView, row_view, view_of
from webapp.people.teams.access import object_for, project_for
from webapp.runs.models import MemoryEstimate

router = Router(tags=["runs"])


class MemoryIn(ConfigIn):
    """A config as an object or as YAML text, and the device: as docs/memory.md names it; without it, the
    largest GPU of the workers, else the CPU."""

    device: str = Field(default="", max_length=120)


@router.post("/projects/{slug:slug}/memory", response={200: memory_answers.Memory, 202: memory_answers.Memory})
def memory_ask(request: HttpRequest, slug: str, body: MemoryIn) -> Status[dict[str, Any]]:
    """How much memory a job needs on a device, and whether it fits. 202 while a worker works it out: ask
    `/memory-estimates/{id}`. Your next request replaces one that is still open."""
    project = project_for(caller(request), slug)
    config = config_sent(body)
    device = body.device or device_default(config)
    asked = estimate_begin(project=project, user=caller(request), config=config, device=device)
    view = view_of(asked)
    return Status(202 if view.state == OPEN else 200, _estimate_out(view))


@router.get("/memory-estimates/{uuid:estimate_id}", response=memory_answers.Memory)
def memory_get(request: HttpRequest, estimate_id: UUID) -> dict[str, Any]:
    """An estimate of memory: `state` is `open` while it is worked out, then `done`, `failed`, or `dropped`."""
    return _estimate_out(row_view(object_for(caller(request), MemoryEstimate, estimate_id)))


def _estimate_out(view: MemoryView) -> dict[str, Any]:
    row, answer = view.row, view.row.answer if view.table is not None and view.row is not None else None
    return {
        "id": row.pk if row is not None else None,
        "state": view.state,
        "message": view.sentence,
        "hint": view.hint,
        "table": _table_out(answer) if answer is not None else None,
    }


def _table_out(answer: dict[str, Any]) -> dict[str, Any]:
    plain = {name: answer[name] for name in ("device", "learning", "sampling", "whole", "fits", "change", "changed")}
    terms = [
        {
            "term": term["term"],
            "title": translated(term["title"]),
            "part": term["part"],
            "bytes": term["bytes"],
            "why": in_words(term["told"]),
        }
        for term in answer["terms"]
    ]
    said = answer["told"]
    return {**plain, "terms": terms, "verdict": in_words(said["verdict"]), "hint": in_words(said["hint"])}
