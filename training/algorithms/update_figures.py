"""Figures of an update from those of its micro batches.

TRL appends a figure for each micro batch and averages them, so that a micro batch of one long rollout counts as much as
one of sixty short ones, and the figure depends on how rows were dealt. Here each is weighed by what it is a mean of.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

Unit = Literal["tokens", "ratios", "rows"]
MEANS: dict[str, Unit] = {
    "entropy": "tokens",
    "kl": "tokens",
    "clip_ratio/low_mean": "ratios",
    "clip_ratio/high_mean": "ratios",
    "clip_ratio/region_mean": "ratios",
    "cispo_clip_ratio": "ratios",
    "vespo/phi_seq_mean": "rows",
}
"""What TRL 1.16 takes a figure's mean over; ``ratios`` are tokens, or rows where the ratio is of the whole rollout."""
EXTREMES = {"clip_ratio/low_min": min, "clip_ratio/high_max": max}


class UpdateFigures:
    """The figures of the update being made."""

    def __init__(self, *, ratio_of_rows: bool = False) -> None:
        self._ratio_of_rows = ratio_of_rows
        self._weights: dict[str, float] = {}

    @contextmanager
    def of_micro_batch(self, metrics: dict[str, Any], inputs: dict[str, Any]) -> Iterator[None]:
        """Within the block one micro batch appends to ``metrics["train"]``; afterwards they are the update's so far."""
        whole, metrics["train"] = metrics["train"], defaultdict(list)
        try:
            yield
        finally:
            found, metrics["train"] = metrics["train"], whole
        tokens = float((inputs["completion_mask"] * inputs.get("tool_mask", 1)).sum())
        weights: dict[Unit, float] = {"tokens": tokens, "rows": float(len(inputs["advantages"]))}
        weights["ratios"] = weights["rows" if self._ratio_of_rows else "tokens"]
        for name, values in found.items():
            if name in MEANS:
                self.add(whole, name, values[0], weights[MEANS[name]])
            elif name in EXTREMES:
                whole[name] = [EXTREMES[name](whole[name] + values)]
            else:
                whole[name] += values

    def add(self, metrics: dict[str, list[float]], name: str, value: float, weight: float) -> None:
        """Add a mean over ``weight`` things to the one of all before, which ``metrics`` holds; TRL empties it after an
        update."""
        before = self._weights.get(name, 0.0) if metrics[name] else 0.0
        self._weights[name] = whole = before + weight
        if whole > 0:
            metrics[name] = [((metrics[name][0] * before if before else 0.0) + value * weight) / whole]
