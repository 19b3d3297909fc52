"""Reading models: registered ones, checkpoints, folders under MODELS_DIR, and the weights that a run began with."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Mapping
from functools import reduce
from operator import or_
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import Exists, OuterRef, Q, QuerySet
from django.db.models.functions import Now
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from training.config import Reference, kind_in, name_in
from webapp.common.text import clean_text
from webapp.people.notifications.events import notify
from webapp.people.notifications.models import Kind
from webapp.people.teams.audit import audit
from webapp.people.teams.models import AuditAction, Project
from webapp.runs.config import config_of
from webapp.runs.models import Run
from webapp.runs.registry.models import Checkpoint, CheckpointState, ModelKind, ModelMark, RegisteredModel
from webapp.runs.states import TERMINAL

MAX_FOLDERS = 200
LARGE = ("config", "resolved", "baselines", "evaluation", "health")
"""Columns of a run that no list of models or checkpoints shows."""
SHOWN_OF_MODELS = (
    *("name", "mark", "tags", "kind", "source", "revision", "created_at"),
    *("checkpoint__step", "checkpoint__run__name"),
)
"""The columns that a list of models shows."""


class ModelFolder(NamedTuple):
    """A folder that holds a model: configuration and safetensors weights."""

    name: str
    bytes: int


def models_of(project: Project) -> QuerySet[RegisteredModel]:
    """The project's registered models, newest first."""
    rows = RegisteredModel.objects.filter(project=project)
    rows = rows.select_related("project", "created_by", "checkpoint", "checkpoint__run")
    return rows.defer(*(f"checkpoint__run__{name}" for name in LARGE))


def models_named(project: Project, text: str) -> QuerySet[RegisteredModel]:
    """The project's models that have ``text`` in their name or source, or as a tag; all of them for no text."""
    rows = models_of(project).select_related(None).select_related("checkpoint__run")
    rows = rows.defer(None).only(*SHOWN_OF_MODELS)
    if not text:
        return rows
    source = Q(source__icontains=text) | Q(checkpoint__run__name__icontains=text)
    return rows.filter(Q(name__icontains=text) | source | Q(tags__contains=[text]))


def checkpoints_of(project: Project) -> QuerySet[Checkpoint]:
    """The whole checkpoints and finished models of this project, newest first."""
    return (
        Checkpoint.objects.filter(project=project, state=CheckpointState.WHOLE)
        .select_related("run", "project")
        .prefetch_related("models")
        .defer(*(f"run__{name}" for name in LARGE))
        .order_by("-created_at")
    )


def checkpoints_shown(project: Project) -> QuerySet[Checkpoint]:
    """The same as a list shows them: what it does not show is not read."""
    rows = checkpoints_of(project).select_related(None).select_related("run")
    return rows.defer(None).only("step", "bytes", "final", "created_at", "run__name")


def unregistered_runs(project: Project) -> QuerySet[Run]:
    """Runs that left a finished model which has no name in the registry, newest first: the others are there."""
    finished = Checkpoint.objects.filter(run=OuterRef("pk"), final=True)
    known = RegisteredModel.objects.filter(project=project, checkpoint__run=OuterRef("pk"), checkpoint__final=True)
    return Run.objects.filter(Exists(finished), ~Exists(known), project=project).order_by("-created_at")


def registered_as(project: Project, source: str) -> str:
    """The registered model that this source of a config means as well: a run's finished model or an id of Hugging
    Face; empty where there is none."""
    if kind_in(source) == "run":
        found = models_of(project).filter(checkpoint__final=True, checkpoint__run__name=name_in("run", source))
    else:
        found = models_of(project).filter(kind=ModelKind.HUB, source=source, revision="")
    model = found.first()
    return model.reference if model is not None else ""


def runs_using(model: RegisteredModel, *, active: bool = False) -> QuerySet[Run]:
    """Runs whose config names this model."""
    runs = Run.objects.filter(project=model.project, config__model__source=model.reference)
    return runs.exclude(state__in=TERMINAL) if active else runs


def model_folders() -> list[ModelFolder]:
    """The model folders directly under MODELS_DIR, by name. Links and anything incomplete are left out."""
    root = Path(settings.MODELS_DIR)
    found: list[ModelFolder] = []
    try:
        with os.scandir(root) as entries:
            names = sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
    except OSError:
        return []
    for name in names:
        size = _model_bytes(root / name)
        if size is not None and len(found) < MAX_FOLDERS:
            found.append(ModelFolder(name, size))
    return found


