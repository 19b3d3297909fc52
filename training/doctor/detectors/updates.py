"""Updates that go too far, and a sampler that computes something else."""

from __future__ import annotations

from training.doctor.finding import Finding, number, percent
from training.doctor.history import History, mean, upper_quartile
from training.doctor.options import DoctorOptions

SMALLEST_GRADIENT = 0.01
GAP_MEAN, GAP_MAX = "sampling/sampling_logp_difference/mean", "sampling/logprob_gap_max"


def kl_spike(history: History, options: DoctorOptions) -> Finding | None:
    """The KL divergence of one step is many times that of the steps before."""
    return _spike(history, "kl", options.kl_ratio, options.kl_floor)


def gradient_spike(history: History, options: DoctorOptions) -> Finding | None:
    """The gradient norm of one step is many times that of the steps before."""
    return _spike(history, "grad_norm", options.gradient_ratio, SMALLEST_GRADIENT)


def _spike(history: History, name: str, ratio: float, floor: float) -> Finding | None:
    now, before = history.last(name), history.trailing(name)
    if now is None or not before or now < floor:
        return None
    usual = upper_quartile(before)
    if now < ratio * usual:
        return None
    return Finding({"now": number(now), "usual": number(usual)}, {name: history.points(name)}, [])


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
