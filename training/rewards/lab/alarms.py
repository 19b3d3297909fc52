"""The most frequent faults of rewards, found in a set and shown by its rollouts.

Every alarm has a rule with a threshold, figures that made it speak, and up to five rollouts as evidence. A rule that
has too little to go by says nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from training.config import RewardComponent
from training.rewards.combining import ZERO_VARIANCE_TOLERANCE
from training.rewards.lab.figures import (
    Outcome,
    Scored,
    Statistics,
    bounds_of,
    correlation,
    group_of,
    statistics,
    within,
    worth_of,
)
from training.rewards.lab.rules import (
    ALARMS,
    CUT_SHARE,
    DEGENERATE,
    EVIDENCE,
    FLAT_SHARE,
    FLAT_STOP,
    INVERTED_SHARE,
    LENGTH_GAIN,
    LENGTH_R,
    LOOP_REPEATS,
    LOOP_SHARE,
    LYING,
    MIN_CASES,
    MIN_ROLLOUTS,
    PAID_SHARE,
    PHANTOM_SHARE,
    RIGHT,
    SILENT,
    UNPAID_SHARE,
)
from training.rewards.lab.scoring import is_asked
from training.rewards.lab.table import Bools, Floats, Table
from training.shares import share_interval

Severity = Literal["stop", "warn", "note"]


@dataclass(frozen=True)
class Alarm:
    """One alarm with the figures of its sentence, and places of rollouts that show it."""

    code: str
    severity: Severity
    component: str | None
    figures: dict[str, float]
    places: list[int]
    other: bool = False

    @property
    def sentence(self) -> str:
        """Its sentence, before its figures are put in."""
        return ALARMS[self.code].other if self.other else ALARMS[self.code].sentence


class _Case(NamedTuple):
    """The data that all rules look at."""

    table: Table
    found: Scored
    outcome: Outcome | None
    within: Statistics
    success: Bools  # did the task; False where that is unknown
    failed: Bools  # is known not to have done it

    @property
    def reward(self) -> Floats:
        return self.found.reward


class Ranking(NamedTuple):
    """Of ``groups`` whose rollouts differ in outcome, ``cases`` give their highest reward to a worse outcome, and
    ``ties`` to a worse and to the best one alike."""

    cases: int
    ties: int
    groups: int

    @property
    def is_grave(self) -> bool:
        """Whether shaping outweighs the outcome."""
        return self.cases >= MIN_CASES and self.cases >= INVERTED_SHARE * self.groups

    @property
    def is_clear(self) -> bool:
        """Whether so many groups are in order that more than a few in disorder elsewhere are unlikely."""
        return not self.cases and not self.ties and share_interval(0, self.groups)[1] <= INVERTED_SHARE


def ranking_of(table: Table, found: Scored, outcome: Outcome | None) -> Ranking | None:
    """How often a spec ranks a failure above a success; ``None`` where no outcome is known."""
    return None if outcome is None else _order(_case_of(table, found, outcome)).ranking


def _case_of(table: Table, found: Scored, outcome: Outcome | None) -> _Case:
    of = group_of(table)
    value = np.full(table.size, np.nan) if outcome is None else outcome.value
    best = float(np.nanmax(value)) if np.isfinite(value).any() else math.nan
    known = found.included & np.isfinite(value)
    # Full marks, where a rollout has them: a set in which none did the task has no success.
    success = known & (value >= max(best, 1.0) - 1e-9)
    return _Case(table, found, outcome, statistics(found.reward, of, table.groups), success, known & ~success)


def alarms_of(table: Table, found: Scored, outcome: Outcome | None) -> list[Alarm]:
    """All alarms of a set under a spec, the gravest first."""
    case = _case_of(table, found, outcome)
    rules = (
        _looping,
        _answers,
        _unpaid,
        _shaping,
        _length,
        _cut,
        _constant,
        _ceiling,
        _flat,
        _phantom,
        _no_outcome,
        _no_judge,
    )
    alarms = [alarm for rule in rules for alarm in rule(case)]
    return sorted(alarms, key=lambda alarm: ("stop", "warn", "note").index(alarm.severity))


def _looping(case: _Case) -> Iterator[Alarm]:
    table = case.table
    loops = (table.repeats >= LOOP_REPEATS) & (table.repeats >= LOOP_SHARE * table.actions) & ~case.success
    names = {name: number for number, name in enumerate(table.meta["policies"])}
    kinds = [table.policy == names[name] for name in DEGENERATE if name in names]
    degenerate = np.any(kinds, axis=0) if kinds else np.zeros(table.size, np.bool_)
    for kind in (*kinds, loops & ~degenerate):
        paid = case.found.included & kind & ~case.success
        if int(paid.sum()) < MIN_CASES:
            continue
        mean, against = float(case.reward[paid].mean()), _reference(case, ~(loops | degenerate))
        if against is not None and mean >= PAID_SHARE * against and against > 0:
            yield Alarm(
                "looping_pays",
                "stop",
                _payer(case, paid),
                {"cases": int(paid.sum()), "mean": mean, "against": against},
                _highest(case.reward, paid),
            )


def _answers(case: _Case) -> Iterator[Alarm]:
    """What the outcome makes of answers that the test-bed knows to be wrong, and to be right."""
    wrong, right = (_played_by(case, policies) for policies in (LYING, RIGHT))
    accepted, refused = wrong & case.success, right & case.failed
    if not accepted.any() and not refused.any():
        return
    figures: dict[str, float] = {
        "accepted": int(accepted.sum()),
        "wrong": int(wrong.sum()),
        "refused": int(refused.sum()),
        "right": int(right.sum()),
    }
    severity: Severity = "stop" if accepted.any() else "warn"
    name = case.outcome.name if case.outcome is not None else ""
    shown = _highest(case.reward, accepted if accepted.any() else refused)
    yield Alarm("answers_misjudged", severity, name, figures, shown, other=not accepted.any())


def _played_by(case: _Case, policies: Sequence[str]) -> Bools:
    """The rollouts of some policies of the test-bed whose task had a right answer that they knew."""
    numbers = [number for number, name in enumerate(case.table.meta["policies"]) if name in policies]
    known = case.success | case.failed
    return known & np.isin(case.table.policy, numbers) & ~np.isin(case.table.length, SILENT)


def _reference(case: _Case, honest: Bools) -> float | None:
    """What rollouts earn that do the task, else those that try, else what the spec can give at most."""
    honest = honest & case.found.included
    for chosen in (honest & case.success, honest):
        if int(chosen.sum()) >= MIN_CASES:
            return float(case.reward[chosen].mean())
    return ceiling(case.found.components)


def _unpaid(case: _Case) -> Iterator[Alarm]:
    """Whether an outcome that differs within groups makes any difference to the reward; else whether it can."""
    found = list(_unpaid_here(case)) if case.outcome is not None else []
    if not found and worth_of(case.found.components).unpaid:
        found = [Alarm("outcome_unpaid", "stop", None, {}, [], other=True)]
    yield from found


def _unpaid_here(case: _Case) -> Iterator[Alarm]:
    of = group_of(case.table)
    mixed, best, worse = _mixed(case)
    if int(mixed.sum()) < MIN_CASES or case.outcome is None:
        return
    means = [statistics(np.where(mask, case.reward, np.nan), of, case.table.groups).mean for mask in (best, worse)]
    gain = float((means[0] - means[1])[mixed].mean())
    spread = float(np.subtract(*np.percentile(case.reward[case.found.included], [95, 5])))
    if spread > 0 and gain < UNPAID_SHARE * spread:
        figures = ranked(_order(case).ranking) | {"gain": gain, "spread": spread}
        shown = _highest(case.reward, mixed[of] & worse)
        yield Alarm("outcome_unpaid", "stop", _payer(case, case.found.included, but=case.outcome.name), figures, shown)


def _mixed(case: _Case) -> tuple[Bools, Bools, Bools]:
    """The groups whose outcomes differ; the rollouts with the best outcome of their group, and the others."""
    table, of = case.table, group_of(case.table)
    value = np.where(case.found.included, case.outcome.value if case.outcome else np.nan, np.nan)
    seen = statistics(value, of, table.groups)
    best = np.isfinite(value) & (value >= seen.high[of] - ZERO_VARIANCE_TOLERANCE)
    return ~seen.flat & (seen.members >= 2), best, np.isfinite(value) & ~best


class _Order(NamedTuple):
    """``mixed``: the groups whose outcomes differ. ``worse``: the rollouts below the best outcome of their group.
    ``lead``: by how much the highest reward of the best outcome is above that of a worse one; 0 of other groups."""

    mixed: Bools
    worse: Bools
    lead: Floats

    @property
    def inverted(self) -> Bools:
        """The groups in which a worse outcome has the highest reward."""
        return self.mixed & (self.lead < -ZERO_VARIANCE_TOLERANCE)

    @property
    def ranking(self) -> Ranking:
        """How many groups are inverted or tied."""
        ties = self.mixed & (np.abs(self.lead) <= ZERO_VARIANCE_TOLERANCE)
        return Ranking(int(self.inverted.sum()), int(ties.sum()), int(self.mixed.sum()))


def _order(case: _Case) -> _Order:
    table, of = case.table, group_of(case.table)
    mixed, best, worse = _mixed(case)
    tops = [statistics(np.where(mask, case.reward, np.nan), of, table.groups).high for mask in (best, worse)]
    return _Order(mixed, worse, np.subtract(*(np.where(mixed, top, 0.0) for top in tops)))


def ranked(ranking: Ranking) -> dict[str, float]:
    """How many groups rank a failure above a success, with the share and its 95% interval in percent."""
    cases, groups = ranking.cases, ranking.groups
    low, high = share_interval(cases, groups)
    return {"cases": cases, "groups": groups, "share": 100 * cases / groups, "low": 100 * low, "high": 100 * high}


def _shaping(case: _Case) -> Iterator[Alarm]:
    if case.outcome is None:
        return
    order = _order(case)
    ranking = order.ranking
    if ranking.is_grave:
        paid = order.inverted[group_of(case.table)] & order.worse
        yield Alarm(
            "shaping_over_outcome",
            "stop",
            _payer(case, paid, but=case.outcome.name),
            ranked(ranking),
            _highest(case.reward, paid),
        )
    elif figures := _shaping_range(case):
        yield Alarm(
            "shaping_over_outcome",
            "stop",
            _payer(case, case.found.included, but=case.outcome.name),
            figures,
            _highest(case.reward, case.failed),
            other=True,
        )


def _shaping_range(case: _Case) -> dict[str, float]:
    """How far shaping spreads, where that is wider than the outcome's whole range is worth."""
    outcome = next((c for c in case.found.components if case.outcome and c.name == case.outcome.name), None)
    if outcome is None or outcome.weight == 0 or int(case.found.included.sum()) < MIN_ROLLOUTS:
        return {}
    low, high = bounds_of(outcome)
    worth = abs(outcome.weight) * (high - low)
    shaping = (case.reward - case.found.weighed(outcome))[case.found.included]
    spread = float(np.subtract(*np.percentile(shaping, [95, 5])))
    return {"shaping": spread, "worth": worth} if spread > worth else {}


