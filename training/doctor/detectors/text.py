"""What becomes of the completions: longer, cut off, repeating, unreadable."""

from __future__ import annotations

from training.doctor.finding import Finding, number, percent
from training.doctor.history import History, mean
from training.doctor.options import DoctorOptions

MIN_CASES = 8
SUCCESSES = ("heldout/success", "rollouts/task_success", "success")
MIN_LEVELS, EARNED = 3, 0.1


def length_explosion(history: History, options: DoctorOptions) -> Finding | None:
    """Completions are much longer than 10 steps before, or than at first while success is no higher."""
    name = "completions/mean_length"
    now, earlier, begun = history.recent(name), history.before(name), history.begin(name)
    if len(now) < history.window or not earlier:
        return None
    level, before = mean(now), mean(earlier)
    if level < options.length_ratio * before:
        if begun is None or level < options.length_drift * begun or _earned(history):
            return None
        before = begun
    figures: dict[str, str | int] = {"before": number(before), "now": number(level)}
    return Finding(figures, {name: history.points(name)}, history.witnesses("longest"))


def _earned(history: History) -> bool:
    """Whether success has risen since the run began: then longer answers may be what it took."""
    name = next((name for name in SUCCESSES if history.course(name)), "")
    levels = history.stretches(name, MIN_LEVELS)
    return bool(levels) and levels[-1].mean - levels[0].mean >= EARNED


def truncation(history: History, options: DoctorOptions) -> Finding | None:
    """Limits cut many rollouts off: lately, for long, or many more than before."""
    name = "rollouts/truncated_share"
    now, long, earlier = history.recent(name), history.recent(name, options.long_window), history.lowest(name)
    if len(now) < history.window:
        return None
    share = mean(now)
    rose = earlier is not None and share - earlier >= options.truncated_rise
    lasts = len(long) == options.long_window and mean(long) >= options.truncated_long
    if share < options.truncated_share and not rose and not lasts:
        return None
    return Finding({"share": percent(share)}, {name: history.points(name)}, history.witnesses("truncated"))


def repeated_text(history: History, options: DoctorOptions) -> Finding | None:
    """Completions repeat themselves far more than at first."""
    name = "completions/repeated_share"
    now, begun = history.recent(name), history.begin(name)
    if len(now) < history.window or begun is None or mean(now) - begun < options.repetition_share:
        return None
    figures: dict[str, str | int] = {"before": percent(begun), "now": percent(mean(now))}
    return Finding(figures, {name: history.points(name)}, [])


def repetition(history: History, options: DoctorOptions) -> Finding | None:
    """Many rollouts say the same again and again."""
    return _share(history, "repeating", "texts", "repetition_share", options.repetition_share)


def looping(history: History, options: DoctorOptions) -> Finding | None:
    """Many rollouts make one call again and again, and do not solve their task."""
    return _share(history, "looping", "acting", "loop_share", options.loop_share)


def format_decay(history: History, options: DoctorOptions) -> Finding | None:
    """More calls cannot be read than 10 steps before, or than at first."""
    earlier = history.lowest_share("unread_share")
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
