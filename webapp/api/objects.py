"""Datasets, reward specs with their test cases, and environments over the API."""

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
from pydantic import Field

from training.config import RewardComponent, name_in
from training.plain import number_in
from webapp.api.answers import data as data_answers
from webapp.api.base import caller, open_to
from webapp.api.idempotency import once
from webapp.api.listing import LongDated, LongNamed, Named, page_of
from webapp.api.schemas import Body, EnvironmentIn, RewardSpecIn, ScaleIn, with_lineage
from webapp.common.answers import Deleted, Extended, Page
from webapp.common.pages import probe_allowed
from webapp.datasets.choices import Choices, companions_sent
from webapp.datasets.models import Dataset, DatasetExport
from webapp.datasets.operations import ExportOptions, export_order, operation_order
from webapp.datasets.selectors import datasets_of
from webapp.datasets.services import (
    dataset_create,
    dataset_fetch,
    dataset_keep_good_rows,
    source_clean,
    too_large_sentence,
)
from webapp.datasets.versions import dataset_read_again
from webapp.environments.models import DatasetOrder, Environment, Kind
from webapp.environments.orders import order_create, orders_of
from webapp.environments.selectors import environments_of, reservations_of
from webapp.environments.services import (
    environment_change,
    environment_check,
    environment_delete,
    environment_launch,
    environment_register,
    environment_restart,
    environment_scale,
)
from webapp.people.teams.access import object_for, project_for
from webapp.people.teams.models import Role, TokenScope
from webapp.rewards.cases import cases_of, reward_case_delete
from webapp.rewards.models import RewardCase, RewardSpec
from webapp.rewards.selectors import specs_of
from webapp.rewards.services import Tried, reward_spec_delete, reward_spec_save, reward_try

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


# What people do with reward specs and their test cases over the API, besides saving and reading specs.

MAX_TALK_CHARS = 200_000


class TryIn(Body):
    """A conversation as JSON: a list of messages, or an object with `messages`."""

    conversation: str = Field(min_length=1, max_length=MAX_TALK_CHARS)


@router.delete("/rewards/{uuid:spec_id}", tags=["rewards"], response=Deleted)
def reward_remove(request: HttpRequest, spec_id: UUID) -> dict[str, str]:
    """Delete one version of a reward spec. 409 while a run that has not ended uses it."""
    within = RewardSpec.objects.select_related("project")
    spec = object_for(caller(request), RewardSpec, spec_id, need=Role.EDITOR, within=within)
    reward_spec_delete(spec=spec)
    return {"deleted": spec.reference}


@router.post("/rewards/{uuid:spec_id}/try", tags=["rewards"], response=data_answers.Tried)
def reward_tried(request: HttpRequest, spec_id: UUID, body: TryIn) -> Tried:
    """Score a conversation with a spec; nothing is stored. Parts that ask a judge are left out."""
    spec = object_for(caller(request), RewardSpec, spec_id)
    components = [RewardComponent.model_validate(part) for part in spec.components]
    return reward_try(user=caller(request), components=components, text=body.conversation)


@router.get("/projects/{slug:slug}/reward-cases", tags=["rewards"], response=Page[data_answers.RewardCase])
def cases_list(request: HttpRequest, slug: str, asked: Query[Named]) -> dict[str, Any]:
    """The reward test cases of a project by name, with the ranges that they expect."""
    return page_of(request, cases_of(project_for(caller(request), slug)), asked)


@router.delete("/reward-cases/{uuid:case_id}", tags=["rewards"], response=Deleted)
def case_remove(request: HttpRequest, case_id: UUID) -> dict[str, str]:
    """Delete a reward test case."""
    within = RewardCase.objects.select_related("project")
    case = object_for(caller(request), RewardCase, case_id, need=Role.EDITOR, within=within)
    reward_case_delete(case=case)
    return {"deleted": case.name}


# What people do with an environment over the API: changing, checking and deleting it, asking it for datasets.

LIMITS = ("arguments", "slots", "cpus", "memory_mb", "pids")


