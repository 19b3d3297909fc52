"""What fails outside the policy: tools, judges, environments; and what waits for them."""

from __future__ import annotations

from training.doctor.finding import Finding, number, percent
from training.doctor.history import History, mean, middle
from training.doctor.options import DoctorOptions

MIN_CALLS = 20
MIN_REQUESTS = 5
MIN_LOST = 5
MIN_TRIES = 8


def tool_failures(history: History, options: DoctorOptions) -> Finding | None:
    """Many tool calls are answered by an error, or many more than 10 steps before, or than at first."""
    failed, calls = history.pooled("failed_calls", "calls")
    if len(history.recent("calls")) < history.window or calls < MIN_CALLS:
        return None
    earlier = history.lowest_share("tool_failure_share")
    share = failed / calls
    risen = earlier is not None and share - earlier >= options.tool_failure_rise
    if share < options.tool_failure_share and not risen:
        return None
    figures: dict[str, str | int] = {"failed": int(failed), "calls": int(calls)}
    points = history.shares("failed_calls", "calls")
    return Finding(figures, {"tool_failure_share": points}, history.witnesses("failed_calls"))


def judge_failures(history: History, options: DoctorOptions) -> Finding | None:
    """Judges do not answer."""
    failed, asked = history.pooled("judge/failures", "judge/requests")
    if asked < MIN_REQUESTS or failed < options.judge_failure_share * asked:
        return None
    figures: dict[str, str | int] = {"failed": int(failed), "asked": int(asked)}
    points = history.shares("judge/failures", "judge/requests")
    return Finding(figures, {"judge_failure_share": points}, history.witnesses("excluded"))


def excluded_share(history: History, options: DoctorOptions) -> Finding | None:
    """Many rollouts are lost."""
    name = "rollouts/excluded_share"
    now = history.recent(name)
    if len(now) < history.window or mean(now) < options.excluded_share:
        return None
    return Finding({"share": percent(mean(now))}, {name: history.points(name)}, history.witnesses("excluded"))


def excluded_bias(history: History, options: DoctorOptions) -> Finding | None:
    """Those that are lost are of the harder tasks, so that what is learned from is easier than what was drawn."""
    steps = 2 * history.window
    lost = sum(history.recent("excluded", steps))
    (solved_lost, tries_lost), (solved_whole, tries_whole) = (
        history.pooled(f"{name}_solved", f"{name}_tries", steps) for name in ("lost", "whole")
    )
    if lost < MIN_LOST or min(tries_lost, tries_whole) < MIN_TRIES:
        return None
    of_lost, of_whole = solved_lost / tries_lost, solved_whole / tries_whole
    if of_whole - of_lost < options.excluded_gap:
        return None
    figures: dict[str, str | int] = {"lost": int(lost), "theirs": percent(of_lost), "others": percent(of_whole)}
    curve = "rollouts/excluded_share"
    points = history.points(curve) or history.shares("excluded", "rollouts")
    return Finding(figures, {curve: points}, history.witnesses("excluded"))


def stall(history: History, options: DoctorOptions) -> Finding | None:
    """A step took many times as long as usual."""
    now, before = history.last("timing/step"), history.trailing("timing/step")
    if now is None or not before or now < max(options.stall_s, options.stall_ratio * middle(before)):
        return None
    figures: dict[str, str | int] = {"now": number(now), "usual": number(middle(before))}
    return Finding(figures, {"timing/step": history.points("timing/step")}, history.witnesses("slowest"))


def overdue(history: History, options: DoctorOptions, waited_s: float) -> Finding | None:
    """The step that is being made takes many times as long as usual: ``waited_s`` since the last one ended."""
    before = history.recent("timing/step", 20)
    if len(before) < 5 or waited_s < max(options.stall_s, options.stall_ratio * middle(before)):
        return None
    figures: dict[str, str | int] = {"now": number(waited_s), "usual": number(middle(before))}
    return Finding(figures, {"timing/step": history.points("timing/step")}, [])
