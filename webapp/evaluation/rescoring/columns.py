"""Values of components by rollout: reads and keeps what was computed for each run.

A column is identified by its component's function with all of its parameters (custom code by its text) and by the
categories that it counts for, so that another spec with other weights, clips, gates or schedules needs nothing computed
again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

import numpy as np
from django.db import transaction

from training.config import RewardComponent
from training.rewards.lab.values import component_key
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
