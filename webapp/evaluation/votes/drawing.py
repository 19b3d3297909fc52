"""Which tasks are voted on: as many of each kind as there are, drawn by a seed.

1. For each pair of contestants that played the same tasks, the tasks with a counted try of both are put into
   piles by who solves them.
2. Ballots are dealt to the pairs in turn, each time from the pile that the pair has used least. The first turns follow
   the ring of the contestants, so that few ballots connect all of them.
3. A pile that was dealt from more than its share of tasks counts for less: the weight of its ballots.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, NamedTuple
from uuid import UUID

import numpy as np

from training.rollout.figures import SUCCESS_PART
from training.rows import row_value
from webapp.common.text import finite
from webapp.evaluation.comparison.categories import texts_of_rows
from webapp.evaluation.comparison.contestants import Contestant
from webapp.evaluation.comparison.figures import same_tasks
from webapp.evaluation.comparison.rewards import Rewards
from webapp.evaluation.comparison.tasks import SOLVED_FROM
from webapp.evaluation.comparison.transcripts import MOST_TRIES
from webapp.evaluation.rescoring.columns import columns_of
from webapp.evaluation.rescoring.scale import Scale
from webapp.evaluation.votes.models import BallotKind
from webapp.runs.rollouts.models import RolloutStatus
from webapp.runs.rollouts.selectors import latest_rollouts

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
    for row in latest_rollouts(contestant.run).exclude(row=None).values(*FIELDS):
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
