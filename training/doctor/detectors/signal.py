"""What the groups teach: nothing, something else than the task, or the opposite."""

from __future__ import annotations

from training.doctor.finding import Finding, percent
from training.doctor.history import History, mean
from training.doctor.options import DoctorOptions

MIN_CASES = 3


def no_spread(history: History, options: DoctorOptions) -> Finding | None:
    """Most groups have equal rewards."""
    curve, steps = "groups/zero_variance_share", 2 * history.window
    shares = history.recent(curve, steps)
    points = history.points(curve)
    if not shares:
        points = history.shares("flat", "groups")
        shares = [value for _step, value in points[-steps:]]
    if len(shares) < steps or mean(shares) < options.no_spread_share:
        return None
    solved = mean(history.recent("success") or history.recent("rollouts/task_success") or [0.0])
    figures: dict[str, str | int] = {"share": percent(mean(shares)), "solved": percent(solved)}
    return Finding(figures, {curve: points}, history.witnesses("flat"))


def phantom_share(history: History, options: DoctorOptions) -> Finding | None:
    """In many groups the rewards differ although all outcomes are the same."""
    steps = 2 * history.window
    cases, groups = history.pooled("phantom", "groups", steps)
    if len(history.recent("groups", steps)) < steps or cases < MIN_CASES or cases < options.phantom_share * groups:
        return None
    figures: dict[str, str | int] = {"cases": int(cases), "groups": int(groups)}
    return Finding(figures, {"phantom_share": history.shares("phantom", "groups")}, history.witnesses("phantom"))


def shaping_above_outcome(history: History, options: DoctorOptions) -> Finding | None:
    """In groups with mixed outcomes, one that did not solve the task earns the most."""
    cases, groups = history.pooled("inverted", "mixed")
    if cases < MIN_CASES or cases < options.inverted_share * groups:
        return None
    figures: dict[str, str | int] = {"cases": int(cases), "groups": int(groups)}
    return Finding(figures, {"inverted_share": history.shares("inverted", "mixed")}, history.witnesses("inverted"))
