"""Vote rounds over the API."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.core.exceptions import PermissionDenied, ValidationError
from django.http import Http404, HttpRequest
from django.utils.translation import gettext as _
from ninja import Query, Router, Status
from pydantic import Field

from webapp.api.answers import comparing as comparing_answers
from webapp.api.base import caller
from webapp.api.listing import Named, page_of
from webapp.api.schemas import Body
from webapp.common.answers import Deleted, Extended, Page
from webapp.evaluation.comparison.contestants import contestants_of
from webapp.evaluation.comparison.rewards import evaluations
from webapp.evaluation.votes import selectors, services
from webapp.evaluation.votes.models import VoteRound
from webapp.evaluation.votes.selectors import results_of
from webapp.people.teams.access import object_for, project_for
from webapp.people.teams.models import Project, Role, User

router = Router(tags=["votes"])


class VoteRoundIn(Body):
    """A vote round of `runs` (ids of 2 to 8 evaluations). Without `voters` (user names) the whole team is asked.

    `spec` is what rewards are weighed by where the runs' own differ; `seed` draws the ballots.
    """

    name: str = Field(min_length=1, max_length=80)
    runs: list[str] = Field(min_length=2, max_length=8)
    voters: list[str] | None = Field(default=None, max_length=500)
    ballots: int = Field(default=services.BALLOTS, ge=1, le=services.MOST_BALLOTS)
    instructions: str = Field(default="", max_length=services.MOST_INSTRUCTIONS)
    show_expected: bool = False
    spec: str = Field(default="", max_length=200)
    seed: int | None = Field(default=None, ge=0, lt=services.SEEDS)


class VoteIn(Body):
    """An answer: `left`, `right`, `tie` or `both_bad`, of the episodes as `next` gave them."""

    answer: str = Field(max_length=10)


def _with_standing(made: VoteRound, user: User, **more: Any) -> Extended:
    """A round and how far the person is, without any votes."""
    return Extended(made, standing=selectors.standing_of(made, user), **more)


def _round_for(request: HttpRequest, round_id: UUID) -> VoteRound:
    within = VoteRound.objects.select_related("project", "created_by")
    made = object_for(caller(request), VoteRound, round_id, within=within)
    made.project = project_for(caller(request), made.project.slug)
    return made


@router.get("/projects/{slug:slug}/vote-rounds", response=Page[comparing_answers.VoteRound])
def vote_rounds(request: HttpRequest, slug: str, asked: Query[Named]) -> dict[str, Any]:
    """The project's vote rounds, newest first."""
    project = project_for(caller(request), slug)
    return page_of(request, selectors.rounds_of(project), asked, lambda made: _with_standing(made, caller(request)))


@router.post("/projects/{slug:slug}/vote-rounds", response={201: comparing_answers.VoteRound})
def vote_round_new(request: HttpRequest, slug: str, body: VoteRoundIn) -> Status[Extended]:
    """Make a vote round of evaluations that played the same tasks."""
    project = project_for(caller(request), slug, need=Role.EDITOR)
    contestants, notes = contestants_of(project, body.runs)
    if notes:
        raise ValidationError({"runs": notes})
    made = services.round_create(
        project=project,
        user=caller(request),
        read=evaluations(project, contestants, body.spec),
        name=body.name,
        voters=_voters_of(project, body.voters),
        ballots=body.ballots,
        instructions=body.instructions,
        show_expected=body.show_expected,
        seed=body.seed,
    )
    return Status(201, _with_standing(made, caller(request)))


def _voters_of(project: Project, names: list[str] | None) -> list[User]:
    members = list(selectors.members_of(project))
    if names is None:
        return members
    if unknown := sorted(set(names) - {member.username for member in members}):
        raise ValidationError({"voters": _("Not in this team: %(names)s.") % {"names": ", ".join(unknown)[:200]}})
    return [member for member in members if member.username in names]


@router.get("/vote-rounds/{uuid:round_id}", response=comparing_answers.VoteRound)
def vote_round(request: HttpRequest, round_id: UUID) -> Extended:
    """One round and how far you are."""
    return _with_standing(_round_for(request, round_id), caller(request))


