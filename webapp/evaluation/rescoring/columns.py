"""Values of components by rollout: reads and keeps what was computed, and weighs recorded rollouts by a spec."""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

import numpy as np
from django.db import transaction

from training.config import RewardComponent
from training.rewards.combining import SCHEDULES_ENDED, terms_of, total_of
from training.rewards.lab import component_key
from training.words import Sentence
from webapp.common.text import clean_json
from webapp.evaluation.rescoring.models import ComputedColumn
from webapp.runs.models import Run

KNOWN, UNCOUNTED = -1, -2
MAX_REASONS = 200


class Mark(NamedTuple):
    """What is known of a component in one rollout. No ``value``: it does not count there, or has a ``reason``."""

    value: float | None
    reason: Sentence | None = None


@dataclass
class Column:
    """The marks of one component, by rollout. ``version`` changes with every change."""

    marks: dict[UUID, Mark] = field(default_factory=dict)
    version: int = 0

    def known(self) -> dict[UUID, float]:
        """The values."""
        return {pk: mark.value for pk, mark in self.marks.items() if mark.value is not None}


Columns = Mapping[str, Column]


def column_key(component: RewardComponent) -> str:
    """The key of a component's column."""
    key = component_key(component)
    if not component.categories:
        return key
    categories = json.dumps(sorted(component.categories), ensure_ascii=False)
    return f"{key}-{hashlib.sha256(categories.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"


def columns_of(run: Run, components: Iterable[RewardComponent]) -> dict[str, Column]:
    """The computed columns of these components for a run, by key; components that were not computed are left out."""
    return columns_of_runs([run], components).get(run.pk, {})


def columns_of_runs(runs: Sequence[Run], components: Iterable[RewardComponent]) -> dict[UUID, dict[str, Column]]:
    """The same for several runs, in one query."""
    rows = ComputedColumn.objects.filter(run__in=runs, key__in={column_key(item) for item in components})
    found: dict[UUID, dict[str, Column]] = {}
    for row in rows:
        found.setdefault(row.run_id, {})[row.key] = _unpack_column(row)
    return found


def versions_of(runs: Sequence[Run], components: Iterable[RewardComponent]) -> tuple[tuple[str, str, int], ...]:
    """Which columns there are in which version: what was read before them may be kept while this stays the same."""
    rows = ComputedColumn.objects.filter(run__in=runs, key__in={column_key(item) for item in components})
    return tuple(sorted((str(run), key, version) for run, key, version in rows.values_list("run", "key", "version")))


def values_of_function(run: Run, component: RewardComponent) -> dict[UUID, float]:
    """The known values of a component's function with its parameters, for any categories."""
    found: dict[UUID, float] = {}
    for row in ComputedColumn.objects.filter(run=run, key__startswith=component_key(component)):
        found |= _unpack_column(row).known()
    return found


def column_merge(run: Run, component: RewardComponent, marks: Mapping[UUID, Mark]) -> None:
    """Keep more marks of a column; a value that is known is not replaced by a reason."""
    if not marks:
        return
    key = column_key(component)
    with transaction.atomic():
        ComputedColumn.objects.get_or_create(run=run, key=key, defaults={"name": component.name[:200], "version": 0})
        # Locked: of two workers with the same column neither may overwrite the other's marks.
        row = ComputedColumn.objects.select_for_update().get(run=run, key=key)
        known = _unpack_column(row).marks
        for pk, mark in marks.items():
            if mark.reason is None or pk not in known or known[pk].reason is not None:
                known[pk] = mark
        _pack_marks(row, known)
        row.version += 1
        row.save(update_fields=["ids", "values", "codes", "reasons", "version", "changed_at"])


def _unpack_column(row: ComputedColumn) -> Column:
    ids, reasons = bytes(row.ids), [Sentence.of(item) for item in row.reasons]
    values = np.frombuffer(bytes(row.values), "<f8").tolist()
    codes = np.frombuffer(bytes(row.codes), "<i4").tolist()
    uncounted, missing = Mark(None), [Mark(None, reason) for reason in reasons]
    marks = {}
    for place, (value, code) in enumerate(zip(values, codes, strict=True)):
        pk = UUID(bytes=ids[16 * place : 16 * place + 16])
        marks[pk] = Mark(value) if code == KNOWN else uncounted if code == UNCOUNTED else missing[code]
    return Column(marks, row.version)


def _pack_marks(row: ComputedColumn, marks: Mapping[UUID, Mark]) -> None:
    places: dict[str, int] = {}
    reasons: list[Sentence] = []
    codes = []
    for mark in marks.values():
        if mark.reason is None:
            codes.append(UNCOUNTED if mark.value is None else KNOWN)
            continue
        if str(mark.reason) not in places:
            if len(reasons) < MAX_REASONS:
                reasons.append(mark.reason)
            places[str(mark.reason)] = len(reasons) - 1
        codes.append(places[str(mark.reason)])
    row.ids = b"".join(pk.bytes for pk in marks)
    row.values = np.array([np.nan if mark.value is None else mark.value for mark in marks.values()], "<f8").tobytes()
    row.codes = np.array(codes, "<i4").tobytes()
    row.reasons = clean_json([reason.data for reason in reasons])


# --- Weighing -------------------------------------------------------------------------------------------------------
# Recorded rollouts under a spec that their run may not have had: the value of each component for each rollout.
#
# A value is the recorded one where the run scored by the same function with the same parameters and categories, else
# the one that was computed from the transcript (``webapp.evaluation.rescoring.tasks``). Missing is never 0: a rollout
# without a value of a counted component has no reward.

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
