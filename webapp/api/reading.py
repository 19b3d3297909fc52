"""Reading rollouts over the API: one with its turns, and the words that earned its reward."""

from __future__ import annotations

from typing import Any, Literal
from uuid import UUID

from django.http import Http404, HttpRequest
from ninja import Router, Status
from pydantic import Field

from training.config import Policy
from webapp.api.answers import data as data_answers
from webapp.api.answers import rollouts as rollouts_module
from webapp.api.base import caller
from webapp.api.idempotency import once
from webapp.api.listing import MAX_PAGE_ROWS
from webapp.api.schemas import Body
from webapp.common.answers import Deleted, Extended, Items
from webapp.common.pages import MAX_PAGE
from webapp.datasets.models import Dataset
from webapp.engine.services import Act, rollout_order
from webapp.people.teams.access import object_for
from webapp.people.teams.models import Role
from webapp.reading import task_map as task_maps
from webapp.reading.groups import TaskRow, group_of, group_rollouts, task_row
from webapp.reading.parts import config_for, spec_of
from webapp.reading.rewinding import services
from webapp.reading.rewinding.scene import replay
from webapp.reading.selectors import PartWords, rollout_for, words_of
from webapp.reading.turns import TurnRows, tokens_view, turn_rows
from webapp.reading.views import rollout_case_save
from webapp.rewards.models import RewardCase
from webapp.runs import answers as shapes
from webapp.runs.models import Run
from webapp.runs.records.selectors import aged
from webapp.runs.rollouts.models import Rollout

router = Router(tags=["rollouts"])
groups = Router(tags=["runs"])
FIRST_TURNS = 50
MAX_TURN = 2**31 - 1
Range = list[float]


class CaseIn(Body):
    """The scores expected of the rollout: a range for the reward, for components, or both."""

    name: str = Field(min_length=1, max_length=80)
    total: Range | None = Field(default=None, min_length=2, max_length=2)
    expected: dict[str, Range] = Field(default={}, max_length=60)


class BranchIn(Body):
    """What to make of a branch, and the dataset that it is added to."""

    kind: Literal["row", "pair"]
    name: str = Field(min_length=1, max_length=80)


class ContinueIn(Body):
    """Who continues, and from which of the policy's turns."""

    turn: int = Field(ge=1, le=MAX_TURN)
    policies: list[Policy] = Field(min_length=1, max_length=6)


class ContinuationIn(Body):
    """Who continues, from which of the policy's turns, and how often."""

    contestant: str = Field(
        min_length=1, max_length=200, description="`model:<name>`, `run:<name>`, `endpoint:<name>` or `policy:<name>`"
    )
    turn: int = Field(ge=1, le=MAX_TURN)
    times: int = Field(default=services.USUAL_TIMES, ge=1, le=services.MAX_TIMES)
    temperature: float | None = Field(default=None, gt=0, le=5, description="that of the recorded run without it")


class RewindIn(Body):
    """The turn up to which it is played again."""

    turn: int | None = Field(
        default=None, ge=1, le=MAX_TURN, description="the policy's turn to stand before, from 1; all of them without it"
    )


@router.get("/rollouts/{uuid:rollout_id}", response=rollouts_module.RolloutWhole)
def rollout_get(request: HttpRequest, rollout_id: UUID) -> Extended:
    """One rollout with its outcome, the row that it played and its first turns; ask `/turns` for those from `after`."""
    rollout = rollout_for(caller(request), rollout_id)
    found = turn_rows(rollout, 0, FIRST_TURNS)
    return Extended(
        rollout, task_row=_task_row(rollout), transcript=found.turns, after=found.after, removed=found.removed
    )


def _task_row(rollout: Rollout) -> TaskRow | None:
    config = config_for(rollout)
    return task_row(rollout, config, spec_of(rollout.run, config))


