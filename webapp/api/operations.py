"""Operations on datasets and files of them over the API."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.core.exceptions import ValidationError
from django.http import HttpRequest
from django.utils.translation import gettext as _
from ninja import Query, Router, Status
from pydantic import Field

from training.config import name_in
from training.plain import number_in
from webapp.api.answers import data as data_answers
from webapp.api.base import caller
from webapp.api.idempotency import once
from webapp.api.listing import LongDated, page_of
from webapp.api.schemas import Body, with_lineage
from webapp.common.answers import Extended, Page
from webapp.datasets.choices import Choices
from webapp.datasets.models import Dataset, DatasetExport
from webapp.datasets.operations import ExportOptions, export_order, operation_order
from webapp.datasets.selectors import datasets_of
from webapp.datasets.services import dataset_fetch, dataset_keep_good_rows, source_clean
from webapp.datasets.versions import dataset_read_again
from webapp.people.teams.access import object_for, project_for
from webapp.people.teams.models import Role

router = Router()


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
