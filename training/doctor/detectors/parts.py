"""Which part of the reward the model is trained on: the task's, or one about form."""

from __future__ import annotations

import re
from statistics import pvariance

from training.doctor.digest import PART_MEAN
from training.doctor.finding import Finding, number, percent
from training.doctor.history import History, mean
from training.doctor.options import DoctorOptions
from training.rewards.verdict import OUTCOMES

LITTLE = 0.5
"""The part about the task earns at most so much of what the part about form does."""
STILL = 0.05
"""Share of its level by which a part rises that is being learned."""
FLAT = 0.03
"""Share of what the task's part has gained that is no gain."""
RISEN = 0.8
"""What a part that was learned paid at most at first, of what it pays now."""
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
    if levels[task] > LITTLE * levels[form]:
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
    """Whether the task's part has risen and then stood still for a third of the run, while form was learned."""
    begun, formerly = history.begin(_curve(task)), history.begin(_curve(form))
    if begun is None or formerly is None or formerly > RISEN * mean(history.recent(_curve(form))):
        return False
    level = mean(history.recent(_curve(task)))
    risen = level - begun > STILL * abs(level)
    return risen and history.flat_since(_curve(task), FLAT * (level - begun)) is not None


def _curve(part: str) -> str:
    return f"rewards/{part}/mean"
