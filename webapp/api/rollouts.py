"""The rollout inspector over the API: the filters of its page as query parameters (docs/inspector.md)."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

from django.core.exceptions import ValidationError
from django.http import HttpRequest, QueryDict
from django.utils.translation import override
from ninja import Query, Router, Status
from pydantic import Field

from webapp.api.answers import rollouts as answers
from webapp.api.base import caller
from webapp.api.idempotency import once
from webapp.api.listing import MAX_PAGE_ROWS, LongNamed, page_of
from webapp.api.schemas import Body
from webapp.common.answers import Deleted, Extended, Items, Page
from webapp.people.teams.access import object_for, project_for
from webapp.people.teams.models import Role
from webapp.reading.inspector.clusters import Clusters, clusters_of
from webapp.reading.inspector.filters import (
    CHOICES,
    MEASURES,
    MOST_VALUES,
    TEXT_MAX,
    Filters,
    Scope,
    filters_of,
    project_scope,
    run_scope,
)
from webapp.reading.inspector.finding import View, figures_of
from webapp.reading.inspector.models import SavedView
from webapp.reading.inspector.page import component_names
from webapp.reading.inspector.saving import Kept, found_save, view_delete, views_of, would_save
from webapp.runs.models import Run
from webapp.runs.rollouts.selectors import snippets

router = Router(tags=["rollouts"])


class FoundIn(Body):
    """What to save the rollouts of a view as."""

    kind: str = Field(max_length=20, description="view, demonstrations, tasks, pairs, lab or cases")
    name: str = Field(max_length=80)
    query: str = Field("", max_length=4000, description="the filters, as a query string")
    min_gap: float | None = Field(None, description="of pairs: least difference of their rewards; null: any")


def _run_scope(request: HttpRequest, run_id: UUID, need: Role = Role.VIEWER) -> Scope:
    run = object_for(caller(request), Run, run_id, need=need, within=Run.objects.select_related("project"))
    return run_scope(run.project, run)


def _project_scope(request: HttpRequest, slug: str, params: QueryDict, need: Role = Role.VIEWER) -> Scope:
    return project_scope(project_for(caller(request), slug, need=need), params.getlist("run"))


def _parse_filters(params: QueryDict) -> Filters:
    """The filters. Raises ``ValidationError`` for faults that a page only mentions."""
    filters = filters_of(params)
    if filters.problems:
        raise ValidationError(list(filters.problems))
    return filters


def _found_page(request: HttpRequest, scope: Scope, after: str, per_page: int) -> dict[str, Any]:
    view = View(scope, _parse_filters(request.GET))
    if view.searched is not None and view.searched.problem:
        raise ValidationError({"q": view.searched.problem})
    rows, following = view.page(after, max(1, min(per_page, MAX_PAGE_ROWS)))
    found_texts = snippets(rows, view.filters.text)
    query = QueryDict(mutable=True)
    for name, value in view.filters.pairs():
        query.appendlist(name, value)
    return {
        "items": [Extended(row, snippet=found_texts.get(row.pk)) for row in rows],
        "next": following or None,
        "total": view.count.number,
        "more": view.count.more,
        "query": query.urlencode(),
    }


def _spread(request: HttpRequest, scope: Scope) -> Extended:
    found = figures_of(View(scope, _parse_filters(request.GET)), list(component_names(scope)))
    listed = {kind: [{"value": v, "count": n} for v, n in values] for kind, values in found.values.items()}
    return Extended(found, outcomes=listed["outcome"], tools=listed["tool"], boundaries=listed["boundary"])


def _filter_parameters(*, of_run: bool, text: bool = False) -> dict[str, Any]:
    """The filters as the schema lists them; they are read from the address by their own table. A component's bounds
    have names of their own, so they are one object whose fields are parameters."""
    with override("en"):
        found = [_query_parameter("q", TEXT_ABOUT, {"type": "string", "maxLength": TEXT_MAX})] if text else []
        for choice in CHOICES.values():
            if of_run and choice.name == "run":
                continue
            one = {"type": "string", **({"enum": list(choice.values)} if choice.values else {})}
            shape = {"type": "array", "items": one, "maxItems": MOST_VALUES} if choice.many else one
            found.append(_query_parameter(choice.name, str(choice.help), shape))
        for measure in MEASURES.values():
            for end, words in BOUNDS.items():
                found.append(_query_parameter(f"{measure.name}_{end}", f"{measure.title}: {words}", {"type": "number"}))
    parts = {"type": "object", "propertyNames": {"pattern": PART_BOUND}, "additionalProperties": {"type": "number"}}
    about = "bounds of the value of a reward component: `part_<name>_from`, `part_<name>_to`, `part_<name>_below`"
    return {"parameters": [*found, {**_query_parameter("parts", about, parts), "style": "form", "explode": True}]}


def _query_parameter(name: str, about: str, shape: dict[str, Any]) -> dict[str, Any]:
    return {"in": "query", "name": name, "description": about, "schema": shape, "required": False}


BOUNDS = {"from": "at least", "to": "at most", "below": "less than"}
PART_BOUND = r"^part_[a-z][a-z0-9_]{0,63}_(from|to|below)$"
TEXT_ABOUT = "a phrase that a turn holds"
OF_RUN, OF_PROJECT = _filter_parameters(of_run=True), _filter_parameters(of_run=False)
TEXT_OF_RUN, TEXT_OF_PROJECT = _filter_parameters(of_run=True, text=True), _filter_parameters(of_run=False, text=True)
Text = Annotated[str, Query(max_length=TEXT_MAX, description=TEXT_ABOUT)]


@router.get("/runs/{uuid:run_id}/rollouts", response=answers.Found, openapi_extra=OF_RUN)
def run_rollouts_found(
    request: HttpRequest, run_id: UUID, q: Text = "", sort: str = "-step", after: str = "", per_page: int = 50
) -> dict[str, Any]:
    """Rollouts of a run, or of an evaluation, under the filters of docs/inspector.md."""
    return _found_page(request, _run_scope(request, run_id), after[:300], per_page)


@router.get("/projects/{slug:slug}/rollouts", response=answers.Found, openapi_extra=OF_PROJECT)
def project_rollouts_found(
    request: HttpRequest, slug: str, q: Text = "", sort: str = "-step", after: str = "", per_page: int = 50
) -> dict[str, Any]:
    """Rollouts of a project's runs: of those that `run` names, else of its newest twenty."""
    return _found_page(request, _project_scope(request, slug, request.GET), after[:300], per_page)