@router.get("/rollouts/{uuid:rollout_id}/turns", response=rollouts_module.Turns)
def rollout_turns(request: HttpRequest, rollout_id: UUID, first: int = 0, limit: int = 50) -> TurnRows:
    """Turns of a rollout from number `first` on, up to 200, fewer where they are long."""
    rollout = rollout_for(caller(request), rollout_id)
    return turn_rows(rollout, max(0, min(first, MAX_TURN)), max(1, min(limit, MAX_PAGE_ROWS)))


@router.post("/rollouts/{uuid:rollout_id}/end", response=rollouts_module.Ordered)
def rollout_end(request: HttpRequest, rollout_id: UUID) -> dict[str, Any]:
    """End a rollout in flight (editors): it is excluded. 409 where it is not in flight, or was ordered before."""
    return _ordered(request, rollout_id, "end")


@router.post("/rollouts/{uuid:rollout_id}/fail", response=rollouts_module.Ordered)
def rollout_fail(request: HttpRequest, rollout_id: UUID) -> dict[str, Any]:
    """End a rollout in flight (editors): it counts as failed. 409 where it is not in flight, or was ordered before."""
    return _ordered(request, rollout_id, "fail")


def _ordered(request: HttpRequest, rollout_id: UUID, act: Act) -> dict[str, Any]:
    user = caller(request)
    return rollout_order(rollout=rollout_for(user, rollout_id, need=Role.EDITOR), act=act, user=user)


@router.get("/rollouts/{uuid:rollout_id}/words", response=rollouts_module.Words)
def rollout_words(request: HttpRequest, rollout_id: UUID) -> dict[str, Any]:
    """Each part of the reward with the words that earned it, computed within a few seconds from what is recorded."""
    found = words_of(rollout_for(caller(request), rollout_id), caller(request))
    return {"parts": [_with_turns(item) for item in found]}


def _with_turns(item: PartWords) -> Extended:
    """A part of the reward, and the turn of each piece of text; a message counts in the whole conversation, from 0."""
    turns = dict(enumerate(item.turns))
    spans = [Extended(span, turn=turns.get(span.message)) for span in item.spans]
    return Extended(item.part, reason=item.reason, spans=spans)


@router.get("/rollouts/{uuid:rollout_id}/tokens", response=rollouts_module.Tokens)
def rollout_tokens(request: HttpRequest, rollout_id: UUID) -> dict[str, Any]:
    """The trainer's values of each token after the prompt: log-probability, entropy, ratio, advantage."""
    return tokens_view(rollout_for(caller(request), rollout_id))


@router.post("/rollouts/{uuid:rollout_id}/case", response={201: data_answers.RewardCase})
def rollout_case(request: HttpRequest, rollout_id: UUID, body: CaseIn) -> Status[RewardCase]:
    """Save a rollout as a reward test case with the ranges that are expected of it."""
    rollout = rollout_for(caller(request), rollout_id, need=Role.EDITOR)
    case = rollout_case_save(
        rollout=rollout,
        project=rollout.run.project,
        user=caller(request),
        name=body.name,
        expected=body.expected,
        total=body.total,
    )
    return Status(201, case)


@router.post("/rollouts/{uuid:rollout_id}/rewind", response=rollouts_module.Rewound)
def rollout_rewind(request: HttpRequest, rollout_id: UUID, body: RewindIn) -> dict[str, Any]:
    """Play a rollout's turns again on its environment, and say where an answer is not the recorded one."""
    user = caller(request)
    return replay(rollout_for(user, rollout_id, need=Role.EDITOR), user, body.turn)


@router.get("/rollouts/{uuid:rollout_id}/branches", response=Items[rollouts_module.Branch])
def branch_list(request: HttpRequest, rollout_id: UUID) -> dict[str, Any]:
    """The branches of a rollout, the newest first."""
    return {"items": services.branches_of(rollout_for(caller(request), rollout_id))}


