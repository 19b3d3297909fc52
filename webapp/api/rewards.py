"""What people do with reward specs and their test cases over the API, besides saving and reading specs.

The operations are in the router of their addresses: one address belongs to one router.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.http import HttpRequest
from ninja import Query
from pydantic import Field

from training.config import RewardComponent
from webapp.api.answers import data as data_answers
from webapp.api.base import caller
from webapp.api.listing import Named, page_of
from webapp.api.objects import router
from webapp.api.schemas import Body
from webapp.common.answers import Deleted, Page
from webapp.people.teams.access import object_for, project_for
from webapp.people.teams.models import Role
from webapp.rewards.cases import cases_of, reward_case_delete
from webapp.rewards.models import RewardCase, RewardSpec
from webapp.rewards.services import Tried, reward_spec_delete, reward_try

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