def _model_bytes(folder: Path) -> int | None:
    """Bytes of the files of a model folder; ``None`` when it is not one."""
    size, has_config, has_weights = 0, False, False
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                status = entry.stat(follow_symlinks=False)
                if not stat.S_ISREG(status.st_mode):
                    continue
                size += status.st_size
                has_config |= entry.name == "config.json"
                has_weights |= entry.name.endswith(".safetensors")
    except OSError:
        return None
    return size if has_config and has_weights else None


# Which weights a run started from or played with: by its resolved config, not by what a name means today.
#
# A name may be given to another model later. The resolved config has the folder that the name meant when a worker
# began, and server-made folders name the run and the checkpoint; so a link between a run and its weights is never
# guessed.

STARTER = "starter"
_OF_RUN = re.compile(r"/runs/([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})/([^/]+/[^/]+)$")


class Weights(NamedTuple):
    """Some weights. ``name`` is a Hugging Face id, a folder below MODELS_DIR, or a run's id; ``at`` is the revision, or
    the checkpoint's path in the run's folder."""

    kind: ModelKind
    name: str = ""
    at: str = ""


def weights_of_model(model: RegisteredModel) -> Weights | None:
    """The weights of a registered model; ``None`` where its checkpoint is gone."""
    if model.kind == ModelKind.STARTER:
        return Weights(ModelKind.STARTER)
    if model.kind == ModelKind.RUN:
        return weights_of_checkpoint(model.checkpoint) if model.checkpoint is not None else None
    return Weights(ModelKind(model.kind), model.source, model.revision)


def weights_of_checkpoint(checkpoint: Checkpoint) -> Weights:
    """The weights of a checkpoint."""
    return Weights(ModelKind.RUN, str(checkpoint.run_id), checkpoint.path)


def weights_of_run(run: Run) -> Weights | None:
    """The weights that a run started from or played with; ``None`` without a model, or before its first start."""
    config = config_of(run) if run.resolved else None
    if config is None or not config.needs_model:
        return None
    source, written = config.model.source, str(run.config.get("model", {}).get("source") or "")
    if found := _OF_RUN.search(source):
        return Weights(ModelKind.RUN, found[1], found[2])
    if kind_in(source) in ("model", "run"):
        return None
    if source == STARTER:
        return Weights(ModelKind.STARTER)
    if Path(source).is_absolute():
        # A folder that was registered; that of a removed kind, or of a moved MODELS_DIR, still has its name.
        return Weights(ModelKind.FOLDER, Path(source).name) if kind_in(written) == "model" else None
    return Weights(ModelKind.HUB, source, config.model.revision)


def run_in(source: str) -> UUID | None:
    """The run that left the weights that a resolved config means; ``None`` where no run did."""
    found = _OF_RUN.search(source)
    return UUID(found[1]) if found else None


def runs_with(all_weights: Iterable[Weights]) -> Q:
    """Runs whose resolved config means one of these weights; ``weights_of_run`` of a row says which."""
    return reduce(or_, (_runs_with_weights(weights) for weights in all_weights), Q(pk__in=[]))


def _runs_with_weights(weights: Weights) -> Q:
    match weights.kind:
        case ModelKind.RUN:
            return Q(resolved__model__source__endswith=f"/runs/{weights.name}/{weights.at}")
        case ModelKind.FOLDER:
            a_model = str(Reference("model", ""))
            return Q(resolved__model__source__endswith=f"/{weights.name}", config__model__source__startswith=a_model)
        case ModelKind.HUB:
            return Q(resolved__model__source=weights.name, resolved__model__revision=weights.at)
    return Q(resolved__model__source=STARTER)


def marks_of(project: Project) -> dict[Weights, str]:
    """The marks of a project's models, in the reader's language, by the weights that they mark."""
    rows = (
        RegisteredModel.objects.filter(project=project).exclude(mark="").select_related("checkpoint").order_by("mark")
    )
    found = {weights_of_model(model): model.get_mark_display() for model in rows}  # production comes last, and stays
    return {weights: mark for weights, mark in found.items() if weights is not None}


# A team's own words on a model: its mark, tags, notes, and its own sections of the model card.