def _length(case: _Case) -> Iterator[Alarm]:
    included = case.found.included
    by = np.zeros(case.table.size)
    if case.outcome is not None:  # those without one are compared with one another
        by = np.nan_to_num(case.outcome.value.round(1), nan=-math.inf)
    reward = within(np.where(included, case.reward, np.nan), by)
    length = within(np.where(included, case.table.length, np.nan), by)
    r = correlation(reward, length)
    if int(included.sum()) < MIN_ROLLOUTS or r is None or r < LENGTH_R:
        return
    low, high = np.nanpercentile(length, [25, 75])
    gain = float(np.nanmean(reward[length >= high]) - np.nanmean(reward[length <= low]))
    if gain < LENGTH_GAIN * float(np.nanstd(case.reward)):
        return
    longest = included & (length >= high)
    figures = {"r": r, "gain": gain}
    yield Alarm("grows_with_length", "warn", _longest_payer(case), figures, _highest(case.reward, longest))


def _longest_payer(case: _Case) -> str:
    """The component whose part of the reward goes most with the length."""
    included = case.found.included
    length = case.table.length[included] - case.table.length[included].mean()
    parts = {item.name: case.found.weighed(item)[included] for item in case.found.components}
    return max(parts, key=lambda name: float((parts[name] * length).sum()))


