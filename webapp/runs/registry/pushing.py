"""Pushing a model to a hub, as background work."""

from __future__ import annotations

import hashlib
import re
from typing import Any

from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.utils.translation import gettext as _

from training.errors import ModelError, TiltyardError
from webapp.common import work
from webapp.common.outbound import Caller
from webapp.common.work import Claim
from webapp.people.teams.audit import audit
from webapp.people.teams.models import AuditAction, User
from webapp.runs.registry.download import ModelFile, model_files, with_card
from webapp.runs.registry.hub_client import PIECE, Hub, Sent
from webapp.runs.registry.models import ModelPush, PushState, RegisteredModel

# https://huggingface.co/docs/hub: an owner and a name, without doubled or final dots and dashes.
REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]{0,40}/[A-Za-z0-9][\w.-]{0,94}")


def push_on() -> bool:
    """Whether the operator has given a token that may write to the hub."""
    return bool(settings.HUB_TOKEN and settings.HUB_URL)


def push_order(
    *, model: RegisteredModel, user: User | None, repository: str, private: bool, confirmed: bool, readme: str
) -> ModelPush:
    """Ask for a push. Raises ``ValidationError`` by field, or as a conflict while it is off or another one runs."""
    if not push_on():
        raise ValidationError(_("Pushing is off: the operator has set no TILTYARD_HUB_TOKEN."), code="conflict")
    name = repository.strip()
    if not REPOSITORY.fullmatch(name) or re.search(r"--|\.\.|[.-]$|[.-]/|\.git$", name):
        raise ValidationError({"repository": _("Write the name as owner/name, for example my-team/tool-caller.")})
    if not confirmed:
        raise ValidationError({"confirm": _("Confirm that these weights may leave this server.")})
    sent_files(model, readme)
    push = ModelPush(
        model=model, hub=settings.HUB_URL, repository=name, private=private, readme=readme, created_by=user
    )
    try:
        with transaction.atomic():
            push.save(force_insert=True)
            work.enqueue(push)
            audit(AuditAction.MODEL_PUSHED, model, by=user, subject=f"{model.name} → {name}")
    except IntegrityError as exc:
        raise ValidationError(_("It is being pushed already."), code="conflict") from exc
    return push


def sent_files(model: RegisteredModel, readme: str) -> list[ModelFile]:
    """The files that would be pushed. Raises ``ValidationError`` where the model's files are not here."""
    files = model_files(model)
    if not any(file.name.endswith(".safetensors") for file in files):
        raise ValidationError(_("There are no safetensors weights to push."), code="conflict")
    return with_card(model, files, readme)


def push_run(claim: Claim[ModelPush]) -> None:
    """Send the files of a claimed push; they are read twice, because their hashes are asked for first."""
    push = claim.item
    if not push_on():
        raise ModelError(_("Pushing is off: the operator has set no TILTYARD_HUB_TOKEN."))
    try:
        files = sent_files(push.model, push.readme)
    except ValidationError as exc:  # deleted since
        raise ModelError(" ".join(exc.messages)) from exc
    total = sum(file.bytes for file in files)
    claim.report({"bytes": 0, "total": total}, at_once=True)
    hashed = [_with_sha256(file) for file in files]
    before = ModelPush.objects.filter(
        model__project=push.model.project_id, hub=push.hub, repository=push.repository, made=True
    )
    with Caller() as caller:
        hub = Hub(caller, push.hub, settings.HUB_TOKEN, push.repository)
        hub.create(private=push.private, ours=before.exists())
        claim.keep(made=True)  # a later try, also after this worker was lost, continues in it
        made = hub.push(hashed, f"Upload {push.model.name}", lambda sent: claim.report({"bytes": sent, "total": total}))
    claim.finish(state=PushState.DONE, commit=made.id, url=made.url, error=None)


def push_failed(push: ModelPush, error: TiltyardError) -> dict[str, Any]:
    """The columns of a push that failed."""
    return {"state": PushState.FAILED, "error": error.info.model_dump(mode="json")}


def _with_sha256(file: ModelFile) -> Sent:
    digest = hashlib.sha256(file.content)
    if file.path is not None:
        with file.path.open("rb") as source:
            while piece := source.read(PIECE):
                digest.update(piece)
    return Sent(file.name, file.path, file.bytes, digest.hexdigest(), file.content)
