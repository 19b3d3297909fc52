"""Writing the model registry."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.utils.translation import gettext as _

from training.algorithms.checkpoints import pin, unpin
from training.errors import TiltyardError
from webapp.common.pages import clean_name
from webapp.people.teams.audit import audit
from webapp.people.teams.models import AuditAction, Project, User
from webapp.runs.registry.models import Checkpoint, ModelKind, RegisteredModel
from webapp.runs.registry.selectors import model_folders, runs_using

logger = logging.getLogger(__name__)
HUB_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,95}/[A-Za-z0-9][A-Za-z0-9_.-]{0,95}")
REVISION = re.compile(r"[A-Za-z0-9._-]{0,64}")


def model_register(
    *,
    project: Project,
    user: User | None,
    name: str,
    kind: str,
    source: str = "",
    revision: str = "",
    checkpoint: Checkpoint | None = None,
) -> RegisteredModel:
    """Register a Hugging Face model, a scanned folder or a checkpoint. Raises ``ValidationError`` by field."""
    model = RegisteredModel(
        project=project,
        name=clean_name(name),
        kind=kind,
        source=source.strip(),
        revision=revision.strip(),
        checkpoint=checkpoint,
        created_by=user,
    )
    _check_source(model)
    try:
        with transaction.atomic():
            model.save(force_insert=True)
            audit(AuditAction.MODEL_ADDED, model, by=user)
            if checkpoint is not None and checkpoint.folder.is_dir():
                pin(checkpoint.folder)
    except IntegrityError as exc:
        raise ValidationError({"name": _("A model with this name exists already.")}) from exc
    return model


def _check_source(model: RegisteredModel) -> None:
    """Check the fields that each kind needs. Folders are chosen from what is there, so no path is ever typed."""
    if model.kind == ModelKind.HUB:
        if not HUB_ID.fullmatch(model.source) or ".." in model.source or "--" in model.source:
            raise ValidationError({"source": _("Write the id as owner/name, for example Qwen/Qwen3-0.6B.")})
        if not REVISION.fullmatch(model.revision) or ".." in model.revision:
            raise ValidationError({"revision": _("A revision is a commit, a tag or a branch name.")})
    elif model.kind == ModelKind.FOLDER:
        if model.source not in {folder.name for folder in model_folders()}:
            raise ValidationError({"folder": _("Choose one of the folders that were found.")})
        model.revision = ""
        _check_folder(Path(settings.MODELS_DIR) / model.source, "folder")
    elif model.kind == ModelKind.RUN:
        if model.checkpoint is None or model.checkpoint.project_id != model.project.pk:
            raise ValidationError({"checkpoint": _("Choose a checkpoint of this project.")})
        model.source = model.revision = ""
    else:
        raise ValidationError({"kind": _("Choose where the weights come from.")})


def _check_folder(folder: Path, field: str) -> None:
    """Have the trainer's own check read the folder as data; it never runs code from it."""
    try:
        from training.model_check import check_model_folder
    except ImportError:
        return
    try:
        check_model_folder(folder)
    except TiltyardError as exc:
        parts: list[Any] = [exc.message, exc.hint]
        raise ValidationError({field: [part for part in parts if part]}) from exc


def model_delete(*, model: RegisteredModel) -> None:
    """Delete a model's registration; its files stay. Refused while a run that has not ended starts from it."""
    names = list(runs_using(model, active=True).values_list("name", flat=True)[:3])
    if names:
        raise ValidationError(
            _("It is used by a run that has not ended: %(runs)s.") % {"runs": ", ".join(names)}, code="conflict"
        )
    with transaction.atomic():
        audit(AuditAction.MODEL_DELETED, model)
        model.delete()
        checkpoint = model.checkpoint
        if checkpoint is None or RegisteredModel.objects.filter(checkpoint=checkpoint).exists():
            return
        if not checkpoint.kept_for.exists():  # type: ignore[attr-defined]  # for an advisory
            unpin(checkpoint.folder)
