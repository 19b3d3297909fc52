"""What the doctor is told of one step: its figures, and a few facts of each rollout."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

NGRAM = 4
MIN_NGRAMS = 16
MAX_CHARS = 20_000
_WORD = re.compile(r"[\u3400-\u9fff]|\w+|[^\w\s]")


@dataclass(frozen=True)
class RolloutFact:
    """One rollout. What nobody counted is ``None``.

    ``success`` is what judges the task itself, 0 to 1 and solved from 1. ``repetition`` is the share of its word
    4-grams that occurred before in the same text; ``loops``: most of its calls are one and the same.
    """

    name: str
    group: int
    reward: float | None = None
    success: float | None = None
    tokens: int = 0
    turns: int = 0
    seconds: float = 0.0
    truncated: bool = False
    excluded: bool = False
    parse_errors: int = 0
    calls: int | None = None
    failed_calls: int | None = None
    repetition: float | None = None
    loops: bool | None = None

    @property
    def counts(self) -> bool:
        """Whether something is learned from it."""
        return not self.excluded and self.reward is not None and math.isfinite(self.reward)


@dataclass(frozen=True)
class StepFacts:
    """One finished step. Figures that are not finite say nothing. A new ``stage`` has new tasks: nothing before it
    is compared with what follows."""

    step: int
    metrics: Mapping[str, float]
    rollouts: Sequence[RolloutFact] = field(default_factory=tuple)
    stage: int = 1


def repetition(text: str) -> float | None:
    """The share of word 4-grams that the text had before (0 to 1); ``None`` where it has fewer than 16."""
    words = _WORD.findall(text[:MAX_CHARS])
    seen = Counter(tuple(words[place : place + NGRAM]) for place in range(len(words) - NGRAM + 1))
    total = seen.total()
    return None if total < MIN_NGRAMS else 1 - len(seen) / total
