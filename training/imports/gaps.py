"""Figures that are NaN or infinite: they stay what they are, a gap in their curve, and are counted for the report."""

from __future__ import annotations

import math

from training.imports.base import Figures
from training.words import Sentence, counted, ngettext

_SHOWN = 8
_NOT_FINITE = ngettext(
    "{n} figure is not finite (NaN or infinite), at step {step}: {metrics}. It is a gap in its curve.",
    "{n} figures are not finite (NaN or infinite), the first at step {step}: {metrics}. They are gaps in their curves.",
)


class Gaps:
    """How many figures of each metric are not finite, and at which step the first of them stands."""

    def __init__(self) -> None:
        self._found: dict[str, tuple[int, int]] = {}

    def add(self, row: Figures) -> None:
        """Take in the figures of a step."""
        for name, value in row.values.items():
            if not math.isfinite(value):
                count, first = self._found.get(name, (0, row.step))
                self._found[name] = count + 1, min(first, row.step)

    def said(self) -> Sentence | None:
        """What is to be said of them; ``None`` where there are none."""
        if not self._found:
            return None
        ordered = sorted(self._found.items(), key=lambda item: (-item[1][0], item[0]))
        listed = ", ".join(f"{name} ({count})" for name, (count, _first) in ordered[:_SHOWN])
        count, first = sum(each for each, _first in self._found.values()), min(at for _n, at in self._found.values())
        return counted(_NOT_FINITE, count, step=first, metrics=listed + (", …" if len(ordered) > _SHOWN else ""))
