"""Which tasks are voted on: as many of each kind as there are, drawn by a seed.

1. For each pair of contestants that played the same tasks, the tasks with a counted try of both are put into
   piles by who solves them.
2. Ballots are dealt to the pairs in turn, each time from the pile that the pair has used least. The first turns follow
   the ring of the contestants, so that few ballots connect all of them.
3. A pile that was dealt from more than its share of tasks counts for less: the weight of its ballots.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np

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