class EnvironmentPatch(Body):
    """Options and limits of servers that are started here; what is left out stays. `arguments` are replaced whole."""

    arguments: dict[str, Any] | None = None
    slots: int | None = Field(default=None, ge=1, le=4096)
    cpus: float | None = Field(default=None, ge=0.1, le=64)
    memory_mb: int | None = Field(default=None, ge=64, le=262_144)
    pids: int | None = Field(default=None, ge=8, le=4096)


class OrderIn(Body):
    """A dataset to generate: a command of the environment's program, the dataset's name, the command's options."""

    command: str = Field(max_length=40)
    name: str = Field(min_length=1, max_length=80)
    arguments: dict[str, Any] = Field(default_factory=dict)


def _environment_for(request: HttpRequest, environment_id: UUID, need: Role = Role.EDITOR) -> Environment:
    within = Environment.objects.select_related("project")
    return object_for(caller(request), Environment, environment_id, need=need, within=within)


@router.patch("/environments/{uuid:environment_id}", tags=["environments"], response=data_answers.Environment)
def environment_patch(request: HttpRequest, environment_id: UUID, body: EnvironmentPatch) -> Environment:
    """Change options and limits; every replica starts again with them. 409 while an open run plays on it."""
    environment = _environment_for(request, environment_id)
    given = body.model_dump(exclude_none=True)
    environment_change(
        environment=environment, **{name: given.get(name, getattr(environment, name)) for name in LIMITS}
    )
    return environment


@router.delete("/environments/{uuid:environment_id}", tags=["environments"], response=Deleted)
def environment_remove(request: HttpRequest, environment_id: UUID) -> dict[str, str]:
    """Delete an environment; its servers end. 409 while an open run plays on it."""
    environment = _environment_for(request, environment_id)
    environment_delete(environment=environment)
    return {"deleted": environment.reference}


@router.post("/environments/{uuid:environment_id}/check", tags=["environments"], response=data_answers.Environment)
def environment_checked(request: HttpRequest, environment_id: UUID) -> Environment:
    """Check its servers now, and have it validate itself."""
    environment = _environment_for(request, environment_id)
    if not probe_allowed(caller(request)):
        raise HttpError(429, _("Too many checks in one minute; wait a moment."))
    environment_check(environment=environment)
    return _environment_for(request, environment_id)


@router.get(
    "/environments/{uuid:environment_id}/dataset-orders",
    tags=["environments"],
    response=Page[data_answers.DatasetOrder],
)
def orders_list(request: HttpRequest, environment_id: UUID, asked: Query[LongNamed]) -> dict[str, Any]:
    """The datasets that were asked of it, newest first."""
    environment = _environment_for(request, environment_id, Role.VIEWER)
    return page_of(request, orders_of(environment), asked)


@router.post(
    "/environments/{uuid:environment_id}/dataset-orders",
    tags=["environments"],
    response={201: data_answers.DatasetOrder},
)
@once
def order_new(request: HttpRequest, environment_id: UUID, body: OrderIn) -> Status[DatasetOrder]:
    """Have a built-in environment write a dataset in the background."""
    made = order_create(
        environment=_environment_for(request, environment_id), user=caller(request), **body.model_dump()
    )
    return Status(201, made)


# Operations on datasets and files of them over the API.


class OperationIn(Body):
    """What to make: options as docs/data.md has them, a name for each dataset, further parents of a mix."""

    operation: str = Field(max_length=20, description="split, subset, pick, filter, mix or cut")
    options: dict[str, Any] = Field(default_factory=dict)
    names: list[str] = Field(min_length=1, max_length=2)
    others: list[str] = Field(default_factory=list, max_length=19, description="references such as dataset:tasks@1")


class RereadIn(Body):
    """How a file that is here is read and checked: options as docs/data.md has them."""

    reading: dict[str, Any] = Field(default_factory=dict)
    checking: dict[str, Any] = Field(default_factory=dict)


