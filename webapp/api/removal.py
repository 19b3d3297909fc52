"""Deleting over the API. The call itself is the confirmation: there is no name to type.

The operations are in the routers of what they delete: one address belongs to one router.
"""

from __future__ import annotations

from typing import TypeVar
from uuid import UUID

from django.core.exceptions import PermissionDenied
from django.db.models import Model
from django.http import Http404, HttpRequest
from django.utils.translation import gettext as _

from webapp.api.base import caller
from webapp.api.model_pages import router as models
from webapp.api.objects import router as objects
from webapp.api.runs import router as runs
from webapp.common.answers import Deleted
from webapp.datasets.models import Dataset
from webapp.datasets.services import dataset_delete
from webapp.people.teams.access import administrator, may_start_projects, object_for, project_for, team_for
from webapp.people.teams.models import Role
from webapp.people.teams.selectors import person
from webapp.people.teams.services import person_delete
from webapp.people.teams.sudo import Act, ask
from webapp.runs.models import Run
from webapp.runs.registry.models import Checkpoint, RegisteredModel
from webapp.runs.registry.services import model_delete
from webapp.runs.removal.services import remove

M = TypeVar("M", bound=Model)


def _object_for_removal(request: HttpRequest, model: type[M], pk: UUID, need: Role, *related: str) -> M:
    """The object to delete, if the caller may. Raises ``Http404`` or ``PermissionDenied``."""
    within = model._default_manager.select_related("project", *related)
    return object_for(caller(request), model, pk, need=need, within=within)


@runs.delete("/runs/{uuid:run_id}", response=Deleted)
def run_remove(request: HttpRequest, run_id: UUID) -> dict[str, str]:
    """Delete a run that has ended, with all that it recorded. Owners only; 409 while something uses it."""
    run = _object_for_removal(request, Run, run_id, Role.OWNER)
    ask(request, Act.DELETE_RUN)
    remove(run)
    return {"deleted": run.name}


@runs.delete("/checkpoints/{uuid:checkpoint_id}", tags=["models"], response=Deleted)
def checkpoint_remove(request: HttpRequest, checkpoint_id: UUID) -> dict[str, str]:
    """Delete a checkpoint's files. Owners only; 409 while a model or an open run uses it."""
    checkpoint = _object_for_removal(request, Checkpoint, checkpoint_id, Role.OWNER, "run")
    ask(request, Act.DELETE_CHECKPOINT)
    remove(checkpoint)
    return {"deleted": str(checkpoint)}


@objects.delete("/datasets/{uuid:dataset_id}", tags=["datasets"], response=Deleted)
def dataset_remove(request: HttpRequest, dataset_id: UUID) -> dict[str, str]:
    """Delete one version of a dataset. 409 while an open run uses it."""
    dataset = _object_for_removal(request, Dataset, dataset_id, Role.EDITOR)
    ask(request, Act.DELETE_DATASET)
    dataset_delete(dataset=dataset)
    return {"deleted": dataset.reference}


@models.delete("/models/{uuid:model_id}", tags=["models"], response=Deleted)
def model_remove(request: HttpRequest, model_id: UUID) -> dict[str, str]:
    """Delete a registered model; its files stay. 409 while an open run starts from it."""
    model = _object_for_removal(request, RegisteredModel, model_id, Role.EDITOR)
    ask(request, Act.DELETE_MODEL)
    model_delete(model=model)
    return {"deleted": model.reference}


@runs.delete("/projects/{slug:slug}", tags=["projects"], response=Deleted)
def project_remove(request: HttpRequest, slug: str) -> dict[str, str]:
    """Delete a project with all that is in it. Owners only; 409 while one of its runs is at work."""
    project = project_for(caller(request), slug, need=Role.OWNER)
    ask(request, Act.DELETE_PROJECT)
    remove(project)
    return {"deleted": slug}


@runs.delete("/teams/{uuid:team_id}", tags=["projects"], response=Deleted)
def team_remove(request: HttpRequest, team_id: UUID) -> dict[str, str]:
    """Delete a team with all its projects. Owners only; 409 while one of its runs is at work."""
    team = team_for(caller(request), team_id, need=Role.OWNER)
    ask(request, Act.DELETE_TEAM)
    remove(team)
    return {"deleted": team.name}


@runs.delete("/people/{uuid:person_id}", tags=["people"], response=Deleted)
def person_remove(request: HttpRequest, person_id: UUID) -> dict[str, str]:
    """Delete another person's account; what they made stays (administrators; a token must be one of an owner that is
    limited to no project). 409 while a team would have no owner."""
    by = administrator(request)
    if not may_start_projects(by):
        raise PermissionDenied(_("This token may not do that."))
    user = person(person_id)
    if user is None:
        raise Http404
    if user.pk == by.pk:
        raise PermissionDenied(_("You delete your own account in a browser."))
    ask(request, Act.DELETE_PERSON)
    name = user.username
    person_delete(user=user, by=by)
    return {"deleted": name}
