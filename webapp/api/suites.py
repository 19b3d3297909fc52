"""Evaluation suites over the API."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.core.exceptions import ValidationError
from django.http import HttpRequest
from django.utils.translation import gettext as _
from ninja import Query, Router, Status
from ninja.errors import HttpError
from pydantic import BaseModel, ConfigDict, Field

from webapp.api.answers import comparing as comparing_answers
from webapp.api.base import caller
from webapp.api.idempotency import once
from webapp.api.listing import LongNamed, matching, part_of
from webapp.common.answers import Deleted, Extended, Page
from webapp.evaluation.suites import services
from webapp.evaluation.suites.models import Suite, SuiteEvaluation, SuiteVersion
from webapp.people.teams.access import object_for, project_for
from webapp.people.teams.models import Role

router = Router(tags=["suites"])


class PartIn(BaseModel):
    """One part: a config of kind `evaluate`; without a contestant."""

    model_config = ConfigDict(extra="forbid")

    title: str = Field(min_length=1, max_length=60)
    weight: float = Field(default=1.0, ge=0, le=1000)
    config: dict[str, Any]


class SuiteIn(BaseModel):
    """A suite; a name that exists gets its next version, or none where the parts are the same."""

    model_config = ConfigDict(extra="forbid")

    name: str = Field(min_length=1, max_length=80)
    note: str = Field(default="", max_length=500)
    parts: list[PartIn] = Field(min_length=1, max_length=12)


class ContestantIn(BaseModel):
    """The contestant: `model:<name>`, `run:<name>`, `endpoint:<name>`, `starter` or `policy:<name>`."""

    model_config = ConfigDict(extra="forbid")

    contestant: str = Field(min_length=1, max_length=200)


def _suite_for(request: HttpRequest, suite_id: UUID, need: Role = Role.VIEWER) -> Suite:
    return object_for(caller(request), Suite, suite_id, need=need, within=Suite.objects.select_related("project"))


def _newest_version(suite: Suite) -> SuiteVersion:
    found = suite.versions.first()
    if found is None:
        raise HttpError(404, "")
    return found


@router.get("/projects/{slug:slug}/suites", response=Page[comparing_answers.Suite])
def suites_list(request: HttpRequest, slug: str, asked: Query[LongNamed]) -> dict[str, Any]:
    """The project's suites, each with its newest version."""
    project = project_for(caller(request), slug)
    rows = Suite.objects.filter(project=project).prefetch_related("versions")
    part = part_of(request, matching(rows, asked), asked)
    newest = ((suite, next(iter(suite.versions.all()), None)) for suite in part.rows)
    return part.body(Extended(suite, version=version.number) for suite, version in newest if version)


@router.post("/projects/{slug:slug}/suites", response={200: comparing_answers.Suite, 201: comparing_answers.Suite})
def suite_new(request: HttpRequest, slug: str, body: SuiteIn) -> Status[Extended]:
    """Save a suite: 201 where that made a version, 200 where its parts are those of the newest one."""
    project = project_for(caller(request), slug, need=Role.EDITOR)
    parts = [part.model_dump() for part in body.parts]
    suite = Suite.objects.filter(project=project, name=body.name.strip()).first()
    if suite is None:
        version = services.suite_create(
            project=project, user=caller(request), name=body.name, note=body.note, parts=parts
        )
        return Status(201, Extended(version.suite, version=version.number))
    version, new = services.suite_change(suite=suite, user=caller(request), parts=parts, note=body.note)
    return Status(201 if new else 200, Extended(suite, version=version.number))


@router.get("/suites/{uuid:suite_id}", response=comparing_answers.SuiteWhole)
def suite_get(request: HttpRequest, suite_id: UUID) -> Extended:
    """A suite's newest version with its leaderboard, the best first, and the evaluations that have no score (yet)."""
    suite = _suite_for(request, suite_id)
    version = _newest_version(suite)
    board = services.board_of(version)
    lines, waiting = (
        [Extended(line.evaluation, **vars(line)) for line in part] for part in (board.lines, board.waiting)
    )
    more = {"parts": version.parts, "lines": lines, "waiting": waiting, "baselines": board.baselines}
    return Extended(suite, version=version.number, **more)


@router.delete("/suites/{uuid:suite_id}", response=Deleted)
def suite_remove(request: HttpRequest, suite_id: UUID) -> dict[str, str]:
    """Delete a suite; the runs that played it stay."""
    suite = _suite_for(request, suite_id, Role.EDITOR)
    services.suite_delete(suite=suite)
    return {"deleted": suite.name}


@router.post("/suites/{uuid:suite_id}/evaluations", response={201: comparing_answers.SuiteEvaluation})
@once
def suite_play(request: HttpRequest, suite_id: UUID, body: ContestantIn) -> Status[SuiteEvaluation]:
    """Have a contestant play the newest version: one evaluation is queued for each part, or none."""
    suite = _suite_for(request, suite_id, Role.EDITOR)
    if not services.may_play(body.contestant):
        raise ValidationError({"contestant": _("Choose who plays.")})
    made = services.suite_evaluate(version=_newest_version(suite), contestant=body.contestant, user=caller(request))
    return Status(201, made)
