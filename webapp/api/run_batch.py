"""Many runs at once over the API: what the list of runs does with those that were chosen, and deleting them.

Each run has its own result, by the functions that act on one of them: a run that cannot be changed does not stop the
others.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple
from uuid import UUID

from django.core.exceptions import ValidationError
from django.http import HttpRequest
from django.utils.translation import gettext as _
from ninja import Router
from pydantic import Field

from webapp.api.answers import runs as runs_answers
from webapp.api.base import caller
from webapp.api.idempotency import once
from webapp.api.schemas import Body
from webapp.common.answers import Extended
from webapp.common.errors import MESSAGES
from webapp.common.pages import errors_by_field
from webapp.engine.services import Ahead, run_queue_change
from webapp.people.teams.access import project_for
from webapp.people.teams.models import Role, User
from webapp.people.teams.sudo import Act, ask
from webapp.runs.models import Run
from webapp.runs.records.listing import UNREAD
from webapp.runs.records.marks import runs_archive, runs_tag, tags_of
from webapp.runs.removal.services import remove
from webapp.runs.states import Priority

router = Router(tags=["runs"])
MOST = 200


class BatchIn(Body):
    """An act on runs. `add` and `remove` are tags, for the act `tag` only; `priority` is a class, only for the act
    `priority`."""

    act: Literal["tag", "archive", "restore", "hold", "release", "priority", "delete"]
    runs: list[UUID] = Field(min_length=1, max_length=MOST, description="ids; each counts once")
    add: list[str] = Field(default_factory=list, max_length=20)
    remove: list[str] = Field(default_factory=list, max_length=20)
    priority: Priority | None = None

    @property
    def ahead(self) -> Ahead | None:
        """The change of their places in the queue, where the act is one."""
        changes = {"hold": Ahead(on_hold=True), "release": Ahead(on_hold=False), "priority": Ahead(self.priority)}
        return changes.get(self.act)


class Result(NamedTuple):
    """The outcome for one run."""

    ok: bool = True
    code: str | None = None
    message: str | None = None


@router.post("/projects/{slug:slug}/runs/batch", response=runs_answers.Batch)
@once
def runs_batch(request: HttpRequest, slug: str, body: BatchIn) -> dict[str, Any]:
    """Tag, archive or restore up to 200 runs; as an owner hold, release or delete them, or give them another class.
    Each has its result in `items`, in the order of `runs`: `not_found` for an id that is not a run of the project,
    `conflict` for one whose state or use forbids it."""
    owners = body.act == "delete" or body.ahead is not None
    project = project_for(caller(request), slug, need=Role.OWNER if owners else Role.EDITOR)
    _require_fitting(body)
    if body.act == "delete":
        ask(request, Act.DELETE_RUN)
    ids = list(dict.fromkeys(body.runs))
    chosen = project.runs.filter(pk__in=ids).select_related("project").defer(*UNREAD)
    # In a fixed order, not the caller's: so two batches never wait for each other's runs.
    results = {run.pk: _act_on_run(run, body, caller(request)) for run in chosen.order_by("pk")}
    missing = Result(False, "not_found", _(MESSAGES["not_found"]))
    items = [Extended(results.get(pk, missing), id=pk) for pk in ids]
    return {"items": items, "done": sum(result.ok for result in results.values())}


def _require_fitting(body: BatchIn) -> None:
    """Refuse tags or a class that are missing, or that another act does not use. Raises ``ValidationError``."""
    if body.act != "tag" and (body.add or body.remove):
        raise ValidationError({"act": _("Tags are allowed only with the act `tag`.")})
    if body.act == "tag" and not (tags_of(body.add) or tags_of(body.remove)):
        raise ValidationError({"add": _("Name a tag to add or to remove.")})
    if (body.act == "priority") != (body.priority is not None):
        raise ValidationError({"priority": _("The act `priority` needs a class, and no other act takes one.")})


def _act_on_run(run: Run, body: BatchIn, user: User) -> Result:
    try:
        if body.act == "tag":
            runs_tag(runs=[run], user=user, add=body.add, remove=body.remove)
        elif body.ahead is not None:
            run_queue_change(run=run, user=user, change=body.ahead)
        elif body.act == "delete":
            remove(run)
        elif body.act == "restore":
            runs_archive(runs=[run], user=user, on=False)
        elif not runs_archive(runs=[run], user=user).done and run.archived_at is None:
            raise ValidationError(_("A run that has not ended cannot be archived."), code="conflict")
    except ValidationError as exc:
        text = " ".join(text for texts in errors_by_field(exc).values() for text in texts)
        return Result(False, "conflict" if getattr(exc, "code", "") == "conflict" else "invalid", text)
    return Result()
