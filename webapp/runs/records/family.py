"""The family of a run: the runs that it continues, those that continue it, and the attempts and stages of each."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import NamedTuple
from uuid import UUID

from django.utils.translation import gettext as _

from webapp.runs.models import Attempt, Run

MOST, DEEPEST = 40, 12
FIELDS = ("pk", "name", "state", "step", "attempt", "parent_id", "resume_step", "health", "total_steps", "created_at")


class Tick(NamedTuple):
    """Where something began within a run: ``x`` in percent of the axis that all bars share."""

    x: float
    kind: str
    title: str


class Member(NamedTuple):
    """A run of the family as a bar from ``x`` on, ``width`` wide, in percent of the axis; ``depth`` counts from the
    first run, as far as pages set it apart."""

    run: Run
    depth: int
    here: bool
    began: int
    x: float
    width: float
    ticks: list[Tick]

    @property
    def told(self) -> str:
        """Its steps in words."""
        if self.run.step > self.began > 0:
            return _("steps %(first)s to %(last)s") % {"first": self.began, "last": self.run.step}
        if self.began:
            return _("from step %(step)s") % {"step": self.began}
        return _("step %(step)s") % {"step": self.run.step}


class Family(NamedTuple):
    """The members, each behind its parent; ``more`` were left out. ``steps`` is the length of the axis."""

    members: list[Member]
    steps: int
    more: bool


def family_of(run: Run) -> Family | None:
    """The family of a run; ``None`` for a run that is alone, with one attempt and one stage."""
    runs, more = _family_with_depth(run)
    if len(runs) == 1 and run.attempt <= 1 and len(_recorded_stages(run)) <= 1:
        return None
    attempts: dict[UUID, list[Attempt]] = defaultdict(list)
    for attempt in Attempt.objects.filter(run__in=[each.pk for each, _depth in runs]).order_by("number"):
        attempts[attempt.run_id].append(attempt)
    steps = max(1, *(each.step for each, _depth in runs))
    members = [_family_member(each, depth, attempts[each.pk], steps, here=each.pk == run.pk) for each, depth in runs]
    return Family(members, steps, more)


def _family_with_depth(run: Run) -> tuple[list[tuple[Run, int]], bool]:
    """The runs of the family with their depth, each behind its parent, and whether there are more."""
    above = _runs_before(run)
    first = above[0]
    known, level, more = [first], [first], False
    for _depth in range(DEEPEST):
        rows = Run.objects.filter(parent__in=[each.pk for each in level]).only(*FIELDS).order_by("created_at")
        level = list(rows[: MOST - len(known) + 1])
        more = len(known) + len(level) > MOST
        known += level[: MOST - len(known)]
        if more or not level:
            break
    if all(each.pk != run.pk for each in known):  # then its own line alone
        return [(each, depth) for depth, each in enumerate(above)], True
    children: dict[UUID | None, list[Run]] = defaultdict(list)
    for each in known[1:]:
        children[each.parent_id].append(each)
    return _in_order(first, children, 0), more


def _runs_before(run: Run) -> list[Run]:
    """The run after those that it continues, the first one first."""
    found = [run]
    while found[0].parent_id and len(found) < DEEPEST:
        parent = Run.objects.filter(pk=found[0].parent_id).only(*FIELDS).first()
        if parent is None:
            break
        found.insert(0, parent)
    return found


def _in_order(run: Run, children: dict[UUID | None, list[Run]], depth: int) -> list[tuple[Run, int]]:
    found = [(run, depth)]
    for child in children[run.pk]:
        found += _in_order(child, children, depth + 1)
    return found


def _recorded_stages(run: Run) -> list[dict[str, object]]:
    found = run.health.get("stages", []) if isinstance(run.health, dict) else []
    return list(found)


def _family_member(run: Run, depth: int, attempts: list[Attempt], steps: int, *, here: bool) -> Member:
    began = run.resume_step or 0

    def x(step: int) -> float:
        return round(100 * step / steps, 2)

    later = [
        Tick(x(each.first_step), "attempt", _("Attempt %(n)s begins after step %(step)s") % _attempt_values(each))
        for each in attempts[1:]
    ]
    stages = [_stage_tick(each, x) for each in _recorded_stages(run)[1:]]
    return Member(run, min(depth, 6), here, began, x(began), max(x(run.step) - x(began), 0.0), [*later, *stages])


def _stage_tick(found: dict[str, object], x: Callable[[int], float]) -> Tick:
    began = int(str(found["began"]))
    told = _("Stage “%(name)s” begins after step %(step)s") % {"name": found["name"], "step": began}
    return Tick(x(began), "stage", told)


def _attempt_values(attempt: Attempt) -> dict[str, int]:
    return {"n": attempt.number, "step": attempt.first_step}