class FetchIn(Body):
    """A dataset of Hugging Face: its id, and if wanted a revision and a split or part of a file's name."""

    name: str = Field(min_length=1, max_length=80)
    id: str = Field(min_length=1, max_length=200)
    revision: str = Field(default="", max_length=100)
    split: str = Field(default="", max_length=100)
    reading: dict[str, Any] = Field(default_factory=dict)
    checking: dict[str, Any] = Field(default_factory=dict)
    look: bool = False


def _dataset_for(request: HttpRequest, dataset_id: UUID, need: Role = Role.EDITOR) -> Dataset:
    within = Dataset.objects.select_related("project")
    return object_for(caller(request), Dataset, dataset_id, need=need, within=within)


@router.post("/projects/{slug:slug}/datasets/fetch", tags=["datasets"], response={201: data_answers.Dataset})
@once
def dataset_fetched(request: HttpRequest, slug: str, body: FetchIn) -> Status[Dataset]:
    """Have a dataset of Hugging Face fetched and checked in the background, as the next version under a name."""
    project = project_for(caller(request), slug, need=Role.EDITOR)
    hub = source_clean(body.id, body.revision, body.split)
    choices = Choices(reading=body.reading, checking=body.checking, look=body.look)
    made = dataset_fetch(project=project, user=caller(request), name=body.name, hub=hub, choices=choices)
    return Status(201, made)


@router.post("/datasets/{uuid:dataset_id}/keep", tags=["datasets"], response=data_answers.DatasetWhole)
def dataset_kept(request: HttpRequest, dataset_id: UUID) -> Extended:
    """Keep a dataset without its bad rows. 422 where its check does not ask that."""
    return with_lineage(dataset_keep_good_rows(dataset=_dataset_for(request, dataset_id)))


@router.post("/datasets/{uuid:dataset_id}/read", tags=["datasets"], response=data_answers.DatasetWhole)
@once
def dataset_read(request: HttpRequest, dataset_id: UUID, body: RereadIn) -> Extended:
    """Read its file again under other options. Answers the version that is checked now: a ready one gets its next."""
    choices = Choices(reading=body.reading, checking=body.checking)
    made = dataset_read_again(dataset=_dataset_for(request, dataset_id), user=caller(request), choices=choices)
    return with_lineage(made)


@router.post("/datasets/{uuid:dataset_id}/make", tags=["datasets"], response={201: list[data_answers.DatasetWhole]})
@once
def dataset_make(request: HttpRequest, dataset_id: UUID, body: OperationIn) -> Status[list[Extended]]:
    """Make one dataset of this one and maybe others, or two by a split; they are made and checked in the background."""
    dataset = _dataset_for(request, dataset_id)
    others = [_dataset_named(dataset, reference) for reference in body.others]
    made = operation_order(
        parents=[dataset, *others],
        user=caller(request),
        operation=body.operation,
        options=body.options,
        names=body.names,
    )
    return Status(201, [with_lineage(item) for item in made])


def _dataset_named(dataset: Dataset, reference: str) -> Dataset:
    name, _at, version = name_in("dataset", reference).rpartition("@")
    found = datasets_of(dataset.project).filter(name=name, version=number_in(version, 8) or 0).first()
    if found is None:
        raise ValidationError({"others": _("There is no dataset %(name)s.") % {"name": reference[:100]}})
    return found


@router.post("/datasets/{uuid:dataset_id}/exports", tags=["datasets"], response={201: data_answers.DatasetFile})
@once
def export_new(request: HttpRequest, dataset_id: UUID, body: ExportOptions) -> Status[DatasetExport]:
    """Have a file written in another format; with `split`, two in a zip."""
    dataset = _dataset_for(request, dataset_id, Role.VIEWER)
    return Status(201, export_order(dataset=dataset, user=caller(request), options=body))


@router.get("/datasets/{uuid:dataset_id}/exports", tags=["datasets"], response=Page[data_answers.DatasetFile])
def exports_list(request: HttpRequest, dataset_id: UUID, asked: Query[LongDated]) -> dict[str, Any]:
    """The files of a dataset, newest first."""
    dataset = _dataset_for(request, dataset_id, Role.VIEWER)
    return page_of(request, dataset.exports.select_related("dataset__project"), asked)
