"""Datasets, reward specs and environments over the API."""

from __future__ import annotations

import json
from typing import Annotated, Any, cast
from uuid import UUID

from django.core.exceptions import ValidationError
from django.core.files.uploadedfile import UploadedFile as DjangoFile
from django.http import HttpRequest
from django.utils.datastructures import MultiValueDict
from django.utils.translation import gettext as _
from ninja import File, Form, Query, Router, Status
from ninja.errors import HttpError
from ninja.files import UploadedFile

from webapp.api.answers import data as data_answers
from webapp.api.base import caller, open_to
from webapp.api.idempotency import once
from webapp.api.listing import Named, page_of
from webapp.api.schemas import EnvironmentIn, RewardSpecIn, ScaleIn, with_lineage
from webapp.common.answers import Extended, Page
from webapp.common.pages import probe_allowed
from webapp.datasets.choices import Choices, companions_sent
from webapp.datasets.models import Dataset
from webapp.datasets.selectors import datasets_of
from webapp.datasets.services import dataset_create, too_large_sentence
from webapp.environments.models import Environment, Kind
from webapp.environments.reservations import reservations_of
from webapp.environments.selectors import environments_of
from webapp.environments.services import (
    environment_launch,
    environment_register,
    environment_restart,
    environment_scale,
)
from webapp.people.teams.access import object_for, project_for
from webapp.people.teams.models import Role, TokenScope
from webapp.rewards.models import RewardSpec
from webapp.rewards.selectors import specs_of
from webapp.rewards.services import reward_spec_save

MAX_CHOICES_CHARS = 20_000
router = Router()


@router.get("/projects/{slug:slug}/datasets", tags=["datasets"], response=Page[data_answers.Dataset])
def datasets_list(request: HttpRequest, slug: str, asked: Query[Named]) -> dict[str, Any]:
    """All versions of all datasets of a project, newest first."""
    return page_of(request, datasets_of(project_for(caller(request), slug)), asked)


@router.post(
    "/projects/{slug:slug}/datasets",
    tags=["datasets"],
    response={201: data_answers.Dataset},
    auth=open_to(TokenScope.INGEST),
)
@once
def dataset_upload(
    request: HttpRequest,
    slug: str,
    name: Annotated[str, Form(max_length=80)],
    file: Annotated[UploadedFile | None, File()] = None,
    reading: Annotated[str, Form(max_length=MAX_CHOICES_CHARS)] = "",
    checking: Annotated[str, Form(max_length=MAX_CHOICES_CHARS)] = "",
    look: Annotated[bool, Form()] = False,
) -> Status[Dataset]:
    """Upload a file as the next version under a name (multipart fields `name` and `file`).

    `reading` and `checking` are options as JSON (docs/data.md); `answers`, `documents` and `ids` are files that
    belong to it. With `look`, nothing is checked before a person has chosen on its page how to read it.
    """
    project = project_for(caller(request), slug, need=Role.EDITOR)
    if getattr(request, "upload_too_large", False):
        raise HttpError(413, too_large_sentence())
    if file is None:
        raise ValidationError({"file": _("Send the file as the multipart field `file`.")})
    choices = Choices(
        _parse_options("reading", reading), _parse_options("checking", checking), _companions(request), look
    )
    made = dataset_create(
        project=project, user=caller(request), name=name, file=file, file_name=file.name or "", choices=choices
    )
    return Status(201, made)


def _parse_options(name: str, text: str) -> dict[str, Any]:
    try:
        found = json.loads(text) if text else {}
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise ValidationError({name: _("Send the options as one JSON object.")})
    return found


def _companions(request: HttpRequest) -> dict[str, Any]:
    return dict(companions_sent(cast("MultiValueDict[str, DjangoFile]", request.FILES)))


