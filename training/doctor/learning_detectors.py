"""Detectors of how a run learns: where learning goes, which part of the reward it follows, and what updates do."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from statistics import pvariance

from training.doctor.digest import PART_MEAN
from training.doctor.history import REFERENCE, Finding, History, mean, middle, number, percent, upper_quartile
from training.doctor.options import DoctorOptions
from training.rewards.base import OUTCOMES

# Where learning goes: to the wrong aim, back down, or nowhere.

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
    """Success, or the reward where success is not known, has lost much of its best level."""
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


# What shows only over the whole run: learning that has ended, steps that grow slow, time that taught nothing.

LEVELS = ("rollouts/task_success", "success", "reward")
SOLVED = 0.95
LONG_RUN = 150
"""Steps before a run can be said to have stopped learning."""
FLAT_SHARE = 0.03
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
    flat = history.flat_since(name, FLAT_SHARE * gained)
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
    """The run's cost so far without teaching anything."""
    lost, spent = history.lost_s / SECONDS, history.spent_s / SECONDS
    if lost < options.wasted_hours or lost < options.wasted_share * spent:
        return None
    figures: dict[str, str | int] = {"lost": number(lost), "spent": number(spent), "share": percent(lost / spent)}
    curve = "groups/zero_variance_share"
    return Finding(figures, {curve: history.points(curve) or history.shares("flat", "groups")}, [])


# Which part of the reward the model is trained on: the task's, or one about form.

FORM_SHARE = 0.5
"""The part about the task earns at most so much of what the part about form does."""
STILL = 0.05
"""Share of its level by which a part rises that is being learned."""
FLAT = 0.03
"""Share of what the task's part has gained that is no gain."""
RISEN = 0.8
"""Share of its present pay that a learned part paid at most at first."""
TASK = re.compile(r"correct|accura|(^|_)acc($|_)|answer|success|solve|outcome|exact|match|verif|pass|number|math|task")
FORM = re.compile(
    r"format|form($|_)|(^|_)tags?($|_)|xml|json|style|length|brev|concise|lang|think|syntax|penalt|bonus|repet|valid"
)


def dominant_part(history: History, options: DoctorOptions) -> Finding | None:
    """A part about form makes rewards differ, or is earned in full, and the part about the task pays little."""
    if history.seen < 2 * options.long_window:
        return None
    levels = {name: mean(values) for name, values in _means(history, options.long_window).items()}
    tasks = {name: level for name, level in levels.items() if is_outcome(name)}
    forms = {name: level for name, level in levels.items() if name not in tasks}
    if not tasks or not forms:
        return None
    task = max(tasks, key=lambda name: tasks[name])
    shares = _shares(history, options.long_window)
    form = max(forms, key=lambda name: (shares.get(name, 0.0), forms[name]))
    if levels[task] > FORM_SHARE * levels[form]:
        return None
    rules = shares.get(form, 0.0) >= options.part_share and not _rising(history, form, options.long_window)
    if not rules and not _stays_behind(history, task, form):
        return None
    figures: dict[str, str | int] = {"part": form, "share": percent(shares.get(form, 0.0))}
    figures |= {"pays": number(levels[form]), "task": task, "earns": number(levels[task])}
    return Finding(figures, {name: history.points(name) for name in (_curve(form), _curve(task))}, [])


def is_outcome(part: str) -> bool:
    """Whether a part of the reward judges the task, by its name."""
    return part in OUTCOMES or (bool(TASK.search(part)) and not FORM.search(part))


def _means(history: History, steps: int) -> dict[str, list[float]]:
    """The parts that each of the last so many steps has."""
    found = (match for name in sorted(history.names()) if (match := PART_MEAN.fullmatch(name)))
    means = {match[1]: history.recent(match[0], steps) for match in found}
    return {name: values for name, values in means.items() if len(values) == steps}


def _shares(history: History, steps: int) -> dict[str, float]:
    """Each part's share of all parts' variance: within steps where that is known, else between them."""
    means = _means(history, steps)
    spreads = {name: history.recent(f"rewards/{name}/std", steps) for name in means}
    if all(len(values) == steps for values in spreads.values()):
        variances = {name: mean([value**2 for value in values]) for name, values in spreads.items()}
    else:
        variances = {name: pvariance(values) for name, values in means.items()}
    whole = sum(variances.values())
    return {name: value / whole for name, value in variances.items()} if whole > 0 else {}


def _rising(history: History, part: str, steps: int) -> bool:
    """Whether it is being learned just now, which is no fault."""
    values = history.recent(_curve(part), steps)
    early, late = mean(values[: steps // 2]), mean(values[steps // 2 :])
    return late - early > STILL * abs(late)


def _stays_behind(history: History, task: str, form: str) -> bool:
    """Whether the task's part has risen and then not moved for a third of the run, while form was learned."""
    begun, formerly = history.begin(_curve(task)), history.begin(_curve(form))
    if begun is None or formerly is None or formerly > RISEN * mean(history.recent(_curve(form))):
        return False
    level = mean(history.recent(_curve(task)))
    risen = level - begun > STILL * abs(level)
    return risen and history.flat_since(_curve(task), FLAT * (level - begun)) is not None


def _curve(part: str) -> str:
    return f"rewards/{part}/mean"


# Updates that go too far, and a sampler that computes something else.

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
