"""What saving a view would keep and leave out, shown before it is saved."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from django.core.exceptions import ValidationError
from django.db.models import Count, Max, Min, Q
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from webapp.datasets.pairs import BOUNDS, pairs_problem
from webapp.reading.inspector.finding import View
from webapp.reading.inspector.saving import CASES_MOST, groups_of
from webapp.rewards.lab.sets import recorded_rollouts
from webapp.runs.models import Run
from webapp.runs.rollouts.models import Rollout, RolloutStatus

BACK = (RolloutStatus.EXCLUDED, RolloutStatus.RUNNING)


class Would(NamedTuple):
    """What one way to save would make: ``keeps`` things, named by ``says``, and why others are ``left_out``.
    ``problem`` where nothing can be saved in this way; then ``keeps`` is 0."""

    kind: str
    keeps: int
    says: str
    left_out: tuple[str, ...] = ()
    problem: str = ""


def would_save(view: View) -> dict[str, Would]:
    """All ways but the named view, which keeps no rollouts. A view of more than can be saved at once is not counted."""
    if view.count.more:
        why = _("More than %(n)s rollouts match. Narrow the view, then save it.") % {"n": view.count.number}
        return {kind: Would(kind, 0, "", problem=why) for kind in ("demonstrations", "tasks", "pairs", "lab", "cases")}
    of_rollouts = (_would_demonstrations(view), _would_tasks(view), _would_cases(view))
    return {each.kind: each for each in (*of_rollouts, *_would_by_groups(view))}


def _would_demonstrations(view: View) -> Would:
    learned = ~Q(status__in=BACK) & Q(held_out=False)
    found = view.rows.aggregate(
        all=Count("pk"),
        lost=Count("pk", filter=Q(status__in=BACK)),
        held=Count("pk", filter=~Q(status__in=BACK) & Q(held_out=True)),
        unread=Count("pk", filter=learned & Q(parse_errors__gt=0)),
    )
    keeps = found["all"] - found["lost"] - found["held"] - found["unread"]
    says = ngettext("at most %(n)s conversation", "at most %(n)s conversations", keeps) % {"n": keeps}
    return Would(
        "demonstrations", keeps, says,
        tuple(_reason_texts([
            (found["lost"], _("excluded or in flight: %(n)s")),
            (found["held"], _("on held-out tasks: %(n)s")),
            (found["unread"], _("with unreadable calls: %(n)s")),
        ])),
    )  # fmt: skip


def _would_tasks(view: View) -> Would:
    found = view.rows.aggregate(
        held=Count("pk", filter=Q(held_out=True)), without=Count("pk", filter=Q(held_out=False, row__isnull=True))
    )
    rows = view.rows.filter(held_out=False, row__isnull=False).order_by().values("run", "row").distinct()
    keeps = rows.count()
    says = ngettext("at most %(n)s task", "at most %(n)s tasks", keeps) % {"n": keeps}
    reasons = [
        (found["held"], _("rollouts on held-out tasks: %(n)s")),
        (found["without"], _("rollouts of no dataset's row: %(n)s")),
    ]
    return Would("tasks", keeps, says, tuple(_reason_texts(reasons)))


def _would_cases(view: View) -> Would:
    found = view.rows.aggregate(all=Count("pk"), scored=Count("pk", filter=Q(reward__isnull=False)))
    keeps = found["scored"]
    if keeps > CASES_MOST:
        why = _("%(found)s rollouts have a reward, and %(n)s can become test cases at once. Narrow the view.")
        return Would("cases", 0, "", problem=why % {"found": keeps, "n": CASES_MOST})
    says = ngettext("%(n)s test case", "%(n)s test cases", keeps) % {"n": keeps}
    return Would("cases", keeps, says, tuple(_reason_texts([(found["all"] - keeps, _("without a reward: %(n)s"))])))


def _would_by_groups(view: View) -> Iterator[Would]:
    """Pairs and sets for the lab, which are of whole groups of one run."""
    try:
        run, groups = groups_of(view)
    except ValidationError as exc:
        why = " ".join(exc.messages)
        yield from (Would(kind, 0, "", problem=why) for kind in ("pairs", "lab"))
        return
    held = tuple(_reason_texts([(view.rows.filter(held_out=True).count(), _("on held-out tasks: %(n)s"))]))
    if why := pairs_problem(run):
        yield Would("pairs", 0, "", problem=why)
    else:
        yield _would_pairs(gaps_in(run, groups), groups, held)
    steps = [step for step, _group in groups]
    rows = recorded_rollouts(run, min(steps), max(steps)).order_by().values_list("step", "group")
    number = sum((step, group) in groups for step, group in rows)
    said = {"groups": len(groups), "n": number}
    says = ngettext("%(n)s rollout (groups: %(groups)s)", "%(n)s rollouts (groups: %(groups)s)", number) % said
    yield Would("lab", number, says, held)


def _would_pairs(
    gaps: list[tuple[tuple[int, int], float]], groups: set[tuple[int, int]], held: tuple[str, ...]
) -> Would:
    keeps = sum(gap > 0 for _group, gap in gaps)
    says = ngettext("at most %(n)s pair", "at most %(n)s pairs", keeps) % {"n": keeps}
    if keeps:
        says += f" ({', '.join(f'≥ {bound:g}: {sum(gap >= bound for _group, gap in gaps)}' for bound in BOUNDS)})"
    reasons = [
        (sum(gap == 0 for _group, gap in gaps), _("groups whose rewards are equal: %(n)s")),
        (len(groups - {group for group, _gap in gaps}), _("groups without two rewards that count: %(n)s")),
    ]
    return Would("pairs", keeps, says, (*_reason_texts(reasons), *held))


def gaps_in(run: Run, groups: set[tuple[int, int]]) -> list[tuple[tuple[int, int], float]]:
    """By how much the best and the worst reward differ in each of these groups, among rollouts that can be learned
    from. A group with fewer than two of them is left out; one that several attempts played is in it once for each."""
    steps = [step for step, _group in groups]
    known = Rollout.objects.filter(run=run, held_out=False, reward__isnull=False, parse_errors=0)
    within = known.filter(step__gte=min(steps), step__lte=max(steps)).order_by()
    found = within.values("attempt", "step", "group").annotate(gap=Max("reward") - Min("reward"), n=Count("pk"))
    placed = [((each["step"], each["group"]), each["gap"]) for each in found if each["n"] > 1]
    return [(group, gap) for group, gap in placed if group in groups and math.isfinite(gap)]


def _reason_texts(counted: list[tuple[int, str]]) -> Iterator[str]:
    """A text for each reason whose count is not 0."""
    return (words % {"n": number} for number, words in counted if number)
