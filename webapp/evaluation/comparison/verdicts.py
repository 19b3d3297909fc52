"""One sentence on which of two contestants is better, or on why that is not known."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import NamedTuple
from uuid import UUID

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from training.evaluation.paired import ALPHA, FLOOR, Paired, holm
from webapp.evaluation.comparison.contestants import Contestant
from webapp.evaluation.comparison.figures import Numbers, same_tasks
from webapp.launch.learned.overlap import Overlap, overlaps_of


class Verdict(NamedTuple):
    """A pair, the better one first where ``told`` (the two can be told apart); ``p_value`` is corrected for all pairs
    of the page."""

    better: Contestant
    worse: Contestant
    told: bool
    text: str
    p_value: float | None


def verdicts(contestants: Sequence[Contestant], numbers: Numbers) -> list[Verdict]:
    """A verdict for each pair that played the same tasks, those that can be told apart first."""
    corrected = holm([found.p_value for found in numbers.pairs.values()])
    learned = overlaps_of(item.run for item in contestants)
    made = [
        _with_overlap(
            _verdict_of_pair(
                contestants[a], contestants[b], max(numbers.sheets[a].most, numbers.sheets[b].most), found, p_value
            ),
            learned,
        )
        for ((a, b), found), p_value in zip(numbers.pairs.items(), corrected, strict=True)
    ]
    return sorted(made, key=lambda verdict: (not verdict.told, 1.0 if verdict.p_value is None else verdict.p_value))


def _with_overlap(verdict: Verdict, learned: Mapping[UUID, Overlap]) -> Verdict:
    """The verdict with how many of the tasks either learned from."""
    said = [verdict.text]
    for item in (verdict.better, verdict.worse):
        overlap = learned.get(item.run.pk, Overlap())
        values = {"run": item.run.name, "seen": overlap.seen, "tasks": overlap.tasks}
        if overlap.seen is None:
            said.append(_("%(run)s learned from these tasks.") % values)
        elif overlap.seen:
            said.append(_("%(run)s learned from %(seen)d of these %(tasks)d tasks.") % values)
    return verdict._replace(text=" ".join(said))


def learned_notes(contestants: Sequence[Contestant]) -> list[str]:
    """For each contestant, a note on how many of its tasks it learned from."""
    learned = overlaps_of(item.run for item in contestants)
    named = [(item.run.name, learned[item.run.pk].words) for item in contestants if item.run.pk in learned]
    return [_("%(run)s: %(learned)s.") % {"run": name, "learned": words} for name, words in named if words]


def different_tasks(contestants: Sequence[Contestant]) -> list[tuple[Contestant, Contestant]]:
    """Pairs that cannot be compared by task."""
    return [(a, b) for a, b in combinations(contestants, 2) if not same_tasks(a, b)]


def _verdict_of_pair(a: Contestant, b: Contestant, tries: int, found: Paired, p_value: float | None) -> Verdict:
    swap = (found.difference.value or 0.0) < 0
    better, worse = (a, b) if swap else (b, a)
    sign = -1 if swap else 1
    wins, losses = (found.losses, found.wins) if swap else (found.wins, found.losses)
    told = p_value is not None and p_value <= ALPHA
    values = {
        "better": better.run.name,
        "worse": worse.run.name,
        "wins": wins,
        "losses": losses,
        "points": _points_text(sign, found),
        "p": p_text(p_value, floor=at_floor(found.p_value)),
        "n": _count_text(found.tasks, tries),
    }
    if told:
        text = _(
            "%(better)s solves %(wins)d tasks more often than not that %(worse)s does not; the reverse holds for "
            "%(losses)d: success %(points)s, %(p)s, n = %(n)s."
        )
    elif found.needed is not None:
        values["needed"] = _round_up(found.needed)
        text = _(
            "%(better)s and %(worse)s cannot be told apart: success %(points)s, %(p)s, n = %(n)s. About %(needed)s "
            "tasks would be needed."
        )
    else:
        text = _("%(better)s and %(worse)s cannot be told apart: success %(points)s, %(p)s, n = %(n)s.")
    return Verdict(better, worse, told, text % values, p_value)


def _points_text(sign: int, found: Paired) -> str:
    """``+7.8 points (95%: 4.1 to 11.6)``."""
    value, low, high = found.difference.value, found.difference.low, found.difference.high
    shown = _("%(value)s points") % {"value": _signed_number(100 * sign * (value or 0.0))}
    if low is None or high is None:
        return shown
    ends = sorted((100 * sign * low, 100 * sign * high))
    return _("%(points)s (95%%: %(low)s to %(high)s)") % {
        "points": shown,
        "low": _one_decimal(ends[0]),
        "high": _one_decimal(ends[1]),
    }


def _signed_number(value: float) -> str:
    return _one_decimal(value) if value < 0 else f"+{_one_decimal(value)}"


def _one_decimal(value: float) -> str:
    return f"{value + 0.0:.1f}".replace("-", "−")


def at_floor(p_value: float | None) -> bool:
    """Whether a p-value, before it was corrected, is the least that its test can give: then only a bound is known."""
    return p_value is not None and p_value <= FLOOR


def p_text(p_value: float | None, *, floor: bool = False) -> str:
    """A p-value as it is printed, with its sign: never 0, and a bound of one digit where only a bound is known."""
    if p_value is None:
        return "p –"
    if floor and p_value >= 1e-4:
        unit = 10.0 ** math.floor(math.log10(p_value))
        return f"p < {(math.floor(p_value / unit) + 1) * unit:.1g}"
    return "p < 0.0001" if p_value < 1e-4 else f"p = {p_value:.2g}"


def _count_text(tasks: int, tries: int) -> str:
    shown = ngettext("%(n)s task", "%(n)s tasks", tasks) % {"n": f"{tasks:,}"}
    return shown if tries <= 1 else f"{shown} × {tries}"


def _round_up(tasks: int) -> str:
    """Two digits: more would be claimed than is known."""
    if tasks > 1_000_000:
        return _("more than a million")
    digits = 10 ** max(0, len(str(tasks)) - 2)
    return f"{-(-tasks // digits) * digits:,}"
