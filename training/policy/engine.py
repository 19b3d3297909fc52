"""The contract of a sampling engine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Sample:
    """One sampled turn.

    ``ids`` as sampled, the end-of-turn id included when there is one; ``logprobs`` beside them, in nats, of the
    temperature-scaled distribution before top-p and top-k cut it (the one that TRL's loss computes too).
    ``finished`` tells whether the turn ended by itself; otherwise the token limit cut it.
    """

    ids: list[int]
    logprobs: list[float]
    finished: bool


class Engine(Protocol):
    """Samples turns. Any number of ``generate`` calls may be awaited at once; the engine batches them as it likes."""

    async def generate(self, prompt_ids: list[int], *, max_tokens: int, seed: int, episode: str = "") -> Sample:
        """Sample one turn after ``prompt_ids``.

        Turns of one ``episode`` continue each other: what the engine computed for the earlier ones it may keep until
        ``release``.
        ``seed`` fixes the draw: the same ids, weights and seed give the same turn (up to float noise of the batch)
        whatever else is sampled beside it. Raises ``PolicyFault``.
        """
        ...

    def release(self, episode: str) -> None:
        """The episode has no further turn. Calling it for an unknown one does nothing."""
        ...

    @property
    def busy_seconds(self) -> float:
        """Seconds of wall time in which the engine was computing, since it was made."""
        ...
