"""What becomes of the completions: longer, cut off, repeating, unreadable."""

from __future__ import annotations

from training.doctor.finding import Finding, number, percent
from training.doctor.history import History, mean
from training.doctor.options import DoctorOptions

MIN_CASES = 8


def length_explosion(history: History, options: DoctorOptions) -> Finding | None:
    """Completions are much longer than 10 steps before."""
    name = "completions/mean_length"
    now, earlier = history.recent(name), history.before(name)
    if len(now) < history.window or not earlier or mean(now) < options.length_ratio * mean(earlier):
        return None
    figures: dict[str, str | int] = {"before": number(mean(earlier)), "now": number(mean(now))}
    return Finding(figures, {name: history.points(name)}, history.witnesses("longest"))


def truncation(history: History, options: DoctorOptions) -> Finding | None:
    """Limits cut many rollouts off, or many more than 10 steps before."""
    name = "rollouts/truncated_share"
    now, earlier = history.recent(name), history.before(name)
    if len(now) < history.window:
        return None
    share = mean(now)
    risen = bool(earlier) and share - mean(earlier) >= options.truncated_rise
    if share < options.truncated_share and not risen:
        return None
    return Finding({"share": percent(share)}, {name: history.points(name)}, history.witnesses("truncated"))


def repetition(history: History, options: DoctorOptions) -> Finding | None:
    """Many rollouts say the same again and again."""
    return _share(history, "repeating", "texts", "repetition_share", options.repetition_share)


def looping(history: History, options: DoctorOptions) -> Finding | None:
    """Many rollouts make one call again and again, and do not solve their task."""
    return _share(history, "looping", "acting", "loop_share", options.loop_share)


def format_decay(history: History, options: DoctorOptions) -> Finding | None:
    """More and more calls cannot be read."""
    earlier = history.pooled_before("unread", "kept")
    cases, rollouts = history.pooled("unread", "kept")
    if earlier is None or cases < MIN_CASES or cases / rollouts - earlier < options.format_rise:
        return None
    figures: dict[str, str | int] = {"before": percent(earlier), "now": percent(cases / rollouts)}
    return Finding(figures, {"unread_share": history.shares("unread", "kept")}, history.witnesses("unread"))


def _share(history: History, part: str, whole: str, curve: str, least: float) -> Finding | None:
    cases, rollouts = history.pooled(part, whole)
    if len(history.recent(whole)) < history.window or cases < MIN_CASES or cases < least * rollouts:
        return None
    figures: dict[str, str | int] = {"cases": int(cases), "rollouts": int(rollouts)}
    return Finding(figures, {curve: history.shares(part, whole)}, history.witnesses(part))
