"""Making, voting in, closing and deleting vote rounds."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence
from typing import NamedTuple

from django.core.exceptions import PermissionDenied, ValidationError
from django.db import IntegrityError, transaction
from django.db.models import Q
from django.db.models.functions import Now
from django.utils.translation import gettext as _

from webapp.common.pages import clean_name
from webapp.common.text import clean_text
from webapp.evaluation.comparison.contestants import LEAST, Contestant
from webapp.evaluation.comparison.rewards import Evaluations
from webapp.evaluation.comparison.tasks import texts_of
from webapp.evaluation.votes.drawing import Drawn, Pool, Try, draw, expected_of, pool_of
from webapp.evaluation.votes.models import Answer, Ballot, RoundContestant, RoundVoter, Vote, VoteRound
from webapp.evaluation.votes.selectors import playable
from webapp.people.notifications.events import notify
from webapp.people.notifications.models import Kind
from webapp.people.teams.access import RANK
from webapp.people.teams.audit import audit
from webapp.people.teams.models import AuditAction, Project, Role, User

BALLOTS, MOST_BALLOTS, MOST_INSTRUCTIONS, SEEDS = 20, 200, 2_000, 2**31
SIDES = ("left", "right", "tie", "both_bad")


class Cast(NamedTuple):
    """A vote, and the person's earlier answer if it was another one."""

    vote: Vote
    before: str


def round_create(
    *,
    project: Project,
    user: User,
    read: Evaluations | None,
    name: str,
    voters: Sequence[User],
    ballots: int = BALLOTS,
    instructions: str = "",
    show_expected: bool = False,
    seed: int | None = None,
) -> VoteRound:
    """Draw the ballots of a comparison. Raises ``ValidationError`` by field."""
    name, seed = clean_name(name), secrets.randbelow(SEEDS) if seed is None else seed
    if read is None or len(read.playing) < LEAST:
        raise ValidationError(_("Choose at least two evaluations: only those play the same tasks."))
    if not voters:
        raise ValidationError({"voters": _("Ask at least one person.")})
    if not len(read.playing) <= ballots <= MOST_BALLOTS:
        raise ValidationError(
            {
                "ballots": _("Between %(least)d and %(most)d ballots.")
                % {"least": len(read.playing), "most": MOST_BALLOTS}
            }
        )
    pool = pool_of(read.playing, read.rewards, seed)
    drawn = draw(pool.piles, len(pool.contestants), ballots, seed)
    if not drawn:
        raise ValidationError(_("No two of these evaluations have played the same task: there is nothing to vote on."))
    made = VoteRound(
        project=project,
        name=name,
        instructions=clean_text(instructions.strip())[:MOST_INSTRUCTIONS],
        show_expected=show_expected,
        weighed_by=read.rewards.chosen.name[:200] if read.rewards.chosen else "",
        seed=seed,
        created_by=user,
    )
    try:
        with transaction.atomic():
            made.save(force_insert=True)
            RoundVoter.objects.bulk_create(RoundVoter(round=made, user=voter) for voter in voters)
            _ballots_add(made, pool, drawn)
            audit(AuditAction.ROUND_MADE, made, by=user)
            _notify_voters(made, voters)
    except IntegrityError as exc:
        raise ValidationError({"name": _("A vote round with this name exists already.")}) from exc
    return made


def _notify_voters(made: VoteRound, voters: Sequence[User]) -> None:
    """Notify the people who are asked, except the person who asks."""
    asked = [voter for voter in voters if voter.pk != made.created_by_id]
    if asked:
        by = made.created_by.username if made.created_by else ""
        notify(Kind.VOTE_ASKED, made, key=f"round:{made.pk}", people=asked, facts={"by": by})


def _ballots_add(made: VoteRound, pool: Pool, drawn: Sequence[Drawn]) -> None:
    who = RoundContestant.objects.bulk_create(
        RoundContestant(round=made, number=place, run=item.run, name=item.run.name)
        for place, item in enumerate(pool.contestants)
    )
    tasks = sorted({item.task for item in drawn})
    texts = texts_of(pool.contestants, tasks)
    expected = _expected_by_task(pool.contestants, drawn) if made.show_expected else {}
    Ballot.objects.bulk_create(
        Ballot(
            round=made,
            number=number,
            task=item.task,
            attempt=item.attempt,
            text=texts.get(item.task, ""),
            expected=expected.get((item.pair[0], item.task), ""),
            kind=item.kind,
            weight=item.weight,
            first=who[item.pair[0]],
            second=who[item.pair[1]],
            **_try_columns("first", pool.tries[item.pair[0]][item.task][item.attempt]),
            **_try_columns("second", pool.tries[item.pair[1]][item.task][item.attempt]),
        )
        for number, item in enumerate(drawn, 1)
    )


def _try_columns(place: str, found: Try) -> dict[str, object]:
    return {f"{place}_rollout": found.rollout, f"{place}_reward": found.reward, f"{place}_success": found.success}


def _expected_by_task(contestants: Sequence[Contestant], drawn: Sequence[Drawn]) -> dict[tuple[int, int], str]:
    """By contestant and task: pairs may have played different datasets."""
    made: dict[tuple[int, int], str] = {}
    for place in {item.pair[0] for item in drawn}:
        tasks = sorted({item.task for item in drawn if item.pair[0] == place})
        made |= {(place, task): text for task, text in expected_of(contestants[place], tasks).items()}
    return made