@router.delete("/vote-rounds/{uuid:round_id}", response=Deleted)
def vote_round_remove(request: HttpRequest, round_id: UUID) -> dict[str, str]:
    """Delete a round with its votes (its maker, and owners)."""
    made = _round_for(request, round_id)
    services.require_manager(made, caller(request))
    services.round_delete(made=made, user=caller(request))
    return {"deleted": made.name}


@router.post("/vote-rounds/{uuid:round_id}/close", response=comparing_answers.VoteRound)
def vote_round_close(request: HttpRequest, round_id: UUID) -> Extended:
    """End the voting; everybody may see the results (its maker, and owners)."""
    made = _round_for(request, round_id)
    services.require_manager(made, caller(request))
    services.round_close(made=made, user=caller(request))
    return _with_standing(_round_for(request, round_id), caller(request))


@router.post("/vote-rounds/{uuid:round_id}/reopen", response=comparing_answers.VoteRound)
def vote_round_reopen(request: HttpRequest, round_id: UUID) -> Extended:
    """Continue with the voters who have not seen the results (its maker, and owners)."""
    made = _round_for(request, round_id)
    services.require_manager(made, caller(request))
    services.round_reopen(made=made, user=caller(request))
    return _with_standing(_round_for(request, round_id), caller(request))


@router.get("/vote-rounds/{uuid:round_id}/next", response=comparing_answers.VoteNext)
def ballot_next(request: HttpRequest, round_id: UUID) -> Extended:
    """Your next ballot: the prompt of both, and the messages of the left and the right episode, turn by turn.

    `ballot` is null where you have none left, were not asked, have seen the results, or the round is closed.
    """
    made, user = _round_for(request, round_id), caller(request)
    ballot = selectors.next_ballot(made, user) if selectors.standing_of(made, user).may_vote else None
    if ballot is None:
        return _with_standing(made, user, ballot=None)
    ballot.round = made
    shown = selectors.shown(ballot, left_first=services.first_left(made, ballot, user))
    expected = ballot.expected if made.show_expected else None
    turns = [{"left": sides[0], "right": sides[1]} for sides, _same in shown.rows]
    return _with_standing(made, user, ballot=Extended(ballot, expected=expected, told=shown.opening, turns=turns))


@router.post("/vote-rounds/{uuid:round_id}/ballots/{uuid:ballot_id}/vote", response=comparing_answers.VoteCast)
def ballot_vote(request: HttpRequest, round_id: UUID, ballot_id: UUID, body: VoteIn) -> Extended:
    """Answer a ballot. Sent twice it is one vote; another answer replaces the earlier one while the round is open."""
    made, user = _round_for(request, round_id), caller(request)
    ballot = selectors.ballot_in(made, str(ballot_id))
    if ballot is None:
        raise Http404
    cast = services.vote_cast(ballot=ballot, user=user, side=body.answer)
    return _with_standing(made, user, replaced=bool(cast.before))


@router.post("/vote-rounds/{uuid:round_id}/undo", response=comparing_answers.VoteUndone)
def ballot_undo(request: HttpRequest, round_id: UUID) -> Extended:
    """Take your last vote back."""
    made, user = _round_for(request, round_id), caller(request)
    undone = services.vote_undo(made=made, user=user)
    return _with_standing(made, user, undone=undone.pk if undone else None)


@router.get("/vote-rounds/{uuid:round_id}/results", response=comparing_answers.VoteResults)
def vote_round_results(request: HttpRequest, round_id: UUID) -> Extended:
    """The results of the votes. 403 for a voter with ballots left in an open round; after the first read your votes are
    final.

    Contestants are named by their place in `contestants`; intervals are of 95%, each with what it is of.
    """
    made, user = _round_for(request, round_id), caller(request)
    if not selectors.standing_of(made, user).may_look:
        raise PermissionDenied(_("The results are hidden until you have voted or the round is closed."))
    services.results_seen(made=made, user=user)
    found = results_of(made)
    contestants = [
        Extended(line, low=line.score.low, high=line.score.high, chance=line.score.chance)
        if line.score.votes
        else Extended(line, low=None, high=None, chance=None)
        for line in found.lines
    ]
    wins = [cells for _item, cells in found.matrix]
    return _with_standing(made, user, found=found, contestants=contestants, wins=wins, **vars(found))
