"""Runs over the API, the axes of their curves, and their events: at once, when there is news, or as a stream."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, Literal, NamedTuple
from uuid import UUID

from django.core.exceptions import PermissionDenied, ValidationError
from django.core.handlers.asgi import ASGIRequest
from django.db import transaction
from django.http import Http404, HttpRequest, HttpResponse
from django.utils import translation
from django.utils.translation import gettext as _
from ninja import Header, Query, Router, Status
from ninja.errors import AuthenticationError, HttpError
from pydantic import Field

from training.config import JobConfig, name_in
from training.errors import ConfigError
from training.rewards.scoring import form_components
from webapp.api.answers import people as people_answers
from webapp.api.answers import runs as answers
from webapp.api.answers import runs as runs_answers
from webapp.api.base import IfMatch, Tagged, api, caller, held, open_to, require_match
from webapp.api.idempotency import key_of, once
from webapp.api.listing import MAX_PAGE_ROWS, LongNamed, Named, matching, page_of, part_of
from webapp.api.schemas import Body, ConfigIn, QueueIn, RunIn, RunPatch, StarIn
from webapp.common.answers import Extended, Items, Page
from webapp.common.errors import MESSAGES
from webapp.common.pages import bearer, errors_by_field
from webapp.common.serving import Later
from webapp.engine.services import (
    Ahead,
    can_resume,
    role_to_launch,
    run_create,
    run_pause,
    run_queue_change,
    run_resume,
    run_stop,
)
from webapp.evaluation.comparison.figures import same_rewards
from webapp.launch.findings import YamlProblem, config_from_text
from webapp.launch.preflight import preflight
from webapp.live.consumers import user_now
from webapp.live.waiting import WAIT_MAX_S, Question, one_answer, stream
from webapp.people.teams.access import can_edit, object_for, project_for, projects_of, token_of
from webapp.people.teams.models import Project, Role, TokenScope, User
from webapp.people.teams.sudo import Act, ask
from webapp.people.teams.tokens import token_user
from webapp.results.summary import ENDED, summary_read
from webapp.runs import answers as shapes
from webapp.runs.advisories.selectors import advisories_of, diagnosis_view
from webapp.runs.config import all_components, config_of
from webapp.runs.metrics.devices import STEPS, answer_of, devices_of
from webapp.runs.metrics.models import DeviceStep
from webapp.runs.metrics.selectors import curves, metric_names
from webapp.runs.models import Run
from webapp.runs.records.listing import UNREAD, run_lines, runs_sorted
from webapp.runs.records.marks import ARCHIVABLE, run_label, run_star, runs_archive, runs_tag, tags_of
from webapp.runs.records.queue import read_queue
from webapp.runs.records.queue_words import queue_answer
from webapp.runs.records.selectors import aged, run_axes, run_events_after, runs_with_ages
from webapp.runs.removal.services import remove
from webapp.runs.rollouts.selectors import newest_of_step, step_rollouts
from webapp.runs.states import Priority, RunState

router = Router(tags=["runs"])
MAX_METRICS = 100
Step = Annotated[int, Query(ge=0, le=2**31 - 1)]


def _run_for(request: HttpRequest, run_id: UUID, need: Role = Role.VIEWER) -> Run:
    within = runs_with_ages().select_related("project", "after")
    return object_for(caller(request), Run, run_id, need=need, within=within)


@router.get(
    "/projects",
    tags=["projects"],
    response=Page[people_answers.Project],
    auth=open_to(TokenScope.METRICS, TokenScope.INGEST),
)
def projects_list(request: HttpRequest, asked: Query[LongNamed]) -> dict[str, Any]:
    """The projects that you may see."""
    return page_of(request, projects_of(caller(request)), asked)


@router.get(
    "/projects/{slug:slug}",
    tags=["projects"],
    response=people_answers.ProjectWithRole,
    auth=open_to(TokenScope.METRICS),
)
def project_get(request: HttpRequest, slug: str) -> Extended:
    """One project and your role in it."""
    project = project_for(caller(request), slug)
    return Extended(project, role=str(getattr(project, "role", "")))


@router.get("/projects/{slug:slug}/runs", response=Page[shapes.RunLine], auth=open_to(TokenScope.METRICS))
def runs_list(
    request: HttpRequest,
    slug: str,
    asked: Query[Named],
    state: str = "",
    kind: str = "",
    owner: str = "",
    tag: Annotated[list[str] | None, Query(max_length=20)] = None,
    spec: str = "",
    sweep: str = "",
    starred: bool = False,
    archived: bool = False,
    sort: str = "-created",
) -> dict[str, Any]:
    """Runs of a project, newest first: those that are not archived, or only those that are."""
    project = project_for(caller(request), slug)
    filters: dict[str, Any] = {
        "state": state,
        "kind": kind,
        "owner": owner,
        "tags": tag,
        "spec": name_in("reward", spec),
        "sweep": sweep,
        "starred": starred,
        "archived": archived,
    }
    rows = runs_sorted(project, filters, sort[:40], user=caller(request))
    part = part_of(request, matching(rows.only("pk"), asked, text=("name", "notes")), asked)
    lines = run_lines([run.pk for run in part.rows], user=caller(request), trends=False)
    sees = _seen_by(request) if any(line.queue for line in lines) else set()
    return part.body(Extended(line.run, **{**vars(line), "queue": queue_answer(line.queue, sees)}) for line in lines)


@router.post("/projects/{slug:slug}/runs", response={201: shapes.RunWhole})
@once
def run_new(request: HttpRequest, slug: str, body: RunIn) -> Status[Run]:
    """Create a run and, unless `launch` is false, queue it. As long as the run is there, the same idempotency key
    returns it, for every member of the project."""
    project = project_for(caller(request), slug, need=role_to_launch(body.priority))
    config = config_sent(body)
    if body.launch:
        require_possible(project, config)
    run = run_create(
        project=project,
        user=caller(request),
        name=body.name,
        config=config,
        launch=body.launch,
        idempotency_key=key_of(request, body),
        priority=body.priority,
    )
    return Status(201, aged(run))


def require_possible(project: Project, config: JobConfig) -> None:
    """The fast checks before a launch; a hard one that fails raises ``ConfigError`` with its option."""
    for check in preflight(project, config, full=False).checks:
        if check.hard and not check.ok:
            raise ConfigError(check.sentence, option=check.path, hint=check.hint)


def config_sent(body: ConfigIn) -> JobConfig:
    """The config that a body has as an object or as YAML. Raises ``ConfigError``."""
    if body.yaml is not None and body.config is not None:
        raise ConfigError("Send `config` or `yaml`, not both.")
    if body.yaml is None:
        return JobConfig.model_validate(body.config or {})
    try:
        return config_from_text(body.yaml)
    except YamlProblem as exc:
        first = exc.problems[0]
        hint = f"line {first.line}" if first.line else ""
        raise ConfigError(first.message, option=first.path, hint=hint) from exc


@router.get("/runs/{uuid:run_id}", response=shapes.RunWhole, auth=open_to(TokenScope.METRICS))
def run_get(request: HttpRequest, run_id: UUID) -> Tagged:
    """One run with its config. `ETag` is that of its tags, its notes and whether it is archived."""
    run = _run_for(request, run_id)
    queued = read_queue().queued(run.pk) if run.state == RunState.QUEUED else None
    return Tagged(Extended(run, queue=queue_answer(queued, _seen_by(request))), _tagged_values(run))


def _seen_by(request: HttpRequest) -> set[UUID]:
    """The projects whose runs the caller may see."""
    return set(projects_of(caller(request)).values_list("pk", flat=True))


@router.patch("/runs/{uuid:run_id}", response=shapes.Run)
def run_patch(request: HttpRequest, run_id: UUID, body: RunPatch, if_match: IfMatch = None) -> Tagged:
    """Change people's marks on a run: its tags, its notes, whether it is archived (409 while it has not ended)."""
    found = _run_for(request, run_id, Role.EDITOR)
    with transaction.atomic():
        run = held(found)
        require_match(if_match, _tagged_values(run))
        if body.archived and run.state not in ARCHIVABLE:
            raise HttpError(409, _("A run that has not ended cannot be archived."))
        run_label(run=run, user=caller(request), tags=body.tags, notes=body.notes)
        if body.archived is not None:
            runs_archive(runs=[run], user=caller(request), on=body.archived)
    run = _run_for(request, run_id)
    return Tagged(run, _tagged_values(run))