@router.post("/rollouts/{uuid:rollout_id}/branches", response={201: Items[rollouts_module.Branch]})
def branch_new(request: HttpRequest, rollout_id: UUID, body: ContinueIn) -> Status[dict[str, Any]]:
    """Let scripted policies continue from a turn of a rollout: a branch of each, scored as the rollout was."""
    user = caller(request)
    rollout = rollout_for(user, rollout_id, need=Role.EDITOR)
    made = services.rollout_continue(rollout=rollout, user=user, turn=body.turn, policies=body.policies)
    return Status(201, {"items": made})


@router.post("/rollouts/{uuid:rollout_id}/continue", response={201: shapes.RunWhole})
@once
def continuation_new(request: HttpRequest, rollout_id: UUID, body: ContinuationIn) -> Status[Run]:
    """Have a contestant continue from a turn of a rollout: a run of kind `evaluate` is queued, and its rollouts become
    branches."""
    user = caller(request)
    rollout = rollout_for(user, rollout_id, need=Role.EDITOR)
    return Status(201, aged(services.continuation_create(rollout=rollout, user=user, **body.model_dump())))


@router.post("/branches/{uuid:branch_id}/save", response={201: data_answers.Dataset})
@once
def branch_saved(request: HttpRequest, branch_id: UUID, body: BranchIn) -> Status[Dataset]:
    """Add a branch to a dataset: as a demonstration, or as a pair with the recorded rollout."""
    user = caller(request)
    branch = services.branch_for(user, branch_id, need=Role.EDITOR)
    return Status(201, services.branch_save(branch=branch, user=user, kind=body.kind, name=body.name))


@router.delete("/branches/{uuid:branch_id}", response=Deleted)
def branch_gone(request: HttpRequest, branch_id: UUID) -> dict[str, Any]:
    """Delete a branch (editors); rows that were made of it stay. 422 where a run played it: it goes with its run."""
    branch = services.branch_for(caller(request), branch_id, need=Role.EDITOR)
    services.branch_delete(branch=branch)
    return {"deleted": str(branch_id)}


@groups.get("/runs/{uuid:run_id}/steps/{int:step}/groups/{int:group}", response=rollouts_module.GroupWhole)
def group_get(request: HttpRequest, run_id: UUID, step: int, group: int) -> Extended:
    """A group: its rollouts with their advantages split by component, and its learning signal."""
    run = _run_for(request, run_id)
    rollouts = group_rollouts(run, step, group) if max(step, group) <= MAX_TURN else []
    if not rollouts:
        raise Http404
    return Extended(group_of(run, rollouts), attempt=rollouts[0].attempt, task=rollouts[0].task)


@groups.get("/runs/{uuid:run_id}/tasks", response=rollouts_module.TaskMap)
def tasks_get(
    request: HttpRequest,
    run_id: UUID,
    by: Literal["task", "category"] = "task",
    kind: task_maps.Kind | None = None,
    sort: task_maps.Sort | None = None,
    page: int = 1,
) -> Extended:
    """The task map of a run: 40 tasks a page against their visits, 60 columns at most; or categories against steps."""
    run = _run_for(request, run_id)
    at = max(1, min(page, MAX_PAGE))
    if by == "category":
        return _map_page(task_maps.category_map(run), 1)
    return _map_page(task_maps.task_map(run, kind=kind, sort=sort or task_maps.usual_sort(kind), page=at), at)


def _map_page(found: task_maps.TaskMap, page: int) -> Extended:
    columns = [{"first": first, "last": last} for first, last in found.columns]
    pages = max(1, -(-found.total // task_maps.PER_PAGE))
    return Extended(found, columns=columns, items=[_with_cells(line) for line in found.lines], page=page, pages=pages)


def _with_cells(line: task_maps.Line) -> Extended:
    """A line of the map with the facts of its task; a category has none."""
    facts = line.task or dict.fromkeys(rollouts_module.MapLine.model_fields)
    cells = [Extended(box, column=column) for column, box in enumerate(line.boxes) if box is not None]
    return Extended(facts, text=line.text, category=line.category, cells=cells)


def _run_for(request: HttpRequest, run_id: UUID) -> Run:
    return object_for(caller(request), Run, run_id, within=Run.objects.select_related("project"))