def _cut(case: _Case) -> Iterator[Alarm]:
    cut = case.table.cut & case.failed
    against = _reference(case, ~case.table.cut & case.success)
    if against is None or against <= 0 or int(cut.sum()) < MIN_CASES:
        return
    paid = cut & (np.nan_to_num(case.reward, nan=-math.inf) >= PAID_SHARE * against)
    cases = int(paid.sum())
    if cases >= MIN_CASES and cases >= CUT_SHARE * int(cut.sum()):
        figures = {"cases": cases, "cut": int(cut.sum()), "mean": float(case.reward[paid].mean()), "against": against}
        yield Alarm("cut_episodes_pay", "stop", _payer(case, paid), figures, _highest(case.reward, paid))


def _constant(case: _Case) -> Iterator[Alarm]:
    for item in case.found.components:
        term = case.found.terms[item.name][case.found.included]
        term = term[np.isfinite(term)]
        if item.weight and len(term) >= MIN_ROLLOUTS and float(np.ptp(term)) <= 1e-9:
            figures = {"value": float(term[0]), "rollouts": len(term)}
            yield Alarm("constant_component", "note", item.name, figures, _some(case.found.included))


def _ceiling(case: _Case) -> Iterator[Alarm]:
    top = ceiling(case.found.components)
    if top is not None and top < 1 - 1e-9:
        yield Alarm("ceiling_below_one", "note", None, {"ceiling": top}, [])