def _tagged_values(run: Run) -> list[Any]:
    return [run.tags, run.notes, run.archived_at is not None]


@router.post("/runs/{uuid:run_id}/star", response=runs_answers.Starred)
def run_star_set(request: HttpRequest, run_id: UUID, body: StarIn) -> dict[str, Any]:
    """Put your star on a run, or with `starred: false` take it away; only you see it."""
    run_star(run=_run_for(request, run_id), user=caller(request), on=body.starred)
    return {"starred": body.starred}


@router.post("/runs/{uuid:run_id}/stop", response=shapes.Run)
def run_stop_now(request: HttpRequest, run_id: UUID) -> Run:
    """Stop a run; stopping one that has ended changes nothing."""
    run = _run_for(request, run_id, Role.EDITOR)
    return aged(run_stop(run=run, user=caller(request)))


@router.post("/runs/{uuid:run_id}/pause", response=shapes.Run)
def run_pause_now(request: HttpRequest, run_id: UUID) -> Run:
    """Pause a run that is at work: it saves and gives its device back. Any other run stays as it is."""
    run = _run_for(request, run_id, Role.EDITOR)
    return aged(run_pause(run=run, user=caller(request)))


@router.post("/runs/{uuid:run_id}/resume", response=shapes.Run)
@once
def run_resume_now(request: HttpRequest, run_id: UUID) -> Run:
    """Queue a run again that was paused or ended, from its newest whole checkpoint; 409 where it has none."""
    run = _run_for(request, run_id, Role.EDITOR)
    if not can_resume(run):
        raise HttpError(409, _("This run cannot be resumed."))
    return aged(run_resume(run=run, user=caller(request)))


