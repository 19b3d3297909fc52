"""Recorded rollouts under a spec that their run may not have had: the value of each component for each rollout.

A value is the recorded one where the run scored by the same function with the same parameters and categories, else the
one that was computed from the transcript (``webapp.evaluation.rescoring.scoring``). Missing is never 0: a rollout
without a value of a counted component has no reward.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from training.config import RewardComponent
from training.rewards.combining import SCHEDULES_ENDED, terms_of, total_of
from training.words import Sentence
from webapp.evaluation.rescoring.columns import Column, Columns, Mark, column_key

UNSEEN = Column()


class Weighed(NamedTuple):
    """A rollout under a spec: its reward, and the raw values of the components that count for it."""

    reward: float | None
    parts: dict[str, float | None]


@dataclass
class Lacks:
    """What lacks of a run under a spec: rollouts with a component missing that it has not recorded, and those
    components by name."""

    rollouts: int = 0
    by_name: dict[str, Lack] = field(default_factory=dict)


@dataclass
class Lack:
    """The state of a component that the run has not recorded: rollouts by their state."""

    computed: int = 0
    unscored: int = 0
    failed: Counter[Sentence] = field(default_factory=Counter)

    @property
    def missing(self) -> int:
        """Rollouts without a value that should have one."""
        return self.unscored + self.failed.total()


def counting(components: Sequence[RewardComponent]) -> list[RewardComponent]:
    """The components that a reward depends on: those with a weight, and the gates of these."""
    weighted = {item.name for item in components if item.weight}
    gates = {item.gate.component for item in components if item.weight and item.gate is not None}
    return [item for item in components if item.name in weighted | gates]


def recorded_as(components: Sequence[RewardComponent], own: Sequence[RewardComponent]) -> dict[str, str]:
    """Of the components that a run with components ``own`` has recorded, the names under which it did."""
    names = {column_key(item): item.name for item in own}
    return {item.name: names[key] for item in components if (key := column_key(item)) in names}


def unrecorded(components: Sequence[RewardComponent], own: Sequence[RewardComponent]) -> list[RewardComponent]:
    """The components that a reward depends on and that such a run has not recorded."""
    recorded = recorded_as(components, own)
    return [item for item in counting(components) if item.name not in recorded]


class Scale:
    """Weighs the rollouts of one run by a spec, and counts what of it is not known. ``own`` are the components that
    the run recorded, ``computed`` what was computed since."""

    def __init__(
        self, components: Sequence[RewardComponent], own: Sequence[RewardComponent], computed: Columns
    ) -> None:
        self.components = list(components)
        self._recorded = recorded_as(components, own)
        self._counting = {item.name for item in counting(components)}
        others = [item for item in components if item.name not in self._recorded]
        self._columns = _by_name(others, computed)
        self.lacks = Lacks(by_name={item.name: Lack() for item in others if item.name in self._counting})

    def weigh(self, rollout: UUID, reward: float | None, parts: Mapping[str, float | None]) -> Weighed:
        """One rollout that counts, with the ``reward`` and the ``parts`` that its run recorded."""
        found: dict[str, float] = {}
        unrecorded = lacking = False
        for item in self.components:
            if item.name in self._recorded:
                value = parts.get(self._recorded[item.name])
                # A run that gave a reward had every component that counts for the row.
                unrecorded |= value is None and reward is None and item.name in self._counting
            else:
                value, missing = self._computed(item.name, rollout)
                lacking |= missing and item.name in self._counting
            if value is not None:
                found[item.name] = value
        self.lacks.rollouts += lacking
        total = None if unrecorded or lacking or not found else self._total(found)
        return Weighed(total, dict(found))

    def _computed(self, name: str, rollout: UUID) -> tuple[float | None, bool]:
        mark, lack = self._columns[name].marks.get(rollout), self.lacks.by_name.get(name, Lack())
        if mark is None:
            lack.unscored += 1
        elif mark.reason is not None:
            lack.failed[mark.reason] += 1
        elif mark.value is not None:
            lack.computed += 1
        return (None, True) if mark is None else (mark.value, mark.reason is not None)

    def _total(self, parts: Mapping[str, float]) -> float | None:
        total = total_of(terms_of(parts, self.components, SCHEDULES_ENDED), self.components)
        return total if math.isfinite(total) else None


def _by_name(components: Sequence[RewardComponent], columns: Columns) -> dict[str, Column]:
    return {item.name: columns.get(column_key(item), UNSEEN) for item in components}


def wanting(marks: Mapping[UUID, Mark], rollouts: Sequence[UUID]) -> list[UUID]:
    """The rollouts without a mark, and those whose value could not be computed: it may be tried again."""
    return [pk for pk in rollouts if pk not in marks or marks[pk].reason is not None]
