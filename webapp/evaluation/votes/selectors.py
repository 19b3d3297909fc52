"""Reading vote rounds: which there are, what is left for a person, a ballot as it is shown, and the results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from uuid import UUID

import numpy as np
from django.db.models import Count, Exists, OuterRef, Q, QuerySet
from django.utils.translation import gettext as _

from training.evaluation import (
    Agreement,
    Counts,
    Interval,
    Judged,
    RankedAs,
    Strength,
    agreement,
    bradley_terry,
    counts_of,
    mean_interval,
    ranked_as,
)
from training.evaluation import Vote as Said
from webapp.common.answers import in_shape
from webapp.evaluation.comparison.tasks import Row, side_by_side
from webapp.evaluation.votes.models import Answer, Ballot, RoundContestant, RoundVoter, Vote, VoteRound
from webapp.people.teams.models import Membership, Project, User
from webapp.runs import answers
from webapp.runs.rollouts.models import Turn

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
    """The people who can be asked: all of the team, by name."""
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

    opening: list[dict[str, Any]]
    rows: list[Row]


def shown(ballot: Ballot, *, left_first: bool) -> Shown:
    """The two episodes, the first contestant's on the left if ``left_first``."""
    ids = [ballot.first_rollout, ballot.second_rollout]
    turns: dict[UUID, list[dict[str, Any]]] = {pk: [] for pk in ids}
    for turn in Turn.objects.filter(rollout__in=ids, run__project=ballot.round.project_id).order_by("number"):
        turns[turn.rollout_id].append(in_shape(answers.Turn, turn))
    rows = side_by_side([turns[pk] for pk in (ids if left_first else reversed(ids))])
    opening: list[dict[str, Any]] = []
    while rows and rows[0][1] and all(message.get("role") != "assistant" for message in rows[0][0][0]):
        opening += rows.pop(0)[0][0]
    return Shown(opening, rows)


# --- Results ---------------------------------------------------------------------------------------------------------
# The results of a round's votes: figures, each with its number of votes or ballots.

MOST_DISPUTED = 10


class Line(NamedTuple):
    """One contestant: its score, and how many of the votes on it were ties and "both bad"."""

    contestant: RoundContestant
    score: Strength
    ties: int
    both_bad: int

    @property
    def ends(self) -> tuple[float, float, float]:
        """Low, score and high from 0 to 100, for a bar."""
        return 100 * self.score.low, 100 * self.score.chance, 100 * self.score.high

    @property
    def tie_share(self) -> float | None:
        """Ties, of the votes on it."""
        return self.ties / self.score.votes if self.score.votes else None

    @property
    def bad_share(self) -> float | None:
        """ "Both bad", of the votes on it."""
        return self.both_bad / self.score.votes if self.score.votes else None


class Cell(NamedTuple):
    """How often the row's contestant was preferred to the column's, of all votes on the two."""

    wins: int
    votes: int


class Person(NamedTuple):
    """A voter's progress."""

    user: User
    done: int
    total: int


class Disputed(NamedTuple):
    """A ballot on which most people preferred the contestant with the lower reward."""

    ballot: Ballot
    preferred: RoundContestant
    other: RoundContestant
    votes: int
    against: int
    reward: float
    other_reward: float


@dataclass(frozen=True)
class Results:
    """Everything that the page of a round says once it may."""

    votes: int
    decided: int
    ties: int
    both_bad: int
    ballots: int
    lines: list[Line]
    matrix: list[tuple[RoundContestant, list[Cell | None]]]
    people: list[Person]
    agreement: Agreement
    left: Interval
    reward: RankedAs
    verdict: RankedAs
    disputed: list[Disputed]

    @property
    def bad_share(self) -> float | None:
        """ "Both bad", of all votes."""
        return self.both_bad / self.votes if self.votes else None

    @property
    def tie_share(self) -> float | None:
        """Ties, of all votes."""
        return self.ties / self.votes if self.votes else None

    @property
    def voters(self) -> int:
        """People who have voted."""
        return sum(person.done > 0 for person in self.people)