@router.patch("/runs/{uuid:run_id}/queue", response=shapes.Run)
def run_queue(request: HttpRequest, run_id: UUID, body: QueueIn) -> Run:
    """Hold or release a waiting run, change its class, or put it first (owners; 409 unless it is queued)."""
    run = _run_for(request, run_id, Role.OWNER)
    change = Ahead(priority=body.priority, on_hold=body.on_hold, first=body.first)
    return aged(run_queue_change(run=run, user=caller(request), change=change))


@router.get("/runs/{uuid:run_id}/advisories", response=Items[runs_answers.Advisory], auth=open_to(TokenScope.METRICS))
def run_advisories(request: HttpRequest, run_id: UUID) -> dict[str, Any]:
    """The advisories of a run: open ones first, of these the gravest, then the newest; 50 at most."""
    return {"items": advisories_of(_run_for(request, run_id))}


@router.get("/runs/{uuid:run_id}/devices", response=runs_answers.Devices, auth=open_to(TokenScope.METRICS))
def run_devices(
    request: HttpRequest, run_id: UUID, last: Annotated[int, Query(ge=1, le=DeviceStep.KEPT)] = STEPS
) -> dict[str, Any]:
    """What each training device of a run did over its `last` steps: phases, and what NVML measured meanwhile."""
    found = devices_of(_run_for(request, run_id), last)
    if found is None:
        return {"answer": "", "worked": None, "devices": []}
    return {"answer": answer_of(found), "worked": found.worked, "devices": found.devices}


