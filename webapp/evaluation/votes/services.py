"""Vote rounds: which tasks are voted on, and making, voting in, closing and deleting rounds."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, NamedTuple
from uuid import UUID

import numpy as np
from django.core.exceptions import PermissionDenied, ValidationError
from django.db import IntegrityError, transaction
from django.db.models import Q
from django.db.models.functions import Now
from django.utils.translation import gettext as _

from training.data import row_value
from training.evaluation import SUCCESS_PART
from webapp.common.pages import clean_name
from webapp.common.text import clean_text, finite
from webapp.evaluation.comparison.contestants import LEAST, Contestant, texts_of_rows
from webapp.evaluation.comparison.figures import same_tasks
from webapp.evaluation.comparison.rewards import Evaluations, Rewards
from webapp.evaluation.comparison.tasks import MOST_TRIES, SOLVED_FROM, texts_of
from webapp.evaluation.rescoring.columns import Scale, columns_of
from webapp.evaluation.votes.models import Answer, Ballot, BallotKind, RoundContestant, RoundVoter, Vote, VoteRound
from webapp.evaluation.votes.selectors import playable
from webapp.people.notifications.events import notify
from webapp.people.notifications.models import Kind
from webapp.people.teams.access import RANK
from webapp.people.teams.audit import audit
from webapp.people.teams.models import AuditAction, Project, Role, User
from webapp.runs.rollouts.models import RolloutStatus
from webapp.runs.rollouts.selectors import latest_rollouts

# --- Drawing ---------------------------------------------------------------------------------------------------------
# Which tasks are voted on: as many of each kind as there are, drawn by a seed.
#
# 1. For each pair of contestants that played the same tasks, the tasks with a counted try of both are put into
#    piles by who solves them.
# 2. Ballots are dealt to the pairs in turn, each time from the pile that the pair has used least. The first turns
#    follow the ring of the contestants, so that few ballots connect all of them.
# 3. A pile that was dealt from more than its share of tasks counts for less: the weight of its ballots.

Pair = tuple[int, int]


class Drawn(NamedTuple):
    """A task for a pair, with the try that is shown; ``weight`` is 1 on average over the ballots of a pair."""

    pair: Pair
    kind: str
    task: int
    attempt: int
    weight: float


class Candidate(NamedTuple):
    """A task that both of a pair played, and one of its tries."""

    task: int
    attempt: int


Piles = Mapping[Pair, Mapping[str, Sequence[Candidate]]]


def ring(contestants: int) -> list[Pair]:
    """All pairs, neighbours on a ring first."""
    pairs = list(combinations(range(contestants), 2))
    return sorted(pairs, key=lambda pair: (min(pair[1] - pair[0], contestants - pair[1] + pair[0]), pair))


def draw(piles: Piles, contestants: int, count: int, seed: int) -> list[Drawn]:
    """At most ``count`` ballots, in the order in which voters meet them."""
    rng = np.random.default_rng(seed)
    pairs = [pair for pair in ring(contestants) if any(piles.get(pair, {}).values())]
    left = {
        pair: {kind: [pile[place] for place in rng.permutation(len(pile))] for kind, pile in piles[pair].items()}
        for pair in pairs
    }
    taken: list[tuple[Pair, str, Candidate]] = []
    used: Counter[tuple[Pair, str]] = Counter()
    overall: Counter[str] = Counter()
    while len(taken) < count and pairs:
        for pair in pairs[: count - len(taken)]:
            kinds = [kind for kind, pile in left[pair].items() if pile]
            kind = min(kinds, key=lambda kind, pair=pair: (used[pair, kind], overall[kind]))  # type: ignore[misc]
            taken.append((pair, kind, left[pair][kind].pop()))
            used[pair, kind] += 1
            overall[kind] += 1
        pairs = [pair for pair in pairs if any(left[pair].values())]
    weights = {cell: _pile_weight(piles, used, *cell) for cell in used}
    made = [Drawn(pair, kind, *item, weights[pair, kind]) for pair, kind, item in taken]
    return [made[place] for place in rng.permutation(len(made))]


def _pile_weight(piles: Piles, used: Counter[tuple[Pair, str]], pair: Pair, kind: str) -> float:
    """The pile's share of the pair's tasks over its share of the pair's ballots."""
    dealt = {other: used[pair, other] for other in piles[pair] if used[pair, other]}
    tasks = sum(len(piles[pair][other]) for other in dealt)
    return (len(piles[pair][kind]) / tasks) / (dealt[kind] / sum(dealt.values()))


