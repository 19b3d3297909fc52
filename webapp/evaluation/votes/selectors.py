"""Reading vote rounds: which there are, what is left for a person, and a ballot as it is shown."""

from __future__ import annotations

from typing import Any, NamedTuple
from uuid import UUID

from django.db.models import Count, Exists, OuterRef, Q, QuerySet
from django.utils.translation import gettext as _

from webapp.evaluation.comparison.transcripts import Row, side_by_side
from webapp.evaluation.votes.models import Ballot, RoundVoter, Vote, VoteRound
from webapp.people.teams.models import Membership, Project, User
from webapp.runs.rollouts.models import Turn
from webapp.runs.rollouts.selectors import turn_view

PLAYABLE = Q(
    first__run__isnull=False,
    second__run__isnull=False,
    first__run__removed_at=None,
    second__run__removed_at=None,
)


class Progress(NamedTuple):
    """How far a person is: ballots that they answered, of those that they can answer or have answered."""

    done: int
    total: int

    @property
    def left(self) -> int:
        """Ballots still to be answered."""
        return self.total - self.done


class Standing(NamedTuple):
    """A person's state in a round: ``asked``, has ``seen`` the results, how far, and whether the round is closed."""

    asked: bool
    seen: bool
    progress: Progress
    closed: bool

    @property
    def may_vote(self) -> bool:
        """Whether they may vote now."""
        return self.asked and not self.seen and not self.closed

    @property
    def may_look(self) -> bool:
        """Whether they may see the results: no voter does before they are done, or the round is closed."""
        return not self.may_vote or self.progress.left == 0


class OpenRound(NamedTuple):
    """A round in which a person has ballots left."""

    id: UUID
    name: str
    left: int


def rounds_of(project: Project) -> QuerySet[VoteRound]:
    """The project's rounds, newest first."""
    return VoteRound.objects.filter(project=project).select_related("project", "created_by")


def round_rows(project: Project, user: User) -> list[dict[str, Any]]:
    """The rounds as the list shows them: ``votes`` of ``wanted``, and whether this person was ``asked``."""
    found = list(
        rounds_of(project).annotate(
            ballot_count=Count("ballots", distinct=True), voter_count=Count("voters", distinct=True)
        )
    )
    votes = Vote.objects.filter(ballot__round__in=found).order_by()
    counts = dict(votes.values_list("ballot__round").annotate(n=Count("pk")))
    asked = set(RoundVoter.objects.filter(round__in=found, user=user).values_list("round", flat=True))
    left = {item.id: item.left for item in open_rounds(project, user)}
    return [
        {
            "round": item,
            "votes": counts.get(item.pk, 0),
            "wanted": item.ballot_count * item.voter_count,  # type: ignore[attr-defined]
            "asked": item.pk in asked,
            "left": left.get(item.pk, 0),
        }
        for item in found
    ]


def members_of(project: Project) -> QuerySet[User]:
    """Who can be asked: everybody in the team, by name."""
    members = Membership.objects.filter(team=project.team).values("user")
    return User.objects.filter(pk__in=members, is_active=True, is_machine=False).order_by("username")


def next_name(project: Project) -> str:
    """A name that no round has yet."""
    taken = set(VoteRound.objects.filter(project=project).values_list("name", flat=True))
    number = len(taken) + 1
    while (name := _("Vote round %(n)d") % {"n": number}) in taken:
        number += 1
    return name


def playable(made: VoteRound) -> QuerySet[Ballot]:
    """The ballots with both contestants still there."""
    return Ballot.objects.filter(PLAYABLE, round=made)


def unanswered(user: User) -> Q:
    """Ballots without a vote of this person."""
    return ~Exists(Vote.objects.filter(ballot=OuterRef("pk"), voter=user))  # type: ignore[return-value]


def open_rounds(project: Project, user: User) -> list[OpenRound]:
    """The rounds that wait for this person, newest first."""
    ballots = Ballot.objects.filter(PLAYABLE, unanswered(user), round__project=project, round__closed_at=None)
    asked = RoundVoter.objects.filter(user=user, seen_at=None).values("round")
    rows = ballots.filter(round__in=asked).order_by("-round__created_at").values_list("round", "round__name")
    return [OpenRound(*row) for row in rows.annotate(n=Count("pk"))]


def progress_of(made: VoteRound, user: User) -> Progress:
    """How far a person is."""
    done = Vote.objects.filter(ballot__round=made, voter=user).count()
    return Progress(done, done + playable(made).filter(unanswered(user)).count())


def standing_of(made: VoteRound, user: User) -> Standing:
    """A person's state in this round."""
    voter = RoundVoter.objects.filter(round=made, user=user).first()
    if voter is None:
        return Standing(False, False, Progress(0, 0), made.closed_at is not None)
    return Standing(True, voter.seen_at is not None, progress_of(made, user), made.closed_at is not None)


def next_ballot(made: VoteRound, user: User) -> Ballot | None:
    """The first ballot that the person has not answered."""
    return playable(made).filter(unanswered(user)).order_by("number").first()


def ballot_in(made: VoteRound, pk: str, *, only_playable: bool = False) -> Ballot | None:
    """One ballot of this round."""
    try:
        wanted = UUID(pk)
    except ValueError:
        return None
    ballots = playable(made) if only_playable else Ballot.objects.filter(round=made)
    return ballots.filter(pk=wanted).select_related("round").first()


class Shown(NamedTuple):
    """A ballot as a voter sees it: the prompt of both, then the turns of the left and the right episode. Nothing in
    it says who played."""

    told: list[dict[str, Any]]
    rows: list[Row]


def shown(ballot: Ballot, *, left_first: bool) -> Shown:
    """The two episodes, the first contestant's on the left if ``left_first``."""
    ids = [ballot.first_rollout, ballot.second_rollout]
    turns: dict[UUID, list[dict[str, Any]]] = {pk: [] for pk in ids}
    for turn in Turn.objects.filter(rollout__in=ids, run__project=ballot.round.project_id).order_by("number"):
        turns[turn.rollout_id].append(turn_view(turn))
    rows = side_by_side([turns[pk] for pk in (ids if left_first else reversed(ids))])
    told: list[dict[str, Any]] = []
    while rows and rows[0][1] and all(message.get("role") != "assistant" for message in rows[0][0][0]):
        told += rows.pop(0)[0][0]
    return Shown(told, rows)