# --- Voting ----------------------------------------------------------------------------------------------------------
def first_left(made: VoteRound, ballot: Ballot, user: User) -> bool:
    """Whether this voter sees the first contestant on the left: a toss with always the same result."""
    toss = hashlib.sha256(f"{made.seed}:{user.pk}:{ballot.number}".encode()).digest()
    return toss[0] % 2 == 0


def answer_of(side: str, left: bool) -> str:
    """What a side means for the ballot's first and second contestant."""
    if side not in SIDES:
        raise ValidationError({"answer": _("Answer with left, right, tie or both_bad.")})
    if side in ("left", "right"):
        return Answer.FIRST.value if (side == "left") == left else Answer.SECOND.value
    return side


def side_of(answer: str, left: bool) -> str:
    """The inverse: the side on their page that a person's answer was given to."""
    if answer in (Answer.FIRST, Answer.SECOND):
        return "left" if (answer == Answer.FIRST) == left else "right"
    return answer


def vote_cast(*, ballot: Ballot, user: User, side: str) -> Cast:
    """Keep a person's answer to a ballot. The same answer twice is one vote; another answer replaces the earlier one.

    The voter's row is locked, so that two tabs, or a vote and the results being opened, take turns; closing locks the
    round, which every vote reads under the same lock.
    """
    with transaction.atomic():
        made = _open_for(ballot.round, user)
        left = first_left(made, ballot, user)
        answer = answer_of(side, left)
        if not playable(made).filter(pk=ballot.pk).exists():
            raise ValidationError(_("A contestant of this ballot was deleted; it is left out."), code="conflict")
        vote = Vote.objects.filter(ballot=ballot, voter=user).first()
        before = vote.answer if vote is not None else ""
        if vote is None:
            vote = Vote.objects.create(ballot=ballot, voter=user, answer=answer, first_left=left, cast_at=Now())
        elif before != answer:
            Vote.objects.filter(pk=vote.pk).update(answer=answer, cast_at=Now())
            vote.answer = answer
    return Cast(vote, before if before != answer else "")


def vote_undo(*, made: VoteRound, user: User) -> Ballot | None:
    """Take the person's last vote back; its ballot, or ``None`` where there is no vote."""
    with transaction.atomic():
        made = _open_for(made, user)
        votes = Vote.objects.filter(ballot__round=made, voter=user).select_related("ballot")
        vote = votes.order_by("-cast_at", "-pk").first()
        if vote is None:
            return None
        vote.delete()
    return vote.ballot


def _open_for(made: VoteRound, user: User) -> VoteRound:
    """The round, locked against being closed, if this person may vote in it now."""
    voter = RoundVoter.objects.select_for_update(no_key=True).filter(round=made, user=user).first()
    if voter is None:
        raise PermissionDenied(_("You were not asked to vote in this round."))
    fresh = VoteRound.objects.select_for_update(no_key=True).filter(pk=made.pk).first()
    if fresh is None or fresh.closed_at is not None:
        raise ValidationError(_("This round is closed; votes can no longer be given or changed."), code="conflict")
    if voter.seen_at is not None:
        raise ValidationError(_("You have seen the results, so your votes are final."), code="conflict")
    return fresh


def results_seen(*, made: VoteRound, user: User) -> None:
    """Note that a voter has seen the results; from then on their votes are final."""
    RoundVoter.objects.filter(round=made, user=user, seen_at=None).update(seen_at=Now())


# --- Ending ----------------------------------------------------------------------------------------------------------
def may_manage(made: VoteRound, user: User) -> bool:
    """Whether a person may close, reopen and delete the round: who made it while they may edit, and owners."""
    role = getattr(made.project, "role", Role.VIEWER)
    return bool(role == Role.OWNER or (made.created_by_id == user.pk and RANK[role] >= RANK[Role.EDITOR]))


def require_manager(made: VoteRound, user: User) -> None:
    """Raises ``PermissionDenied`` for everybody else."""
    if not may_manage(made, user):
        raise PermissionDenied(_("Only the author of this round, or an owner of the team, may do this."))


def round_close(*, made: VoteRound, user: User) -> bool:
    """End the voting; everybody may see the results. Returns whether it was open."""
    with transaction.atomic():
        done = VoteRound.objects.filter(pk=made.pk, closed_at=None).update(closed_at=Now())
        if done:
            audit(AuditAction.ROUND_CLOSED, made, by=user)
    return bool(done)


def round_reopen(*, made: VoteRound, user: User) -> bool:
    """Let those vote who have not seen the results. Returns whether it was closed."""
    with transaction.atomic():
        done = VoteRound.objects.filter(~Q(closed_at=None), pk=made.pk).update(closed_at=None)
        if done:
            audit(AuditAction.ROUND_REOPENED, made, by=user)
    return bool(done)


def round_delete(*, made: VoteRound, user: User) -> None:
    """Delete a round with its ballots and votes."""
    with transaction.atomic():
        audit(AuditAction.ROUND_DELETED, made, by=user)
        made.delete()
