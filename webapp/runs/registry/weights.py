"""Which weights a run started from or played with: by its resolved config, not by what a name means today.

A name may be given to another model later. The resolved config has the folder that the name meant when a worker began,
and server-made folders name the run and the checkpoint; so a link between a run and its weights is never guessed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import reduce
from operator import or_
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

from django.db.models import Q

from webapp.people.teams.models import Project
from webapp.runs.config import config_of
from webapp.runs.models import Run
from webapp.runs.registry.models import Checkpoint, ModelKind, RegisteredModel

STARTER = "starter"
_OF_RUN = re.compile(r"/runs/([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})/([^/]+/[^/]+)$")


class Weights(NamedTuple):
    """Some weights. ``name`` is a Hugging Face id, a folder below MODELS_DIR, or a run's id; ``at`` is the revision, or
    the checkpoint's path in the run's folder."""

    kind: ModelKind
    name: str = ""
    at: str = ""


def weights_of_model(model: RegisteredModel) -> Weights | None:
    """What a registered model is; ``None`` where its checkpoint is gone."""
    if model.kind == ModelKind.STARTER:
        return Weights(ModelKind.STARTER)
    if model.kind == ModelKind.RUN:
        return weights_of_checkpoint(model.checkpoint) if model.checkpoint is not None else None
    return Weights(ModelKind(model.kind), model.source, model.revision)


def weights_of_checkpoint(checkpoint: Checkpoint) -> Weights:
    """What a checkpoint is."""
    return Weights(ModelKind.RUN, str(checkpoint.run_id), checkpoint.path)


def weights_of_run(run: Run) -> Weights | None:
    """What a run started from, or played with; ``None`` where no model played, or no worker has started it yet."""
    config = config_of(run) if run.resolved else None
    if config is None or not config.needs_model:
        return None
    source, written = config.model.source, str(run.config.get("model", {}).get("source") or "")
    if found := _OF_RUN.search(source):
        return Weights(ModelKind.RUN, found[1], found[2])
    if source.startswith(("model:", "run:")):
        return None
    if source == STARTER:
        return Weights(ModelKind.STARTER)
    if Path(source).is_absolute():
        # A folder that was registered; that of a removed kind, or of a moved MODELS_DIR, still has its name.
        return Weights(ModelKind.FOLDER, Path(source).name) if written.startswith("model:") else None
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
            return Q(resolved__model__source__endswith=f"/{weights.name}", config__model__source__startswith="model:")
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