# --- Pool -----------------------------------------------------------------------------------------------------------
# The tries of a comparison's contestants that can be voted on, in piles by who solves which task.

TRUTH_FIELDS = ("ground_truth", "reward_model.ground_truth", "extra_info.answer", "answer")
EXPECTED_CHARS = 4_000
FIELDS = ("pk", "row", "status", "reward", "parts", "env_parts")


class Try(NamedTuple):
    """One finished try of a task; no figures where it failed outside the policy."""

    rollout: UUID
    counts: bool
    reward: float | None
    success: float | None


Tries = dict[int, list[Try]]


@dataclass(frozen=True)
class Pool:
    """Each contestant's tries by task, and for each pair that played the same tasks its piles of candidates."""

    contestants: list[Contestant]
    tries: list[Tries]
    piles: dict[Pair, dict[str, list[Candidate]]]

    @property
    def tasks(self) -> int:
        """Candidates over all pairs: as many ballots can be drawn."""
        return sum(len(pile) for piles in self.piles.values() for pile in piles.values())


def pool_of(contestants: Sequence[Contestant], rewards: Rewards, seed: int) -> Pool:
    """Everything that a round can be made of. ``seed`` chooses the try of each pair and task."""
    rng = np.random.default_rng(seed)
    tries = [_tries_by_task(item, rewards) for item in contestants]
    piles = {
        (a, b): _piles_by_kind(tries[a], tries[b], rng)
        for a, b in combinations(range(len(contestants)), 2)
        if same_tasks(contestants[a], contestants[b])
    }
    return Pool(list(contestants), tries, {pair: found for pair, found in piles.items() if any(found.values())})


def _tries_by_task(contestant: Contestant, rewards: Rewards) -> Tries:
    """As the comparison's page of one task counts them: of a place that two attempts played, the later one's."""
    spec, scale = rewards.chosen, None
    if spec is not None:
        scale = Scale(spec.components, contestant.components, columns_of(contestant.run, spec.components))
    made: Tries = {}
    for row in latest_rollouts(contestant.run).filter(contestant.rollouts, row__isnull=False).values(*FIELDS):
        found = made.setdefault(row["row"], [])
        if len(found) < MOST_TRIES:
            found.append(_try_of_row(row, rewards, scale))
    return made


def _try_of_row(row: dict[str, Any], rewards: Rewards, scale: Scale | None) -> Try:
    if row["status"] == RolloutStatus.EXCLUDED:
        return Try(row["pk"], False, None, None)
    reward = finite(row["reward"])
    if scale is not None:
        reward = scale.weigh(row["pk"], reward, row["parts"]).reward
    shown = reward if rewards.comparable else None
    return Try(row["pk"], True, shown, finite(row["env_parts"].get(SUCCESS_PART)))


def _piles_by_kind(first: Tries, second: Tries, rng: np.random.Generator) -> dict[str, list[Candidate]]:
    piles: dict[str, list[Candidate]] = {kind: [] for kind in BallotKind.values}
    for task in sorted(first.keys() & second.keys()):
        both = [n for n, (a, b) in enumerate(zip(first[task], second[task], strict=False)) if a.counts and b.counts]
        if both:
            attempt = both[int(rng.integers(len(both)))]
            piles[_ballot_kind(first[task][attempt], second[task][attempt])].append(Candidate(task, attempt))
    return piles


def _ballot_kind(first: Try, second: Try) -> str:
    if first.success is None or second.success is None:
        return BallotKind.UNKNOWN
    solved = first.success > SOLVED_FROM, second.success > SOLVED_FROM
    return {
        (True, False): BallotKind.FIRST,
        (False, True): BallotKind.SECOND,
        (True, True): BallotKind.BOTH,
        (False, False): BallotKind.NEITHER,
    }[solved].value


def expected_of(contestant: Contestant, tasks: Sequence[int]) -> dict[int, str]:
    """The expected answers that the dataset's rows have."""
    return texts_of_rows(contestant, tasks, _expected_text)


def _expected_text(row: Any) -> str:
    found = next((value for field in TRUTH_FIELDS if (value := row_value(row, field)) not in (None, "", [])), "")
    text = found if isinstance(found, str) else json.dumps(found, ensure_ascii=False, indent=2)
    return text[:EXPECTED_CHARS]


# --- Making ---------------------------------------------------------------------------------------------------------

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
        raise ValidationError(
            _("Choose at least two evaluations, or runs that held out tasks: only those play the same tasks.")
        )
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
        raise ValidationError(_("No two of these have played the same task: there is nothing to vote on."))
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
    """The answer for the ballot's first and second contestant that a side means."""
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
