"""The events of a run, for scripts: at once, when there is news, or as a stream."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any
from uuid import UUID

from django.core.exceptions import PermissionDenied
from django.core.handlers.asgi import ASGIRequest
from django.http import Http404, HttpRequest, HttpResponse
from django.utils import translation
from ninja import Header, Query, Router
from ninja.errors import AuthenticationError

from webapp.api.base import api, caller, open_to
from webapp.api.listing import MAX_PAGE_ROWS
from webapp.common.pages import bearer
from webapp.common.serving import Later
from webapp.live.consumers import user_now
from webapp.live.waiting import WAIT_MAX_S, Question, one_answer, stream
from webapp.people.teams.access import object_for, token_of
from webapp.people.teams.models import TokenScope
from webapp.people.teams.tokens import token_user
from webapp.runs import answers as shapes
from webapp.runs.models import Run
from webapp.runs.records.selectors import run_events_after, runs_with_ages

router = Router(tags=["runs"])
SSE = "text/event-stream"
STREAM = {"content": {SSE: {"schema": {"type": "string", "description": "`id`: the event's seq, `data`: the event"}}}}
Wait = Annotated[int, Query(ge=0, le=WAIT_MAX_S, description="seconds to wait for an event")]
Step = Annotated[int | None, Query(ge=0, le=2**31 - 1, description="the step that you know: another one ends the wait")]
LastEvent = Annotated[int | None, Header(alias="Last-Event-ID", description="of a stream: in place of `after`")]


@router.get(
    "/runs/{uuid:run_id}/events",
    response=shapes.Events,
    openapi_extra={"responses": {200: STREAM}},
    auth=open_to(TokenScope.METRICS),
)
def run_events(
    request: HttpRequest,
    run_id: UUID,
    after: int = 0,
    limit: int = 100,
    wait: Wait = 0,
    step: Step = None,
    last_event_id: LastEvent = None,
) -> dict[str, Any] | HttpResponse:
    """The events of a run after a `seq`; ask again with `after` of the answer for more. With `wait` it answers as
    soon as there is something. `Accept: text/event-stream` asks for a stream that continues until the run has ended."""
    run = object_for(caller(request), Run, run_id, within=runs_with_ages().select_related("project", "after"))
    size, streamed = max(1, min(limit, MAX_PAGE_ROWS)), SSE in request.headers.get("Accept", "")
    since = last_event_id if streamed and last_event_id is not None else after
    found = run_events_after(run, since, size)
    has_news = found["items"] or found["ended"] or step not in (None, run.step)
    if not isinstance(request, ASGIRequest) or not (streamed or (wait and not has_news)):
        return found
    place = max(-1, min(since, run.seq))
    known = None if streamed else step  # a stream has events alone
    may = partial(_refusal_answer, request, run.pk)
    question = Question(caller(request).pk, run.pk, place, size, known, translation.get_language(), may)
    coming = partial(stream, request, question) if streamed else partial(one_answer, request, question, wait)
    return Later(request, coming)


def _refusal_answer(request: HttpRequest, run_id: UUID) -> HttpResponse | None:
    """The answer if the person of the request may not see the run now; ``None`` where they may."""
    with translation.override(getattr(request, "LANGUAGE_CODE", None)):  # this is another thread than the request's
        try:
            if token_of(request.user) is not None:
                user: Any = token_user(bearer(request))
            else:
                user = user_now({"session": request.session})
            if user is None or not user.is_authenticated:
                raise AuthenticationError
            object_for(user, Run, run_id, within=Run.objects.select_related("project"))
        except (AuthenticationError, Http404, PermissionDenied) as exc:
            return api.on_exception(request, exc)
    return None