@router.get("/runs/{uuid:run_id}/rollouts/spread", response=answers.Spread, openapi_extra=TEXT_OF_RUN)
def run_rollouts_spread(request: HttpRequest, run_id: UUID) -> Extended:
    """Distributions of the rollouts that the same filters find: histograms, and counts of values."""
    return _spread(request, _run_scope(request, run_id))


@router.get("/projects/{slug:slug}/rollouts/spread", response=answers.Spread, openapi_extra=TEXT_OF_PROJECT)
def project_rollouts_spread(request: HttpRequest, slug: str) -> Extended:
    """As of a run."""
    return _spread(request, _project_scope(request, slug, request.GET))


def _causes(request: HttpRequest, scope: Scope) -> Clusters:
    return clusters_of(View(scope, _parse_filters(request.GET)))


@router.get("/runs/{uuid:run_id}/rollouts/causes", response=answers.Causes, openapi_extra=TEXT_OF_RUN)
def run_rollouts_causes(request: HttpRequest, run_id: UUID) -> Clusters:
    """Why rollouts that the same filters find did not solve their task, the most frequent cause first, with quotes."""
    return _causes(request, _run_scope(request, run_id))


@router.get("/projects/{slug:slug}/rollouts/causes", response=answers.Causes, openapi_extra=TEXT_OF_PROJECT)
def project_rollouts_causes(request: HttpRequest, slug: str) -> Clusters:
    """As of a run."""
    return _causes(request, _project_scope(request, slug, request.GET))


def _would_save(request: HttpRequest, scope: Scope) -> dict[str, Any]:
    return {"items": list(would_save(View(scope, _parse_filters(request.GET))).values())}


@router.get("/runs/{uuid:run_id}/rollouts/save", response=Items[answers.Would], openapi_extra=TEXT_OF_RUN)
def run_rollouts_would_save(request: HttpRequest, run_id: UUID) -> dict[str, Any]:
    """What saving the rollouts that the filters find would keep and leave out, by `kind`."""
    return _would_save(request, _run_scope(request, run_id))


@router.get("/projects/{slug:slug}/rollouts/save", response=Items[answers.Would], openapi_extra=TEXT_OF_PROJECT)
def project_rollouts_would_save(request: HttpRequest, slug: str) -> dict[str, Any]:
    """As of a run; `run` names the runs."""
    return _would_save(request, _project_scope(request, slug, request.GET))


def _save(request: HttpRequest, scope: Scope, body: FoundIn) -> Status[Kept]:
    view = View(scope, _parse_filters(QueryDict(body.query)))
    kept = found_save(view=view, kind=body.kind, name=body.name, user=caller(request), min_gap=body.min_gap)
    return Status(201, kept)


@router.post("/runs/{uuid:run_id}/rollouts/save", response={201: answers.Kept})
@once
def run_rollouts_save(request: HttpRequest, run_id: UUID, body: FoundIn) -> Status[Kept]:
    """Save what filters find: as a named view, a dataset for SFT, an evaluation set, preference pairs, a set for the
    rewards lab or reward test cases."""
    return _save(request, _run_scope(request, run_id, Role.EDITOR), body)


@router.post("/projects/{slug:slug}/rollouts/save", response={201: answers.Kept})
@once
def project_rollouts_save(request: HttpRequest, slug: str, body: FoundIn) -> Status[Kept]:
    """As of a run; `run` in `query` names the runs."""
    return _save(request, _project_scope(request, slug, QueryDict(body.query), Role.EDITOR), body)


@router.get("/projects/{slug:slug}/rollout-views", response=Page[answers.SavedView])
def rollout_views(request: HttpRequest, slug: str, asked: Query[LongNamed]) -> dict[str, Any]:
    """The named views of a project."""
    project = project_for(caller(request), slug)
    return page_of(request, views_of(Scope(project, [])), asked)


@router.delete("/rollout-views/{uuid:view_id}", response=Deleted)
def rollout_view_gone(request: HttpRequest, view_id: UUID) -> dict[str, Any]:
    """Delete a named view; rollouts and datasets stay."""
    within = SavedView.objects.select_related("project")
    found = object_for(caller(request), SavedView, view_id, need=Role.EDITOR, within=within)
    view_delete(view=found)
    return {"deleted": found.name}
