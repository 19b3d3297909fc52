"""Key-value rows of episodes that wait for their environment, so that the next turn feeds only what is new.

Without it each turn would run the whole conversation through the model again: the cost of an episode would grow with
the square of its turns. vLLM does the same by blocks of hashed ids (Kwon et al. 2023); here an episode's row is kept
under its name, beside its neighbours of the batch that it left.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

from training.policy.batch import DecodeBatch


@dataclass(frozen=True)
class Place:
    """Where an episode's cache lies: a row of a block, and the ids that it holds."""

    block: DecodeBatch
    row: int
    ids: list[int]


class Parking:
    """Places by episode, ``budget`` bytes at most. The sampler's thread parks and takes; ``release`` may come from
    any thread.
    """

    def __init__(self) -> None:
        self.budget = 0
        self._places: dict[str, Place] = {}
        self._ended: set[str] = set()
        self._lock = threading.Lock()

    def park(self, block: DecodeBatch, rows: list[tuple[str, list[int]]]) -> None:
        """Keep a block whose rows belong to these episodes and hold these ids; the oldest leave when room is short."""
        with self._lock:
            for row, (episode, ids) in enumerate(rows):
                if episode and episode not in self._ended:
                    self._places[episode] = Place(block, row, ids)
            while self._places and self._bytes() > self.budget:
                del self._places[next(iter(self._places))]

    def take(self, episode: str, prompt_ids: list[int]) -> Place | None:
        """The episode's place, which it leaves, if the prompt continues the ids there."""
        with self._lock:
            place = self._places.pop(episode, None)
            self._ended.discard(episode)
        if place is None or len(prompt_ids) <= len(place.ids) or prompt_ids[: len(place.ids)] != place.ids:
            return None
        return place

    def release(self, episode: str) -> None:
        """The episode has ended: drop its place, also if it would be parked later."""
        with self._lock:
            self._places.pop(episode, None)
            self._ended.add(episode)

    def clear(self) -> None:
        """Drop everything: the weights change, or memory is short."""
        with self._lock:
            self._places.clear()
            self._ended.clear()

    def __len__(self) -> int:
        return len(self._places)

    def _bytes(self) -> int:
        return sum(block.bytes for block in {place.block for place in self._places.values()})


def restore(places: list[Place]) -> DecodeBatch:
    """One batch of the rows at these places, in their order."""
    runs: list[tuple[DecodeBatch, list[int]]] = []
    for place in places:
        if not runs or runs[-1][0] is not place.block:
            runs.append((place.block, []))
        runs[-1][1].append(place.row)
    return DecodeBatch.joined([block.select(rows) for block, rows in runs])
