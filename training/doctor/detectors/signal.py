"""What the groups teach: nothing, something else than the task, or the opposite."""

from __future__ import annotations

from training.doctor.finding import Finding, percent
from training.doctor.history import History, mean
from training.doctor.options import DoctorOptions

MIN_CASES = 3
MIN_SILENT = 16
LEARNED = 0.8
"""From this success on groups are without spread because the run has done its work."""


def no_spread(history: History, options: DoctorOptions) -> Finding | None:
    """Most groups have equal rewards, or half of them for long."""
    curve = "groups/zero_variance_share"
    points = history.points(curve) or history.shares("flat", "groups")
    name = "success" if history.recent("success") else "rollouts/task_success"
    solved, for_long = history.recent(name), history.recent(name, options.long_window)
    learned = bool(for_long) and mean(for_long) >= LEARNED
    share = _lasting([value for _step, value in points], history, options, for_long=not learned)
    if share is None:
        return None
    figures: dict[str, str | int] = {"share": percent(share), "solved": percent(mean(solved)) if solved else "–"}
    return Finding(figures, {curve: points}, history.witnesses("flat"))


def zero_advantages(history: History, options: DoctorOptions) -> Finding | None:
    """Most advantages are 0, or half of them for long."""
    curve = "advantages/zero_share"
    points = history.points(curve)
    share = _lasting([value for _step, value in points], history, options)
    return None if share is None else Finding({"share": percent(share)}, {curve: points}, [])


def _lasting(shares: list[float], history: History, options: DoctorOptions, *, for_long: bool = True) -> float | None:
    """The mean over twice the window where it is too high, else, ``for_long``, that over the long window."""
    limits = [(2 * history.window, options.no_spread_share), (options.long_window, options.no_spread_long)]
    for steps, limit in limits[: 1 + for_long]:
        if len(shares) >= steps and (share := mean(shares[-steps:])) >= limit:
            return share
    return None


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


def no_calls(history: History, options: DoctorOptions) -> Finding | None:
    """Tools are offered, and no rollout has a call that could be read."""
    name, rollouts = "rollouts/calls_mean", 0
    for digest in reversed(history.digests):
        if digest.figures.get(name) != 0:
            break
        rollouts += int(digest.figures.get("kept", 1))
    if rollouts < MIN_SILENT:
        return None
    return Finding({"rollouts": rollouts}, {name: history.points(name)}, history.witnesses("longest"))