def results_of(made: VoteRound) -> Results:
    """The present results."""
    who = list(made.contestants.select_related("run"))
    ballots = list(Ballot.objects.filter(round=made).select_related("first", "second"))
    votes = list(Vote.objects.filter(ballot__round=made).order_by("ballot__number", "cast_at"))
    counted = _votes_as_said(who, ballots, votes)
    counts = counts_of(counted, len(who))
    kinds = Counter(vote.answer for vote in votes)
    tallies = _answers_by_ballot(votes)
    of = {item.pk: item for item in who}
    return Results(
        votes=len(votes),
        decided=kinds[Answer.FIRST] + kinds[Answer.SECOND],
        ties=kinds[Answer.TIE],
        both_bad=kinds[Answer.BOTH_BAD],
        ballots=len(tallies),
        lines=_result_lines(who, bradley_terry(counted, len(who), seed=made.seed), counts),
        matrix=_win_matrix(who, counts),
        people=_voters_done(made, votes),
        agreement=agreement(counted),
        left=_left_share(votes),
        reward=ranked_as(_judged_ballots(ballots, tallies, lambda item: (item.first_reward, item.second_reward))),
        verdict=ranked_as(_judged_ballots(ballots, tallies, lambda item: (item.first_success, item.second_success))),
        disputed=_disputed_ballots(ballots, tallies, of),
    )


def _left_share(votes: Sequence[Vote]) -> Interval:
    """How often the left one was preferred, of all votes that preferred one."""
    decided = [vote for vote in votes if vote.answer in (Answer.FIRST, Answer.SECOND)]
    return mean_interval(np.array([float((vote.answer == Answer.FIRST) == vote.first_left) for vote in decided]))


def _votes_as_said(who: Sequence[RoundContestant], ballots: Sequence[Ballot], votes: Sequence[Vote]) -> list[Said]:
    places = {item.pk: place for place, item in enumerate(who)}
    by_id = {ballot.pk: ballot for ballot in ballots}
    made = []
    for vote in votes:
        ballot = by_id[vote.ballot_id]
        first, second = places[ballot.first_id], places[ballot.second_id]
        made.append(Said(vote.voter_id, ballot.task, first, second, vote.answer, ballot.weight))  # type: ignore[arg-type]
    return made


def _result_lines(who: Sequence[RoundContestant], scores: Sequence[Strength], counts: Counts) -> list[Line]:
    made = [
        Line(item, score, int(counts.ties[place].sum()), int(counts.both_bad[place].sum()))
        for place, (item, score) in enumerate(zip(who, scores, strict=True))
    ]
    return sorted(made, key=lambda line: (-line.score.chance, line.contestant.number))


def _win_matrix(who: Sequence[RoundContestant], counts: Counts) -> list[tuple[RoundContestant, list[Cell | None]]]:
    asked = counts.wins + counts.wins.T + counts.ties + counts.both_bad
    return [
        (
            item,
            [
                Cell(int(counts.wins[row, column]), int(asked[row, column])) if asked[row, column] else None
                for column in range(len(who))
            ],
        )
        for row, item in enumerate(who)
    ]


def _voters_done(made: VoteRound, votes: Sequence[Vote]) -> list[Person]:
    open_ballots = set(playable(made).values_list("pk", flat=True))
    done = Counter(vote.voter_id for vote in votes)
    gone = Counter(vote.voter_id for vote in votes if vote.ballot_id not in open_ballots)
    asked = RoundVoter.objects.filter(round=made).select_related("user").order_by("user__username")
    return [Person(item.user, done[item.user_id], len(open_ballots) + gone[item.user_id]) for item in asked]


Tallies = dict[object, Counter[str]]


def _answers_by_ballot(votes: Sequence[Vote]) -> Tallies:
    """Answers by ballot."""
    made: Tallies = {}
    for vote in votes:
        made.setdefault(vote.ballot_id, Counter())[vote.answer] += 1
    return made


def _judged_ballots(
    ballots: Sequence[Ballot], tallies: Tallies, figures: Callable[[Ballot], tuple[float | None, float | None]]
) -> list[Judged]:
    return [
        Judged(tallies[item.pk][Answer.FIRST], tallies[item.pk][Answer.SECOND], *figures(item))
        for item in ballots
        if item.pk in tallies
    ]


def _disputed_ballots(ballots: Sequence[Ballot], tallies: Tallies, of: dict[int, RoundContestant]) -> list[Disputed]:
    """Ballots on which most people and the reward differ: the clearest votes first, then the largest gap in reward."""
    made = []
    for ballot in ballots:
        tally, a, b = tallies.get(ballot.pk, Counter()), ballot.first_reward, ballot.second_reward
        lead = tally[Answer.FIRST] - tally[Answer.SECOND]
        if a is None or b is None or not lead or (a - b) * lead >= 0:
            continue
        first, second = of[ballot.first_id], of[ballot.second_id]
        if lead > 0:
            made.append(Disputed(ballot, first, second, tally[Answer.FIRST], tally[Answer.SECOND], a, b))
        else:
            made.append(Disputed(ballot, second, first, tally[Answer.SECOND], tally[Answer.FIRST], b, a))
    made.sort(key=lambda item: (item.against - item.votes, item.reward - item.other_reward, item.ballot.number))
    return made[:MOST_DISPUTED]
