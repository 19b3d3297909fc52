"""Groups without spread, played again with other tasks: DAPO's dynamic sampling (Yu et al. 2025), by whole groups.

A group whose rewards are equal teaches nothing, so a step of many of them learns from few. After a step is played, each
such group's place is given to a group of another task, in up to ``rollout.refill_rounds`` rounds; places that are still
without spread then keep their first group. The tasks are drawn by seed, so a step that is played again is the same;
where the run draws tasks itself (``data.draw``) they come as it drew them. In a mix a place stays its part's.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from training.config import JobConfig
from training.rewards.combining import group_statistics
from training.rollout.past import mix_seed
from training.rollout.signal import teaches
from training.rollout.trajectory import Rollout


class Refill:
    """The places of one step. ``kept`` has the number of the group in each; ``spare`` are rows that may be played, and
    ``drawn`` such rows in the order in which they are to be."""

    def __init__(
        self,
        config: JobConfig,
        step: int,
        rows: Sequence[int],
        spare: Sequence[int],
        drawn: Sequence[int] | None = None,
        part_of: Callable[[int], str] = lambda _row: "",
    ) -> None:
        """``part_of`` says which part of a mix a row is of."""
        self._config, self._step, self._drawn, self._part_of = config, step, drawn, part_of
        self._spare: dict[str, list[int]] = {}
        for row in spare:
            self._spare.setdefault(part_of(row), []).append(row)
        self._size = config.group_size
        self._used = list(rows[:: self._size])
        self.kept = list(range(len(self._used)))
        self._open = list(self.kept)
        self._rounds = config.rollout.refill_rounds if config.method.learns_from == "rollouts" else 0
        self._round = self._first = 0

    def next(self, played: Sequence[Rollout]) -> list[int]:
        """Rows to play next, one a group; none when every place has spread or the rounds are over.

        ``played`` are the step's rollouts until now, group after group.
        """
        if not self._rounds:
            return []
        good = [number for number in range(self._first, len(self._used)) if self._spreads(number, played)]
        if self._round == 0:
            self._open = [place for place in self._open if place not in good]
        else:
            for number in good:
                place = next(place for place in self._open if self._part_at(place) == self._part_at(number))
                self.kept[place] = number
                self._open.remove(place)
        if not self._open or self._round == self._rounds:
            return []
        self._round += 1
        rows = self._draw([self._part_at(place) for place in self._open])
        self._first = len(self._used)
        self._used += rows
        return rows

    def batch(self, played: Sequence[Rollout]) -> list[Rollout]:
        """The rollouts that are learned from, place after place."""
        return [rollout for number in self.kept for rollout in self._group(number, played)]

    @property
    def figures(self) -> dict[str, float]:
        """What was replaced, where that was asked for."""
        if not self._rounds:
            return {}
        extra = len(self._used) - len(self.kept)
        replaced = sum(place != number for place, number in enumerate(self.kept))
        return {"groups/refilled": float(replaced), "rollouts/extra": float(extra * self._size)}

    def _group(self, number: int, played: Sequence[Rollout]) -> Sequence[Rollout]:
        return played[number * self._size : (number + 1) * self._size]

    def _spreads(self, number: int, played: Sequence[Rollout]) -> bool:
        members = self._group(number, played)
        signal = self._config.rewards.signal
        found = group_statistics([rollout.reward for rollout in members])
        return teaches(members, found, "reward" if signal == "all" else signal)

    def _part_at(self, number: int) -> str:
        """The part of the group of that number."""
        return self._part_of(self._used[number])

    def _draw(self, parts: Sequence[str]) -> list[int]:
        """A task of each of these parts that the step has not played, as far as there are any."""
        if self._drawn is not None:
            return self._next_drawn(self._drawn, len(parts))
        draw = random.Random(mix_seed(self._config.run.seed, self._step, self._round, -1))  # noqa: S311 - draws tasks
        drawn = {part: iter(self._of_part(draw, part, parts.count(part))) for part in dict.fromkeys(parts)}
        return [next(drawn[part]) for part in parts]

    def _of_part(self, draw: random.Random, part: str, count: int) -> list[int]:
        spare = self._spare[part]
        fresh = sorted(set(spare).difference(self._used))
        if len(fresh) >= count:
            return draw.sample(fresh, count)
        return fresh + draw.choices(spare, k=count - len(fresh))

    def _next_drawn(self, found: Sequence[int], count: int) -> list[int]:
        """The next of those that were drawn; where the step has played all of them, the first of them again."""
        drawn = list(dict.fromkeys(found or [row for spare in self._spare.values() for row in spare]))
        fresh = [row for row in drawn if row not in self._used][:count]
        return fresh + [drawn[number % len(drawn)] for number in range(count - len(fresh))]
