"""Reading models: registered ones, checkpoints of runs, and the folders that an administrator put under MODELS_DIR."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import NamedTuple

from django.conf import settings
from django.db.models import Exists, OuterRef, Q, QuerySet

from training.config import kind_in, name_in
from webapp.people.teams.models import Project
from webapp.runs.models import Run
from webapp.runs.registry.models import Checkpoint, CheckpointState, ModelKind, RegisteredModel
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
    """What training left in this project and is still whole, newest first."""
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