@router.get("/runs/{uuid:run_id}/summary", response=runs_answers.RunSummary, auth=open_to(TokenScope.METRICS))
def run_summary(request: HttpRequest, run_id: UUID) -> Extended:
    """The summary of a run: its change, best step, held-out result, cost, model, and what to try next."""
    run = _run_for(request, run_id)
    editor = can_edit(project_for(caller(request), run.project.slug))
    found = summary_read(run, editor=editor)
    model = found.made and {
        "id": found.made.model.pk if found.made.model else None,
        "name": found.made.model.name if found.made.model else "",
        "checkpoint": found.made.checkpoint,
    }
    advisories = {"open": len(found.advisories), "worst": next(iter(found.advisories), None)}
    about = {"id": run.pk, "state": run.state, "ended": run.state in ENDED, "diagnosis": diagnosis_view(run)}
    return Extended(found, model=model, advisories=advisories, **about)


@router.get("/runs/{uuid:run_id}/metrics", response=runs_answers.Curves, auth=open_to(TokenScope.METRICS))
def run_metrics(
    request: HttpRequest,
    run_id: UUID,
    name: Annotated[list[str] | None, Query(max_length=MAX_METRICS)] = None,
    points: int = 500,
    first: Step | None = None,
    last: Step | None = None,
) -> dict[str, Any]:
    """Curves, thinned to about `points` points each; all of them unless `name` is given, which may be repeated. With
    `first` and `last` only what lies between these steps: ask again for a closer look."""
    run = _run_for(request, run_id)
    clean = [item.replace("\x00", "")[:120] for item in name or []]
    names = clean or metric_names(run)[:MAX_METRICS]
    return {"curves": curves(run, names, max(2, min(points, 2000)), (first, last))}


@router.get("/runs/{uuid:run_id}/steps/{int:step}/rollouts", response=shapes.Rollouts)
def run_rollouts(request: HttpRequest, run_id: UUID, step: int, page: int = 1, per_page: int = 50) -> dict[str, Any]:
    """Rollouts of one step with their turns, a page at a time."""
    run = _run_for(request, run_id)
    step, page, size = min(step, 2**31 - 1), max(1, page), max(1, min(per_page, MAX_PAGE_ROWS))
    total = newest_of_step(run, step).count()
    first = min((page - 1) * size, total)
    found = step_rollouts(run, step, slice(first, first + size))
    return found | {"items": found["rollouts"], "page": page, "pages": max(1, -(-total // size)), "total": total}


# Axes of a run's curves other than steps, and whether its rewards may be compared with another run's.


@router.get("/runs/{uuid:run_id}/axes", response=answers.RunAxes, auth=open_to(TokenScope.METRICS))
def run_axes_of(request: HttpRequest, run_id: UUID, beside: UUID | None = None) -> dict[str, Any]:
    """Hours, rollouts and tokens that a run had used at the end of its steps. With `beside`, another run of the
    project, `same_rewards` says whether the rewards of both were made in the same way: else their curves must not be
    compared."""
    run = object_for(request.user, Run, run_id)
    same_project = Run.objects.filter(project=run.project_id)
    other = None if beside is None else object_for(request.user, Run, beside, within=same_project)
    return {
        "id": run.pk,
        "name": run.name,
        "state": run.state,
        "axes": run_axes(run),
        "same_rewards": None if other is None else _rewarded_alike(run, other),
    }


def _rewarded_alike(run: Run, other: Run) -> bool:
    """False where that is not known: for a run that another trainer made, or whose config can no longer be read."""
    configs = [None if each.imported_from else config_of(each) for each in (run, other)]
    parts = [all_components(config) or form_components() for config in configs if config is not None]
    return len(parts) == 2 and same_rewards(*parts)


# The events of a run, for scripts: at once, when there is news, or as a stream.

SSE = "text/event-stream"
STREAM = {"content": {SSE: {"schema": {"type": "string", "description": "`id`: the event's seq, `data`: the event"}}}}
Wait = Annotated[int, Query(ge=0, le=WAIT_MAX_S, description="seconds to wait for an event")]
KnownStep = Annotated[
    int | None, Query(ge=0, le=2**31 - 1, description="the step that you know: another one ends the wait")
]
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
    step: KnownStep = None,
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


# Many runs at once over the API: what the list of runs does with those that were chosen, and deleting them.
#
# Each run has its own result, by the functions that act on one of them: a run that cannot be changed does not stop the
# others.

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