@router.get("/datasets/{uuid:dataset_id}", tags=["datasets"], response=data_answers.DatasetWhole)
def dataset_get(request: HttpRequest, dataset_id: UUID) -> Extended:
    """One version with the report of its check."""
    within = Dataset.objects.select_related("project")
    return with_lineage(object_for(caller(request), Dataset, dataset_id, within=within))


@router.get("/projects/{slug:slug}/rewards", tags=["rewards"], response=Page[data_answers.RewardSpec])
def rewards_list(request: HttpRequest, slug: str, asked: Query[Named]) -> dict[str, Any]:
    """All versions of all reward specs of a project, newest first."""
    return page_of(request, specs_of(project_for(caller(request), slug)), asked)


@router.post("/projects/{slug:slug}/rewards", tags=["rewards"], response={201: data_answers.RewardSpec})
def reward_save(request: HttpRequest, slug: str, body: RewardSpecIn) -> Status[RewardSpec]:
    """Save a reward spec; unchanged content returns the newest version."""
    project = project_for(caller(request), slug, need=Role.EDITOR)
    spec = reward_spec_save(project=project, user=caller(request), name=body.name, components=body.components)
    return Status(201, spec)


@router.get("/rewards/{uuid:spec_id}", tags=["rewards"], response=data_answers.RewardSpec)
def reward_get(request: HttpRequest, spec_id: UUID) -> RewardSpec:
    """One version."""
    return object_for(caller(request), RewardSpec, spec_id)


@router.get("/projects/{slug:slug}/environments", tags=["environments"], response=Page[data_answers.Environment])
def environments_list(request: HttpRequest, slug: str, asked: Query[Named]) -> dict[str, Any]:
    """The servers of a project with their last checks."""
    return page_of(request, environments_of(project_for(caller(request), slug)), asked)


@router.post("/projects/{slug:slug}/environments", tags=["environments"], response={201: data_answers.Environment})
def environment_new(request: HttpRequest, slug: str, body: EnvironmentIn) -> Status[Environment]:
    """Register a server, which is checked first, or have servers started."""
    project, user = project_for(caller(request), slug, need=Role.EDITOR), caller(request)
    if sum(bool(way) for way in (body.url, body.program, body.image)) != 1:
        raise ValidationError({"url": _("Give one of url, program and image.")})
    if not probe_allowed(user):
        raise HttpError(429, "")
    both = {"name", "protocol", "options"}
    if body.url:
        values = body.model_dump(include=both | {"url", "token", "server_name", "accept"})
        return Status(201, environment_register(project=project, user=user, **values))
    own = {"program", "image", "arguments", "slots", "cpus", "memory_mb", "pids", "wanted"}
    values = body.model_dump(include=both | own)
    kind = Kind.PROCESS if body.program else Kind.DOCKER
    return Status(201, environment_launch(project=project, user=user, kind=kind, **values))


@router.get("/environments/{uuid:environment_id}", tags=["environments"], response=data_answers.Environment)
def environment_get(request: HttpRequest, environment_id: UUID) -> Extended:
    """One environment, its last check, its replicas, and the sessions that runs have reserved."""
    environment = object_for(caller(request), Environment, environment_id)
    return Extended(environment, reserved=reservations_of(environment))


@router.post("/environments/{uuid:environment_id}/scale", tags=["environments"], response=data_answers.Environment)
def environment_scaled(request: HttpRequest, environment_id: UUID, body: ScaleIn) -> Environment:
    """Set how many replicas are wanted; 0 stops all. They start and stop within seconds."""
    environment = object_for(caller(request), Environment, environment_id, need=Role.EDITOR)
    return environment_scale(environment=environment, wanted=body.wanted)


@router.post("/environments/{uuid:environment_id}/restart", tags=["environments"], response=data_answers.Environment)
def environment_restarted(request: HttpRequest, environment_id: UUID) -> Environment:
    """Restart every replica."""
    environment = object_for(caller(request), Environment, environment_id, need=Role.EDITOR)
    environment_restart(environment=environment)
    return environment
