"""What shows only over the whole run: learning that has ended, steps that grow slow, time that taught nothing."""

from __future__ import annotations

from training.doctor.finding import Finding, number, percent
from training.doctor.history import REFERENCE, History, mean, middle
from training.doctor.options import DoctorOptions

LEVELS = ("rollouts/task_success", "success", "reward")
SOLVED = 0.95
LONG_RUN = 150
"""Steps before a run can be said to have stopped learning."""
LITTLE = 0.03
"""Share of what a run has gained that is no gain; noisier figures say nothing."""
LEAST_GAIN = 0.05
"""Share of its level that a run which has learned something has gained."""
EACH_TOKEN = 1.25
"""How many times as long a token must take, too: longer completions take longer."""
SECONDS = 3600.0


def plateau(history: History, options: DoctorOptions) -> Finding | None:
    """Nothing was gained in the last third of the run, after it had learned something."""
    name = next((name for name in LEVELS if history.course(name)), "")
    points, begun = history.course(name), history.begin(name)
    if begun is None or sum(point.values for point in points) < LONG_RUN:
        return None
    gained = points[-1].mean - begun
    flat = history.flat_since(name, LITTLE * gained)
    if flat is None or gained < LEAST_GAIN * abs(flat.mean) or (name != "reward" and flat.mean >= SOLVED):
        return None
    figures: dict[str, str | int] = {"curve": name, "level": number(flat.mean), "step": flat.step}
    return Finding(figures, {name: [(point.step, point.mean) for point in points]}, [])


def slowing(history: History, options: DoctorOptions) -> Finding | None:
    """Steps take many times as long as at first, and not because completions are longer."""
    name, begun = "timing/step", history.begin("timing/step")
    now = history.recent(name, REFERENCE)
    if begun is None or len(now) < REFERENCE or middle(now) < options.slow_ratio * begun:
        return None
    longer = history.begin("completions/mean_length")
    lengths = history.recent("completions/mean_length", REFERENCE)
    growth = max(1.0, mean(lengths) / longer) if longer and lengths else 1.0
    if middle(now) < EACH_TOKEN * growth * begun:
        return None
    figures: dict[str, str | int] = {"before": number(begun), "now": number(middle(now))}
    points = [(point.step, point.mean) for point in history.course(name)]
    return Finding(figures, {name: points}, history.witnesses("slowest"))


def wasted_hours(history: History, options: DoctorOptions) -> Finding | None:
    """What the run has cost so far without teaching anything."""
    lost, spent = history.lost_s / SECONDS, history.spent_s / SECONDS
    if lost < options.wasted_hours or lost < options.wasted_share * spent:
        return None
    figures: dict[str, str | int] = {"lost": number(lost), "spent": number(spent), "share": percent(lost / spent)}
    curve = "groups/zero_variance_share"
    return Finding(figures, {curve: history.points(curve) or history.shares("flat", "groups")}, [])
