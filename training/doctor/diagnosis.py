"""The diagnosis: does a run learn what it should? One answer for each run.

Made of what the doctor remembers: an open advisory that answers the question, else how far success is from where the
run began, against what chance alone would do.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Literal

from pydantic import BaseModel

from training.doctor.doctor import Doctor
from training.doctor.history import LEAST_BEGIN, History, Point, mean, number, percent
from training.doctor.learning_detectors import SOLVED, SUCCESSES
from training.doctor.rules import RULES
from training.words import Sentence, _, sentence

Kind = Literal["early", "learning", "solved", "unclear", "falling", "stuck", "gamed"]
GAMED = ("shaping_above_outcome", "over_optimisation", "dominant_part")
STUCK = ("no_calls", "no_gradient", "no_effect", "collapse", "no_spread", "zero_advantages", "phantom_share", "plateau")
"""The advisories that answer the question, the gravest first."""
SURE = 3.0
"""Standard errors by which a level must differ from the run's begin, to be more than chance."""
FEW_STEPS = 2 * LEAST_BEGIN

TITLES: dict[Kind, str] = {
    "early": _("Too early to tell"),
    "learning": _("Learning"),
    "solved": _("Nearly all tasks are solved"),
    "unclear": _("No change beyond chance"),
    "falling": _("Getting worse"),
    "stuck": _("Stuck"),
    "gamed": _("The reward is gamed"),
}
SUCCESS: dict[Kind, str] = {
    "learning": _("Success rose from {then} in the first {begun} steps to {now} in the last {steps} (± {error})."),
    "solved": _(
        "Success is {now} in the last {steps} steps, from {then} in the first {begun}. Harder tasks would teach more."
    ),
    "unclear": _(
        "Success was {then} in the first {begun} steps and is {now} in the last {steps}; chance alone moves it by "
        "up to {error}."
    ),
    "falling": _("Success fell from {then} in the first {begun} steps to {now} in the last {steps} (± {error})."),
}
REWARD: dict[Kind, str] = {
    "learning": _(
        "Reward rose from {then} in the first {begun} steps to {now} in the last {steps} (± {error}); whether tasks "
        "are solved is not known."
    ),
    "unclear": _(
        "Reward was {then} in the first {begun} steps and is {now} in the last {steps}; chance alone moves it by up "
        "to {error}."
    ),
    "falling": _("Reward fell from {then} in the first {begun} steps to {now} in the last {steps} (± {error})."),
}
EARLY = _("{steps} steps can be compared so far, and {least} are needed.")


class Diagnosis(BaseModel):
    """The answer. ``code`` is the advisory that decides it, or empty; ``curve`` the figure that was compared.

    ``then`` is its mean over the run's first ``begun`` steps, ``now`` over the last ``steps``: a tenth of the run, and
    ten steps at least. ``error`` is three standard errors of their difference. An early run has ``steps`` alone.
    """

    kind: Kind
    code: str = ""
    curve: str = ""
    then: float | None = None
    now: float | None = None
    error: float | None = None
    begun: int = 0
    steps: int
    figures: dict[str, str | int] = {}

    @property
    def sentence(self) -> Sentence:
        """The reason."""
        if self.code:
            return sentence(RULES[self.code].sentence, **self.figures)
        if self.kind == "early":
            return sentence(EARLY, steps=self.steps, least=FEW_STEPS)
        words, write = (REWARD, number) if self.curve == "reward" else (SUCCESS, percent)
        levels = {name: write(getattr(self, name)) for name in ("then", "now", "error")}
        return sentence(words[self.kind], begun=self.begun, steps=self.steps, **levels)


def diagnosis_of(doctor: Doctor) -> Diagnosis:
    """The answer after the newest step."""
    found = _measured(doctor.history)
    open_ = {each.code: each for each in doctor.advisories if each.open}
    for code in GAMED + STUCK:
        if code in open_:
            kind: Kind = "gamed" if code in GAMED else "stuck"
            return found.model_copy(update={"kind": kind, "code": code, "figures": open_[code].evidence.figures})
    return found


def _measured(history: History) -> Diagnosis:
    curve = next((name for name in (*SUCCESSES, "reward") if len(history.points(name)) > 1), "")
    count = history.courses[curve].values if curve else 0
    if count < FEW_STEPS:
        return Diagnosis(kind="early", steps=count)
    levels = history.stretches(curve, max(LEAST_BEGIN, count // 10))
    begun, now = levels[0], levels[-1]
    error = SURE * math.hypot(_error(history, curve, begun), _error(history, curve, now))
    kind: Kind = "unclear"
    if curve != "reward" and now.mean >= SOLVED:
        kind = "solved"
    elif abs(now.mean - begun.mean) > error:
        kind = "learning" if now.mean > begun.mean else "falling"
    return Diagnosis(
        kind=kind, curve=curve, then=begun.mean, now=now.mean, error=error, begun=begun.values, steps=now.values
    )


def _error(history: History, curve: str, level: Point) -> float:
    """The standard error of a level: from how much successive steps differ, and not less than that of as many coins."""
    values = [value for _step, value in history.points(curve)]
    squares = [(here - before) ** 2 / 2 for before, here in pairwise(values)]
    wavers = math.sqrt(mean(squares) / level.values)
    each = history.recent("kept")
    if curve == "reward" or not each:
        return wavers
    coins = math.sqrt(max(level.mean * (1 - level.mean), 0.0) / max(level.values * mean(each), 1.0))
    return max(wavers, coins)
