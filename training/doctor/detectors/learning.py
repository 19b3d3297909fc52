"""Where learning goes: to the wrong aim, back down, or nowhere."""

from __future__ import annotations

import math
from collections.abc import Sequence

from training.doctor.finding import Finding, number, percent
from training.doctor.history import History, mean
from training.doctor.options import DoctorOptions

CEILING = 0.95
MIN_DROP = 0.2
LEAST_RISE = 0.05
SUCCESSES = ("rollouts/task_success", "success")
NO_EFFECT_STEPS = 5
NO_KL_STEPS = 10
NO_GRADIENT = 1e-8
HELD_OUT_TRIES = 3
"""Evaluations that are averaged before they are compared: one by itself is mostly chance."""
LONG_TRIES = 10
"""Steps that are averaged before the run's begin is compared with now."""
LEAST_FALL, NOISES = 0.1, 4.0
"""A fall from the best that counts: in shares of tasks, and in standard errors."""


def over_optimisation(history: History, options: DoctorOptions) -> Finding | None:
    """The reward rises and success does not: held-out success where it is known, else that of the rollouts."""
    return _lately(history, options) or _past_its_best(history, options) or _since_the_begin(history, options)


def _lately(history: History, options: DoctorOptions) -> Finding | None:
    if len(history.points("heldout/success")) >= 2:
        return _held_out(history, options)
    reward, spread = history.recent("reward"), history.recent("reward_std")
    earlier = history.before("reward")
    success = next((name for name in SUCCESSES if history.before(name)), "")
    if len(reward) < history.window or not earlier or not spread or not success:
        return None
    now, then = mean(history.recent(success) or [0.0]), mean(history.before(success))
    rises = _rises(mean(earlier), mean(reward), spread, options)
    if now >= CEILING or not rises or now - then > options.success_gain:
        return None
    return _paid(history, success, mean(earlier), mean(reward), then, now)


def _held_out(history: History, options: DoctorOptions) -> Finding | None:
    """Between the first evaluation that is remembered and the newest, or any two with a window between them."""
    reward, spread = dict(history.points("reward")), history.recent("reward_std")
    points = history.points("heldout/success")
    end, now = points[-1]
    if now >= CEILING or not spread:
        return None
    for begin, then in reversed(points[:-1]):
        between = [value for step, value in points if step > begin]
        if end - begin < history.window or max(between) - then > options.success_gain:
            continue
        early, late = (
            [value for step, value in reward.items() if edge - history.window < step <= edge] for edge in (begin, end)
        )
        if early and late and _rises(mean(early), mean(late), spread, options):
            return _paid(history, "heldout/success", mean(early), mean(late), then, now)
    return None


def _past_its_best(history: History, options: DoctorOptions) -> Finding | None:
    """Success has fallen from its best stretch, and the reward has not."""
    name = _success_of(history)
    tries = HELD_OUT_TRIES if name == "heldout/success" else history.window
    levels, reward = history.stretches(name, tries), history.recent("reward")
    if len(levels) <= tries or len(reward) < history.window or levels[-1].mean >= CEILING:
        return None
    best, now = max(levels, key=lambda point: point.mean), levels[-1].mean
    paid = next((point.mean for point in history.course("reward") if point.step >= best.step), math.inf)
    fall = max(LEAST_FALL, NOISES * history.noise(name, tries))
    if best.mean - now < fall or mean(reward) < paid:
        return None
    return _paid(history, name, paid, mean(reward), best.mean, now)


def _since_the_begin(history: History, options: DoctorOptions) -> Finding | None:
    """The reward has risen since the first tenth of the run, and success has not."""
    name, spread = _success_of(history), history.recent("reward_std")
    tries = HELD_OUT_TRIES if name == "heldout/success" else LONG_TRIES
    levels, rewards = history.stretches(name, tries), history.stretches("reward", LONG_TRIES)
    low = history.begin("reward")
    if low is None or not levels or levels[-1].mean >= CEILING or not spread:
        return None
    if levels[-1].step < levels[0].step + 2 * LONG_TRIES or levels[-1].mean - levels[0].mean > options.success_gain:
        return None
    high = rewards[-1].mean
    return (
        _paid(history, name, low, high, levels[0].mean, levels[-1].mean) if _rises(low, high, spread, options) else None
    )


def _success_of(history: History) -> str:
    return next((name for name in ("heldout/success", *SUCCESSES) if history.course(name)), "")


def _rises(low: float, high: float, spread: Sequence[float], options: DoctorOptions) -> bool:
    """Whether the reward rose by more than its rollouts differ, and by more than noise where they are all alike."""
    return high - low >= max(options.reward_gain * mean(spread), LEAST_RISE * max(abs(low), abs(high)))


def _paid(history: History, success: str, low: float, high: float, then: float, now: float) -> Finding:
    figures: dict[str, str | int] = {
        "low": number(low),
        "high": number(high),
        "then": percent(then),
        "now": percent(now),
    }
    curves = {"reward": history.points("reward"), success: history.points(success)}
    return Finding(figures, curves, history.witnesses("paid"))


def collapse(history: History, options: DoctorOptions) -> Finding | None:
    """Success, or the reward where nothing tells of success, has lost much of its best level."""
    name = next((name for name in (*SUCCESSES, "reward") if name in history.best), "")
    now = history.recent(name)
    if not name or len(now) < history.window:
        return None
    best, level = history.best[name], mean(now)
    least = MIN_DROP if name != "reward" else mean(history.recent("reward_std") or [0.0])
    if best <= 0 or best - level < max(least, options.collapse_share * best):
        return None
    figures: dict[str, str | int] = {"best": number(best), "now": number(level)}
    return Finding(figures, {name: history.points(name)}, history.witnesses("failed"))


def entropy_fall(history: History, options: DoctorOptions) -> Finding | None:
    """The policy is nearly certain of each token: all at once, or little by little since the run began."""
    now, earlier = history.recent("entropy"), history.before("entropy")
    if len(now) < history.window or not earlier:
        return None
    level, before = mean(now), mean(earlier)
    start = history.begin("entropy") or before
    if level > options.entropy_ratio * before and level > options.entropy_floor * start:
        return None
    figures: dict[str, str | int] = {"before": number(max(before, start)), "now": number(level)}
    return Finding(figures, {"entropy": history.points("entropy")}, [])


def no_effect(history: History, options: DoctorOptions) -> Finding | None:
    """Updates that change nothing: a learning rate or a gradient of 0, or no distance from the reference model."""
    rates, gradients = history.recent("learning_rate", NO_EFFECT_STEPS), history.recent("grad_norm", NO_EFFECT_STEPS)
    kl = history.recent("kl", NO_KL_STEPS)
    if len(rates) == NO_EFFECT_STEPS and max(rates) <= 0:
        return _idle(history, "learning_rate", 0.0, NO_EFFECT_STEPS)
    spread = history.recent("groups/zero_variance_share", NO_EFFECT_STEPS)
    learns = not spread or min(spread) < 1
    if len(gradients) == NO_EFFECT_STEPS and max(gradients) <= NO_GRADIENT and learns:
        return _idle(history, "grad_norm", max(gradients), NO_EFFECT_STEPS)
    if len(kl) == NO_KL_STEPS and max(map(abs, kl)) <= options.no_effect_kl and learns:
        return _idle(history, "kl", max(map(abs, kl)), NO_KL_STEPS)
    return None


def _idle(history: History, name: str, value: float, steps: int) -> Finding:
    return Finding({"curve": name, "value": number(value), "steps": steps}, {name: history.points(name)}, [])
