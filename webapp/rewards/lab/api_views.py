"""The lab's two JSON answers: a set scored by a spec, and one rollout with what earned its reward."""

from __future__ import annotations

from typing import Any, TypeVar, cast
from uuid import UUID

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, JsonResponse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_POST
from pydantic import BaseModel
from pydantic import ValidationError as ShapeError

from training.config import RewardComponent
from training.errors import DataError
from training.rewards.scoring import validate_components
from webapp.common.errors import error_body
from webapp.common.fields import error_sentence
from webapp.common.text import in_words
from webapp.people.teams.access import object_for, project_for
from webapp.people.teams.models import Project, User
from webapp.rewards.lab.requests import RolloutRequest, ScoreRequest
from webapp.rewards.lab.selectors import rollout_sets_of
from webapp.rewards.lab.spans import rollout_reply
from webapp.rewards.lab.view import Pending, score_reply
from webapp.rewards.models import RolloutSet, SetState
from webapp.rewards.permission import custom_refusal

R = TypeVar("R", bound=BaseModel)
MAX_BODY_BYTES = 512 * 1024


class _Refused(Exception):
    """An answer in the one error shape."""

    def __init__(self, status: int, code: str, message: str = "", detail: Any = None) -> None:
        super().__init__(message)
        self.status, self.code, self.message, self.detail = status, code, message, detail

    def answer(self, request: HttpRequest) -> JsonResponse:
        return JsonResponse(error_body(request, self.code, self.message, self.detail), status=self.status)


@login_required
@require_POST
def lab_score(request: HttpRequest, slug: str, pk: UUID) -> JsonResponse:
    """Score a set by the posted components; nothing is stored, so viewers may too.

    202 with ``computing`` while values are still being computed: the same request again finds them.
    """
    found = _set_of(request, slug, pk)
    try:
        asked = _posted_body(request, found, ScoreRequest)
        reply = score_reply(found, asked)
    except _Refused as exc:
        return exc.answer(request)
    except DataError as exc:
        return _Refused(410, "not_found", f"{in_words(exc.message)} {in_words(exc.hint)}").answer(request)
    if isinstance(reply, Pending):
        computing = {"components": reply.job.names, **reply.job.progress}
        return JsonResponse({"computing": computing}, status=202)
    return JsonResponse(reply, json_dumps_params={"allow_nan": False})


@login_required
@require_POST
def lab_rollout(request: HttpRequest, slug: str, pk: UUID, rollout: UUID) -> JsonResponse:
    """One rollout of a set with its messages, parts and the spans that earned them."""
    found = _set_of(request, slug, pk)
    try:
        reply = rollout_reply(found, rollout, _posted_body(request, found, RolloutRequest), cast(User, request.user))
    except _Refused as exc:
        return exc.answer(request)
    except DataError as exc:
        return _Refused(410, "not_found", f"{in_words(exc.message)} {in_words(exc.hint)}").answer(request)
    if reply is None:
        return _Refused(404, "not_found").answer(request)
    return JsonResponse(reply, json_dumps_params={"allow_nan": False})


def _set_of(request: HttpRequest, slug: str, pk: UUID) -> RolloutSet:
    project = project_for(request.user, slug)
    return object_for(request.user, RolloutSet, pk, within=rollout_sets_of(project))


def _posted_body(request: HttpRequest, found: RolloutSet, model: type[R]) -> R:
    """The posted body, if the set is ready and its components can score. Raises ``_Refused``."""
    if found.state != SetState.READY:
        raise _Refused(409, "conflict", _("This rollout set is not ready."))
    if int(request.META.get("CONTENT_LENGTH") or 0) > MAX_BODY_BYTES:
        raise _Refused(413, "too_large")
    try:
        asked = model.model_validate_json(request.body)
    except ShapeError as exc:
        problems = exc.errors(include_url=False, include_input=False)
        detail = {".".join(map(str, error["loc"])): _(error_sentence(error)) for error in problems[:20]}
        raise _Refused(422, "invalid", detail=detail) from exc
    wrong = {
        name: found_wrong
        for name in ("components", "against")
        if (found_wrong := _component_problems(found.project, getattr(asked, name, None)))
    }
    if wrong:
        raise _Refused(422, "invalid", " ".join(text for texts in wrong.values() for text in texts), wrong)
    return asked


def _component_problems(project: Project, components: list[RewardComponent] | None) -> list[str]:
    """Why a set cannot be scored by these. Posted code runs only if it was tested in the project."""
    if not components:
        return []
    refusal = custom_refusal(project, components)
    return [in_words(text) for text in validate_components(components)] + ([refusal] if refusal else [])