MAX_TAGS, MAX_TAG_CHARS = 8, 24
MAX_NOTES_CHARS, MAX_SECTION_CHARS = 4000, 8000
TAG = re.compile(rf"\w[\w.+-]{{0,{MAX_TAG_CHARS - 1}}}")
SECTIONS = {
    "intended_use": gettext_lazy("Intended use"),
    "limitations": gettext_lazy("Limitations"),
    "licence": gettext_lazy("Licence"),
}


def model_mark(*, model: RegisteredModel, mark: str) -> RegisteredModel:
    """Mark a model, or with ``""`` take its mark away. The model that was in production before loses that mark.

    1. The project is locked, so that of two people who choose at once the later one wins.
    2. The former model of production is unmarked, and that is audited as an act of its own.
    3. The model gets the mark. A mark that it has already changes nothing and leaves no row.
    """
    if mark and mark not in ModelMark.values:
        raise ValidationError({"mark": _("Choose one of the marks.")})
    with transaction.atomic():
        Project.objects.select_for_update().filter(pk=model.project_id).first()
        if mark == ModelMark.PRODUCTION:
            former = RegisteredModel.objects.filter(project=model.project_id, mark=mark).exclude(pk=model.pk)
            for other in former.select_related("project"):
                _set_mark(other, "")
        model.refresh_from_db(fields=["mark"])
        if model.mark != mark:
            _set_mark(model, mark)
    return model


def _set_mark(model: RegisteredModel, mark: str) -> None:
    before = ModelMark(model.mark).label if model.mark else ""
    RegisteredModel.objects.filter(pk=model.pk).update(mark=mark, marked_at=Now() if mark else None)
    model.refresh_from_db(fields=["mark", "marked_at"])
    action = AuditAction.MODEL_MARKED if mark else AuditAction.MODEL_UNMARKED
    entry = audit(action, model, subject=f"{model.name}: {ModelMark(mark).label if mark else before}")
    if mark == ModelMark.PRODUCTION:
        key = f"production:{model.pk}:{model.marked_at.isoformat() if model.marked_at else ''}"
        notify(Kind.MODEL_PRODUCTION, model, key=key, facts={"by": entry.username if entry else ""})


def model_describe(
    *,
    model: RegisteredModel,
    tags: Iterable[str] | None = None,
    notes: str | None = None,
    card: Mapping[str, str] | None = None,
) -> RegisteredModel:
    """Change tags, notes or sections of the card; what is ``None``, and a section that is not named, stays.

    Raises ``ValidationError`` by field: ``tags``, ``notes``, or the name of the section.
    """
    changed: dict[str, object] = {}
    if tags is not None:
        changed["tags"] = clean_tags(tags)
    if notes is not None:
        changed["notes"] = _clean_field("notes", notes, MAX_NOTES_CHARS)
    if card is not None:
        if unknown := set(card) - set(SECTIONS):
            raise ValidationError({"card": _("There is no section “%s”.") % sorted(unknown)[0][:40]})
        own = {name: _clean_field(name, text, MAX_SECTION_CHARS) for name, text in card.items()}
        changed["card"] = {name: text for name, text in (model.card | own).items() if text}
    changed = {name: value for name, value in changed.items() if getattr(model, name) != value}
    if changed:
        for name, value in changed.items():
            setattr(model, name, value)
        with transaction.atomic():
            model.save(update_fields=list(changed))
            audit(AuditAction.MODEL_DESCRIBED, model)
    return model


def clean_tags(tags: Iterable[str]) -> list[str]:
    """Each tag once, in the order in which they were written. Raises ``ValidationError`` for ``tags``."""
    found: dict[str, str] = {}
    for tag in tags:
        text = clean_text(tag).strip()
        if not text:
            continue
        if not TAG.fullmatch(text):
            words = {"tag": text[:40], "most": MAX_TAG_CHARS}
            sentence = _("“%(tag)s” is no tag: use at most %(most)d letters, digits and . + - _, without spaces.")
            raise ValidationError({"tags": sentence % words})
        found.setdefault(text.casefold(), text)
    if len(found) > MAX_TAGS:
        raise ValidationError({"tags": _("A model has at most %(most)d tags.") % {"most": MAX_TAGS}})
    return list(found.values())


def _clean_field(field: str, text: str, most: int) -> str:
    found = clean_text(text).replace("\r\n", "\n").strip()
    if len(found) > most:
        words = {"n": len(found), "most": most}
        raise ValidationError({field: _("That is %(n)d characters; at most %(most)d are kept.") % words})
    return found
