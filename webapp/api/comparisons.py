"""Comparisons over the API, and those that are saved, with their comments and links."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

from django.core.exceptions import PermissionDenied
from django.http import HttpRequest
from django.urls import reverse
from django.utils.translation import gettext as _
from ninja import Query, Router, Status
from pydantic import Field

from webapp.api.answers import comparing as comparing_answers
from webapp.api.base import caller
from webapp.api.idempotency import once
from webapp.api.listing import Dated, LongDated, Named, matching, page_of, part_of
from webapp.api.schemas import Body
from webapp.common.answers import Deleted, Extended, Page, Revoked
from webapp.evaluation.comparison.contestants import contestants_of
from webapp.evaluation.comparison.rewards import evaluations, offer_of, rescore
from webapp.evaluation.comparison.verdicts import conclusions
from webapp.evaluation.rescoring.models import Rescoring
from webapp.evaluation.rescoring.services import rescoring_cancel
from webapp.evaluation.sharing import services
from webapp.evaluation.sharing.models import Comment, SavedComparison, SharedLink
from webapp.people.teams.access import object_for, project_for
from webapp.people.teams.models import Role
from webapp.people.teams.sudo import Act, ask

router = Router(tags=["comparisons"])


@router.get("/projects/{slug:slug}/compare", response=comparing_answers.Comparison)
def compare(
    request: HttpRequest, slug: str, c: Annotated[list[str] | None, Query(max_length=100)] = None, spec: str = ""
) -> dict[str, Any]:
    """Evaluations, and runs that train by the tasks that they held out, side by side.

    `c` names runs, and may be repeated; `spec` is what rewards are weighed by.

    `answer` says in one sentence which is better, as the page does, and what that leaves out. `figures` are those of
    the page, each `{value, low, high, tasks}`; rewards only where one spec gave or weighed all.
    `lacking` names the components of `spec` that an evaluation has not recorded: what of them was computed, what lacks
    and why; `to_score` says what `POST …/compare/rescore` would do about it.
    """
    project = project_for(caller(request), slug)
    contestants, notes = contestants_of(project, c or [])
    read = evaluations(project, contestants, spec)
    headline, verdicts = conclusions(contestants, read)
    answer: dict[str, Any] = {"answer": headline, "notes": notes, "specs_differ": False, "items": []}
    answer |= {"verdicts": verdicts, "lacking": [], "to_score": None}
    if read is None:
        return answer
    playing, numbers, rewards = read
    answer["specs_differ"] = rewards.differ
    for item, sheet, intervals in zip(playing, numbers.sheets, numbers.intervals, strict=True):
        figures = {name: found for name, found in intervals.items() if name != "reward" or rewards.comparable}
        left_out = {"tasks": len(sheet.tasks), "missing_tasks": sheet.missing, "excluded": int(sheet.excluded.sum())}
        answer["items"].append(Extended(item.run, figures=figures, **left_out))
    lacking = zip(playing, numbers.lacks, strict=True)
    answer["lacking"] = [Extended(lacks, id=item.run.pk) for item, lacks in lacking if lacks.by_name]
    answer["to_score"] = offer_of(project, read)
    return answer


class RescoreIn(Body):
    """Evaluations whose recorded rollouts are to be scored by a spec."""

    runs: list[str] = Field(max_length=100, description="ids of one to eight evaluations of the project")
    spec: str = Field(max_length=200, description="a run's id or reward:name@version")
    confirmed: bool = Field(default=False, description="needed where judges or models are asked, which may cost money")


def _rescoring_for(request: HttpRequest, pk: UUID, need: Role = Role.VIEWER) -> Rescoring:
    within = Rescoring.objects.select_related("project__team", "created_by")
    return object_for(caller(request), Rescoring, pk, need=need, within=within)


@router.post("/projects/{slug:slug}/compare/rescore", response={201: comparing_answers.Rescoring})
@once
def compare_rescore(request: HttpRequest, slug: str, body: RescoreIn) -> Status[Rescoring]:
    """Have what the evaluations have not recorded of a spec computed from their transcripts. A scoring that is open
    already is returned. 409 where nothing is left to score, 422 with the sentence where judges must be confirmed."""
    project = project_for(caller(request), slug, need=Role.EDITOR)
    made = rescore(project=project, user=caller(request), runs=body.runs, spec=body.spec, confirmed=body.confirmed)
    return Status(201, made)


@router.get("/rescorings/{uuid:rescoring_id}", response=comparing_answers.Rescoring)
def rescoring_get(request: HttpRequest, rescoring_id: UUID) -> Rescoring:
    """How far the scoring of recorded rollouts is."""
    return _rescoring_for(request, rescoring_id)


@router.post("/rescorings/{uuid:rescoring_id}/cancel", response=comparing_answers.Rescoring)
def rescoring_end(request: HttpRequest, rescoring_id: UUID) -> Rescoring:
    """Cancel it; what was scored until then is kept. One that has ended is returned unchanged."""
    rescoring = _rescoring_for(request, rescoring_id, Role.EDITOR)
    rescoring_cancel(rescoring=rescoring, user=caller(request))
    return rescoring


saved = Router(tags=["saved comparisons"])

# Saved comparisons, their comments and their links over the API.

SAVED = SavedComparison.objects.select_related("project__team", "created_by")
LINKS = SharedLink.objects.select_related("comparison__project", "created_by")
COMMENTS = Comment.objects.select_related("comparison__project", "created_by")


class ComparisonIn(Body):
    """A comparison to save: its runs in their order, and how it is shown."""

    name: str = Field(min_length=1, max_length=80)
    runs: list[str] = Field(max_length=100, description="ids of two to eight runs of the project")
    spec: str = Field(default="", max_length=200, description="a run's id or reward:name that weighs all rewards")
    pair: list[str] = Field(default_factory=list, max_length=2, description="the two whose tasks are listed first")
    tasks: str = Field(default="", max_length=20)
    category: str = Field(default="", max_length=80)


class NameIn(Body):
    """Another name."""

    name: str = Field(min_length=1, max_length=80)


class CommentIn(Body):
    """A comment: plain text with line breaks."""

    text: str = Field(max_length=20_000)


class LinkIn(Body):
    """A link to make, and how many days it opens the report."""

    days: int = 7


def _saved_for(request: HttpRequest, pk: UUID, need: Role = Role.VIEWER) -> SavedComparison:
    return object_for(caller(request), SavedComparison, pk, need=need, within=SAVED.all())


@saved.get("/projects/{slug:slug}/comparisons", response=Page[comparing_answers.SavedComparison])
def comparisons_list(request: HttpRequest, slug: str, asked: Query[Named]) -> dict[str, Any]:
    """The saved comparisons of a project, newest first."""
    return page_of(request, services.comparisons_of(project_for(caller(request), slug)), asked)


@saved.post("/projects/{slug:slug}/comparisons", response={201: comparing_answers.SavedComparison})
def comparison_save(request: HttpRequest, slug: str, body: ComparisonIn) -> Status[SavedComparison]:
    """Save a comparison under a name that the project does not have yet."""
    project = project_for(caller(request), slug, need=Role.EDITOR)
    query = services.Query(body.runs, body.spec, body.pair, body.tasks, body.category)
    saved = services.comparison_save(project=project, user=caller(request), name=body.name, query=query)
    return Status(201, saved)


@saved.get("/comparisons/{uuid:comparison_id}", response=comparing_answers.SavedComparison)
def comparison_get(request: HttpRequest, comparison_id: UUID) -> SavedComparison:
    """One saved comparison; its figures are those of `/projects/{slug}/compare` with its runs and spec."""
    return _saved_for(request, comparison_id)


@saved.patch("/comparisons/{uuid:comparison_id}", response=comparing_answers.SavedComparison)
def comparison_rename(request: HttpRequest, comparison_id: UUID, body: NameIn) -> SavedComparison:
    """Give it another name (the person who saved it, and owners)."""
    saved = _saved_for(request, comparison_id)
    services.own_or_owned(caller(request), saved)
    services.comparison_rename(saved, body.name)
    return saved


@saved.delete("/comparisons/{uuid:comparison_id}", response=Deleted)
def comparison_delete(request: HttpRequest, comparison_id: UUID) -> dict[str, Any]:
    """Delete it with its comments and links (the person who saved it, and owners)."""
    saved = _saved_for(request, comparison_id)
    services.own_or_owned(caller(request), saved)
    services.comparison_delete(saved)
    return {"deleted": str(comparison_id)}


@saved.get("/comparisons/{uuid:comparison_id}/comments", response=Page[comparing_answers.Comment])
def comments_list(request: HttpRequest, comparison_id: UUID, asked: Query[Dated]) -> dict[str, Any]:
    """The comments below it, the newest last."""
    return page_of(request, services.comments_of(_saved_for(request, comparison_id)), asked)


@saved.post("/comparisons/{uuid:comparison_id}/comments", response={201: comparing_answers.Comment})
@once
def comment_add(request: HttpRequest, comparison_id: UUID, body: CommentIn) -> Status[Comment]:
    """Add a comment below it."""
    saved = _saved_for(request, comparison_id, Role.EDITOR)
    return Status(201, services.comment_add(saved=saved, user=caller(request), text=body.text))


@saved.patch("/comments/{uuid:comment_id}", response=comparing_answers.Comment)
def comment_edit(request: HttpRequest, comment_id: UUID, body: CommentIn) -> Comment:
    """Change your own comment."""
    services.comment_edit(_own_comment(request, comment_id), body.text)
    return object_for(caller(request), Comment, comment_id, within=COMMENTS.all())


def _own_comment(request: HttpRequest, pk: UUID) -> Comment:
    comment = object_for(caller(request), Comment, pk, need=Role.EDITOR, within=COMMENTS.all())
    if comment.created_by_id != caller(request).pk:
        raise PermissionDenied(_("Only the person who wrote a comment can change it."))
    return comment


@saved.delete("/comments/{uuid:comment_id}", response=Deleted)
def comment_delete(request: HttpRequest, comment_id: UUID) -> dict[str, Any]:
    """Delete a comment (its author, and owners)."""
    comment = object_for(caller(request), Comment, comment_id, within=COMMENTS.all())
    services.own_or_owned(caller(request), comment)
    services.comment_delete(comment)
    return {"deleted": str(comment_id)}


@saved.get("/comparisons/{uuid:comparison_id}/links", response=Page[comparing_answers.LinkLine])
def links_list(request: HttpRequest, comparison_id: UUID, asked: Query[LongDated]) -> dict[str, Any]:
    """The links that share it, newest first; `state` is `open`, `expired`, `revoked`, or `left` where its maker
    may not share any more."""
    part = part_of(request, matching(services.links_of(_saved_for(request, comparison_id)), asked), asked)
    return part.body(Extended(line.link, state=line.state) for line in services.link_lines(part.rows))


@saved.post("/comparisons/{uuid:comparison_id}/links", response={201: comparing_answers.LinkMade})
def link_make(request: HttpRequest, comparison_id: UUID, body: LinkIn) -> Status[Extended]:
    """Make a link that opens its report without an account. `url` is in this answer and never again."""
    saved = _saved_for(request, comparison_id, Role.EDITOR)
    ask(request, Act.SHARE)
    link, secret = services.link_create(saved=saved, user=caller(request), days=body.days)
    url = request.build_absolute_uri(reverse("shared", args=[secret]))
    return Status(201, Extended(link, url=url))


@saved.delete("/shared-links/{uuid:link_id}", response=Revoked)
def link_end(request: HttpRequest, link_id: UUID) -> dict[str, Any]:
    """Revoke a link (its maker, and owners)."""
    link = object_for(caller(request), SharedLink, link_id, within=LINKS.all())
    services.own_or_owned(caller(request), link)
    services.link_revoke(link)
    return {"revoked": str(link_id)}
