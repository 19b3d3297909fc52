"""Updates that go too far, and a sampler that computes something else."""

from __future__ import annotations

from training.doctor.finding import Finding, number, percent
from training.doctor.history import REFERENCE, History, mean, middle, upper_quartile
from training.doctor.options import DoctorOptions

SMALLEST_GRADIENT = 0.01
NO_CHOICE = 0.05
"""Nats of entropy a token below which a policy that has no gradient has no choice left either."""
LEAST_POINTS = 16
"""Points of the whole course before what is usual is known."""
EXPLAINED = 0.2
"""What a critic that works explains at its best."""
GAP_MEAN, GAP_MAX = "sampling/sampling_logp_difference/mean", "sampling/logprob_gap_max"


def kl_spike(history: History, options: DoctorOptions) -> Finding | None:
    """The KL divergence of one step is many times that of the steps before."""
    return _spike(history, "kl", options.kl_ratio, options.kl_floor)


def gradient_spike(history: History, options: DoctorOptions) -> Finding | None:
    """The gradient norm of one step is many times that of the steps before, or of the window that of the whole run."""
    name, now = "grad_norm", history.recent("grad_norm")
    if found := _spike(history, name, options.gradient_ratio, SMALLEST_GRADIENT):
        return found
    course = history.course(name)
    if len(course) < LEAST_POINTS or len(now) < history.window or middle(now) < SMALLEST_GRADIENT:
        return None
    usual = middle([point.mean for point in course])
    if middle(now) < options.gradient_ratio * usual:
        return None
    return Finding({"now": number(middle(now)), "usual": number(usual)}, {name: history.points(name)}, [])


def kl_drift(history: History, options: DoctorOptions) -> Finding | None:
    """The policy is far from the reference model, however slowly it went there."""
    now = history.recent("kl")
    if len(now) < history.window or mean(now) < options.kl_ceiling:
        return None
    return Finding({"now": number(mean(now))}, {"kl": history.points("kl")}, [])


def critic_blind(history: History, options: DoctorOptions) -> Finding | None:
    """The critic explains no more of the returns than a constant does: no longer, or never."""
    name = "value/explained_variance"
    now, long = history.recent(name), history.recent(name, REFERENCE)
    levels = [point.mean for point in history.stretches(name, history.window)]
    if len(now) < history.window or mean(now) > 0 or not levels:
        return None
    never = max(levels) < EXPLAINED
    if never and (len(long) < REFERENCE or mean(long) > 0):
        return None
    judged = long if never else now
    figures: dict[str, str | int] = {"now": number(mean(judged)), "steps": len(judged), "best": number(max(levels))}
    return Finding(figures, {name: history.points(name)}, [])


def _spike(history: History, name: str, ratio: float, floor: float) -> Finding | None:
    now, before = history.last(name), history.trailing(name)
    if now is None or not before or now < floor:
        return None
    usual = upper_quartile(before)
    if now < ratio * usual:
        return None
    return Finding({"now": number(now), "usual": number(usual)}, {name: history.points(name)}, [])


def no_gradient(history: History, options: DoctorOptions) -> Finding | None:
    """No gradient at all, and a policy without a choice: an update has destroyed it."""
    norms, entropies = history.recent("grad_norm"), history.recent("entropy")
    if len(norms) < history.window or any(norms) or not entropies or mean(entropies) >= NO_CHOICE:
        return None
    figures: dict[str, str | int] = {"steps": len(norms), "entropy": number(mean(entropies))}
    return Finding(figures, {name: history.points(name) for name in ("grad_norm", "entropy")}, [])


def clip_share(history: History, options: DoctorOptions) -> Finding | None:
    """Many tokens are clipped, so that they teach nothing."""
    name = "clip_ratio/region_mean"
    now = history.recent(name)
    if len(now) < history.window or mean(now) < options.clip_share:
        return None
    return Finding({"share": percent(mean(now))}, {name: history.points(name)}, [])


def logprob_gap(history: History, options: DoctorOptions) -> Finding | None:
    """The sampler's log-probabilities are not those that the trainer computes."""
    for name, most in ((GAP_MEAN, options.gap_mean), (GAP_MAX, options.gap_max)):
        now = history.last(name)
        if now is not None and abs(now) >= most:
            return Finding({"gap": number(abs(now)), "most": number(most)}, {name: history.points(name)}, [])
    return None