def _flat(case: _Case) -> Iterator[Alarm]:
    several = case.within.members >= 2
    flat, groups = case.within.flat & several, int(several.sum())
    if groups >= MIN_CASES and flat.sum() >= FLAT_SHARE * groups:
        cases = int(flat.sum())
        places = [int(case.table.starts[group]) for group in np.flatnonzero(flat)[:EVIDENCE]]
        severity: Severity = "stop" if cases >= FLAT_STOP * groups else "warn"
        yield Alarm("zero_variance", severity, None, {"cases": cases, "groups": groups}, places)


def phantom_of(table: Table, found: Scored, outcome: Outcome | None, seen: Statistics) -> Bools:
    """The groups whose rewards differ although the outcome of all their rollouts is known and the same."""
    if outcome is None:
        return np.zeros(table.groups, np.bool_)
    value = statistics(np.where(found.included, outcome.value, np.nan), group_of(table), table.groups)
    return np.asarray(~seen.flat & value.flat & (value.members == seen.members))


def _phantom(case: _Case) -> Iterator[Alarm]:
    phantom = phantom_of(case.table, case.found, case.outcome, case.within)
    cases, groups = int(phantom.sum()), int((case.within.members >= 2).sum())
    if cases >= MIN_CASES and cases >= PHANTOM_SHARE * groups:
        places = [int(case.table.starts[group]) for group in np.flatnonzero(phantom)[:EVIDENCE]]
        yield Alarm("phantom_groups", "note", None, {"cases": cases, "groups": groups}, places)


def _no_outcome(case: _Case) -> Iterator[Alarm]:
    unknown = case.found.included if case.outcome is None else case.found.included & np.isnan(case.outcome.value)
    missing, rollouts = int(unknown.sum()), int(case.found.included.sum())
    if missing > rollouts / 10:
        yield Alarm("outcome_missing", "warn", None, {"missing": missing, "rollouts": rollouts}, _some(unknown))


def _no_judge(case: _Case) -> Iterator[Alarm]:
    for item in case.found.components:
        missing = case.found.missing[item.name]
        if not is_asked(item) and missing.any():
            yield Alarm("judge_missing", "warn", item.name, {"missing": int(missing.sum())}, _some(missing))


def ceiling(components: Sequence[RewardComponent]) -> float | None:
    """The highest reward that a spec can give under its bounds; ``None`` where nothing bounds it."""
    total = 0.0
    for item in components:
        low, high = bounds_of(item)
        top = max(item.weight * low, item.weight * high) if item.weight else 0.0
        total += max(0.0, top) if item.gate is not None or item.categories else top
    return total if math.isfinite(total) else None


def _payer(case: _Case, paid: Bools, *, but: str = "") -> str | None:
    """The component that gives these rollouts the most."""
    paid = paid & case.found.included
    given = {
        item.name: float(case.found.weighed(item)[paid].sum()) for item in case.found.components if item.name != but
    }
    return max(given, key=lambda name: given[name]) if given and paid.any() else None


def _highest(reward: Floats, chosen: Bools) -> list[int]:
    places = np.flatnonzero(chosen)
    order = np.argsort(-np.nan_to_num(reward[places], nan=-math.inf), kind="stable")
    return [int(place) for place in places[order[:EVIDENCE]]]


def _some(chosen: Bools) -> list[int]:
    return [int(place) for place in np.flatnonzero(chosen)[:EVIDENCE]]
