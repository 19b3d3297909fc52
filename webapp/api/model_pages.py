"""Registered models over the API."""

from __future__ import annotations

from typing import Any, Literal
from uuid import UUID

from django.core.exceptions import ValidationError
from django.db import transaction
from django.http import HttpRequest, HttpResponse, HttpResponseBase, StreamingHttpResponse
from django.utils.http import content_disposition_header
from django.utils.translation import gettext as _
from ninja import Query, Router, Status

from webapp.api.answers import models as models_answers
from webapp.api.base import IfMatch, Tagged, caller, held, require_match
from webapp.api.idempotency import once
from webapp.api.listing import Dated, Named, page_of
from webapp.api.schemas import ModelIn, ModelNew, PushIn
from webapp.common.answers import Extended, Page
from webapp.people.teams.access import object_for, project_for
from webapp.people.teams.audit import audit
from webapp.people.teams.models import AuditAction, Role
from webapp.people.teams.sudo import Act, ask
from webapp.results.card import card_of
from webapp.results.lineage import children, lineage, origins_of, scores
from webapp.runs.registry.models import ModelKind, ModelPush, RegisteredModel
from webapp.runs.registry.selectors import checkpoints_of, model_describe, model_mark, models_of
from webapp.runs.registry.sending import model_files, push_order, tar_bytes, tar_of, with_card
from webapp.runs.registry.services import model_register

router = Router()
WITHIN = ("project", "checkpoint__run__parent", "checkpoint__run__resume_checkpoint")


def _model_for(request: HttpRequest, model_id: UUID, *, need: Role = Role.VIEWER) -> RegisteredModel:
    within = RegisteredModel.objects.select_related(*WITHIN)
    return object_for(caller(request), RegisteredModel, model_id, need=need, within=within)


@router.get("/projects/{slug:slug}/models", tags=["models"], response=Page[models_answers.Model])
def models_list(request: HttpRequest, slug: str, asked: Query[Named]) -> dict[str, Any]:
    """The registered models of a project, newest first."""
    rows = models_of(project_for(caller(request), slug))
    return page_of(request, rows, asked, text=("name", "source"))


@router.post("/projects/{slug:slug}/models", tags=["models"], response={201: models_answers.Model})
def model_new(request: HttpRequest, slug: str, body: ModelNew) -> Status[RegisteredModel]:
    """Register a model under a name: one of the hub, a folder of the server, or a checkpoint of a run."""
    project = project_for(caller(request), slug, need=Role.EDITOR)
    checkpoint = checkpoints_of(project).filter(pk=body.checkpoint).first() if body.checkpoint else None
    if (body.kind == ModelKind.RUN) != (checkpoint is not None):
        sentence = _("Name a checkpoint of this project for the kind run, and for no other.")
        raise ValidationError({"checkpoint": sentence})
    values = body.model_dump(include={"name", "kind", "source", "revision"})
    made = model_register(project=project, user=caller(request), checkpoint=checkpoint, **values)
    return Status(201, made)


@router.get("/models/{uuid:model_id}", tags=["models"], response=models_answers.ModelWhole)
def model_get(request: HttpRequest, model_id: UUID) -> Tagged:
    """A model with its lineage, the runs trained from it, its scores, and the team's sections of its card. `ETag` is
    that of its mark, tags, notes and sections."""
    model = _model_for(request, model_id)
    return Tagged(_with_lineage(model), _tagged_values(model))


@router.patch("/models/{uuid:model_id}", tags=["models"], response=models_answers.ModelWhole)
def model_patch(request: HttpRequest, model_id: UUID, body: ModelIn, if_match: IfMatch = None) -> Tagged:
    """Change mark, tags, notes or sections of the card: all that is sent, or nothing."""
    found = _model_for(request, model_id, need=Role.EDITOR)
    with transaction.atomic():
        model = held(found)
        require_match(if_match, _tagged_values(model))
        model_describe(model=model, tags=body.tags, notes=body.notes, card=body.card)
        if body.mark is not None:
            model_mark(model=model, mark=body.mark)
    model = _model_for(request, model_id)
    return Tagged(_with_lineage(model), _tagged_values(model))


def _tagged_values(model: RegisteredModel) -> list[Any]:
    return [model.mark, model.tags, model.notes, model.card]


@router.get("/models/{uuid:model_id}/card", tags=["models"])
def model_card(request: HttpRequest, model_id: UUID) -> HttpResponse:
    """The model card as Markdown."""
    return HttpResponse(card_of(_model_for(request, model_id)), content_type="text/markdown; charset=utf-8")


@router.get("/models/{uuid:model_id}/download", tags=["models"])
def model_download(
    request: HttpRequest, model_id: UUID, part: Literal["model", "adapter"] = "model"
) -> HttpResponseBase:
    """The files of a model, or of its adapter, as a tar stream whose last member, `SHA256SUMS`, has their hashes.

    The model card is in it as `README.md`, unless the model was registered with one of its own.
    """
    model = _model_for(request, model_id)
    files, name = model_files(model, part), model.name.replace(" ", "-")
    files = with_card(model, files, card_of(model))
    audit(AuditAction.MODEL_DOWNLOADED, model)
    headers = {
        "Content-Length": str(tar_bytes(files, name)),
        "Content-Disposition": content_disposition_header(True, f"{name}.tar") or "attachment",
    }
    return StreamingHttpResponse(tar_of(files, name), content_type="application/x-tar", headers=headers)


@router.get("/models/{uuid:model_id}/pushes", tags=["models"], response=Page[models_answers.ModelPush])
def pushes_list(request: HttpRequest, model_id: UUID, asked: Query[Dated]) -> dict[str, Any]:
    """The pushes of a model to the hub, newest first."""
    return page_of(request, ModelPush.objects.filter(model=_model_for(request, model_id)), asked)


@router.post("/models/{uuid:model_id}/pushes", tags=["models"], response={202: models_answers.ModelPush})
@once
def model_push(request: HttpRequest, model_id: UUID, body: PushIn) -> Status[ModelPush]:
    """Have the files of a model sent to the hub (409 while pushing is off, or one is under way)."""
    model = _model_for(request, model_id, need=Role.EDITOR)
    ask(request, Act.PUSH)
    push = push_order(
        model=model,
        user=caller(request),
        repository=body.repository,
        private=body.private,
        confirmed=body.confirm,
        readme=card_of(model),
    )
    return Status(202, push)


def _with_lineage(model: RegisteredModel) -> Extended:
    origins = origins_of(model)
    below = children(model)
    more = {"children": below.nodes, "more_children": below.more, "scores": scores(model, origins)}
    return Extended(model, lineage=lineage(model, origins), **more)
