"""A call that is sent twice is done once: the header ``Idempotency-Key``.

A script whose connection broke does not know whether its call arrived. The same call under the same key gets the first
answer again.

1. What a call does and its answer are written in one transaction: after a crash at any point, both are there or
   neither.
2. Of two at once the second gets 409 ``in_progress`` immediately: an advisory lock of that transaction is taken.
3. The same key with something else in it is a 422 ``key_reused``: only a keyed hash of what was sent is kept.
4. A refusal is not kept. Nothing was done, so the same key may try again.

Keys belong to a person, a project and an operation. A person who may no longer see the project gets 404, as everywhere.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import json
from collections.abc import Callable
from typing import Any, NamedTuple, cast

from django.core.files.uploadedfile import UploadedFile
from django.db import connection, transaction
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.utils.crypto import salted_hmac
from ninja import Header
from ninja.utils import contribute_operation_args
from pydantic import BaseModel

from webapp.api.base import api, as_response, caller, failed
from webapp.api.models import KEY_CHARS, KeptAnswer
from webapp.chat.models import Chat
from webapp.datasets.models import Dataset
from webapp.environments.models import Environment
from webapp.evaluation.sharing.models import SavedComparison
from webapp.evaluation.suites.models import Suite
from webapp.people.teams.access import object_for, project_for
from webapp.people.teams.models import Project, User
from webapp.reading.rewinding.services import branch_for
from webapp.reading.selectors import rollout_for
from webapp.runs.models import Run
from webapp.runs.registry.models import RegisteredModel

AGAIN_S = 1  # after which a call that waits for the first one may try again
HEADER, ARGUMENT = "Idempotency-Key", "idempotency_key"
REPLAYED = "Idempotency-Replayed"
KEY = Header(
    default=None,
    alias=HEADER,
    min_length=1,
    max_length=KEY_CHARS,
    description="sent again under the same key, the call is done once and gets the same answer; fresh for each call",
)
View = Callable[..., Any]
PLACES: dict[str, Callable[[User, Any], Project]] = {
    "slug": project_for,
    "rollout_id": lambda user, pk: rollout_for(user, pk).run.project,
    "branch_id": lambda user, pk: branch_for(user, pk).rollout.run.project,
} | {
    name: lambda user, pk, model=model: object_for(user, model, pk).project  # type: ignore[misc]
    for name, model in {
        "chat_id": Chat,
        "comparison_id": SavedComparison,
        "dataset_id": Dataset,
        "environment_id": Environment,
        "model_id": RegisteredModel,
        "run_id": Run,
        "suite_id": Suite,
    }.items()
}
"""The parameters of an address that lead to a project, each with a function that returns it, if the person may see
it."""


class KeyRefused(Exception):
    """The key belongs to a call that is not done yet, or to another one."""

    def __init__(self, status: int, code: str) -> None:
        super().__init__(code)
        self.status, self.code = status, code


class Call(NamedTuple):
    """One call under a key: whose, where, what, and the hash of what was sent."""

    user: User
    project: Project
    operation: str
    key: str
    digest: str


@api.exception_handler(KeyRefused)
def _answer_refused(request: HttpRequest, exc: KeyRefused) -> HttpResponse:
    answer = failed(request, exc.status, code=exc.code)
    if exc.status == 409:
        answer["Retry-After"] = str(AGAIN_S)
    return answer


def once(view: View) -> View:
    """Let an operation take the header: what is sent twice under one key is done once. Put it below the router's own
    decorator."""

    @functools.wraps(view)
    def answer(request: HttpRequest, **sent: Any) -> Any:
        sent.pop(ARGUMENT)
        key = key_of(request, sent.get("body"))
        if not key:
            return view(request, **sent)
        call = Call(caller(request), _project_of_call(request, sent), view.__name__, key, _call_digest(request, sent))
        return _done_once(call, lambda: as_response(request, answer, view(request, **sent)))

    # ninja evaluates the annotations in this module, which does not have their names.
    answer.__signature__ = inspect.signature(view, eval_str=True)  # type: ignore[attr-defined]
    contribute_operation_args(answer, ARGUMENT, cast(type, str | None), KEY)
    return answer


def key_of(request: HttpRequest, body: Any = None) -> str:
    """The key of a call: of its body, where that has a field for it, else of the header; empty where there is none."""
    return getattr(body, ARGUMENT, None) or request.headers.get(HEADER, "")


def _done_once(call: Call, do: Callable[[], HttpResponseBase]) -> HttpResponseBase:
    with transaction.atomic():
        _lock_key(call)
        same = {"user": call.user, "project": call.project, "operation": call.operation, "key": call.key}
        kept = KeptAnswer.objects.filter(**same).first()
        if kept is not None:
            return _replay(kept, call.digest)
        made = cast(HttpResponse, do())
        KeptAnswer.objects.create(**same, digest=call.digest, status=made.status_code, body=made.content.decode())
        return made


def _lock_key(call: Call) -> None:
    """Lock this key until the transaction ends. Raises ``KeyRefused`` where another call has it."""
    name = "\0".join(map(str, (call.user.pk, call.project.pk, call.operation, call.key)))
    number = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], signed=True)
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_xact_lock(%s)", [number])
        if not cursor.fetchone()[0]:
            raise KeyRefused(409, "in_progress")


def _replay(kept: KeptAnswer, digest: str) -> HttpResponse:
    if kept.digest != digest:
        raise KeyRefused(422, "key_reused")
    headers = {REPLAYED: "true"}
    return HttpResponse(kept.body, status=kept.status, content_type=api.get_content_type(), headers=headers)


def _project_of_call(request: HttpRequest, sent: dict[str, Any]) -> Project:
    """The project of a call. Raises ``Http404`` for a person who may not see it."""
    name = next(name for name in PLACES if name in sent)
    return PLACES[name](caller(request), sent[name])


def _call_digest(request: HttpRequest, sent: dict[str, Any]) -> str:
    """A keyed hash: a plain one of a body with a short secret could be found by trying."""
    values = {name: _json_value(value) for name, value in sent.items() if name not in request.FILES}
    files = {name: [_name_and_hash(file) for file in request.FILES.getlist(name)] for name in request.FILES}
    text = json.dumps([values, files], sort_keys=True, default=str)
    return salted_hmac(__name__, text, algorithm="sha256").hexdigest()


def _json_value(value: Any) -> Any:
    return value.model_dump(mode="json", exclude={ARGUMENT}) if isinstance(value, BaseModel) else value


def _name_and_hash(file: UploadedFile) -> list[Any]:
    digest = hashlib.sha256()
    for piece in file.chunks():
        digest.update(piece)
    file.seek(0)
    return [file.name, digest.hexdigest()]
