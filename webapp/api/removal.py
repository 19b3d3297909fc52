"""Deleting over the API. Whoever calls has meant it: there is no name to type.

The operations stand in the routers of what they delete: one address belongs to one router.
"""

from __future__ import annotations

from uuid import UUID

from django.http import HttpRequest

from webapp.api.base import caller
from webapp.api.objects import router as objects
from webapp.api.runs import router as runs
from webapp.datasets.models import Dataset
from webapp.datasets.services import dataset_delete
from webapp.deletion.services import remove
from webapp.registry.models import Checkpoint, RegisteredModel
from webapp.registry.services import model_delete
from webapp.runs.models import Run
from webapp.teams.access import object_for, project_for
from webapp.teams.models import Role


@runs.delete("/runs/{uuid:run_id}")
def run_remove(request: HttpRequest, run_id: UUID) -> dict[str, str]:
    """Delete a run that has ended, with all that it recorded. Owners only; 409 while something uses it."""
    run = object_for(caller(request), Run, run_id, need=Role.OWNER, within=Run.objects.select_related("project"))
    remove(run)
    return {"deleted": run.name}


@runs.delete("/checkpoints/{uuid:checkpoint_id}")
def checkpoint_remove(request: HttpRequest, checkpoint_id: UUID) -> dict[str, str]:
    """Delete a checkpoint's files. Owners only; 409 while a model or an open run uses it."""
    within = Checkpoint.objects.select_related("project", "run")
    checkpoint = object_for(caller(request), Checkpoint, checkpoint_id, need=Role.OWNER, within=within)
    remove(checkpoint)
    return {"deleted": str(checkpoint)}


@objects.delete("/datasets/{uuid:dataset_id}")
def dataset_remove(request: HttpRequest, dataset_id: UUID) -> dict[str, str]:
    """Delete one version of a dataset. 409 while an open run uses it."""
    within = Dataset.objects.select_related("project")
    dataset = object_for(caller(request), Dataset, dataset_id, need=Role.EDITOR, within=within)
    dataset_delete(dataset=dataset)
    return {"deleted": dataset.reference}


@runs.delete("/models/{uuid:model_id}")
def model_remove(request: HttpRequest, model_id: UUID) -> dict[str, str]:
    """Forget a registered model; its files stay. 409 while an open run starts from it."""
    within = RegisteredModel.objects.select_related("project")
    model = object_for(caller(request), RegisteredModel, model_id, need=Role.EDITOR, within=within)
    model_delete(model=model)
    return {"deleted": model.reference}


@runs.delete("/projects/{slug:slug}")
def project_remove(request: HttpRequest, slug: str) -> dict[str, str]:
    """Delete a project with all that is in it. Owners only; 409 while one of its runs is at work."""
    project = project_for(caller(request), slug, need=Role.OWNER)
    remove(project)
    return {"deleted": slug}
