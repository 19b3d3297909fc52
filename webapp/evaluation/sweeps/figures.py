"""The settings of a sweep with their success, and each compared with the base setting; in no language yet.

Seeds repeat a setting: their tries are pooled by task. That says nothing about another seed, so a gain that is not
above the spread between the seeds of the two settings is not called one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, cast

import numpy as np

from training.config import SEED, Value
from training.evaluation import (
    ALPHA,
    FLOOR,
    Interval,
    Paired,
    Try,
    Values,
    ahead_by,
    holm,
    mean_interval,
    paired_columns,
    sheet_of,
)
from webapp.evaluation.sweeps.tries import Tries, tries_of
from webapp.launch.models import Sweep, SweepRun
from webapp.runs.models import Run
from webapp.runs.states import TERMINAL, RunState

SUCCESS = "success"
UNKNOWN = Interval(None, None, None, 0)
Word = Literal["base", "helped", "hurt", "seeds", "equal", "apart", "nothing"]
"""``base``: what the others are compared with. ``helped``, ``hurt``: by more than chance, and more than seeds differ.
``seeds``: by more than chance, but by no more than seeds differ. ``equal``: no difference shown. ``apart``: it played
other tasks than the base. ``nothing``: it has no figure."""
TASKS = ("data.", "environment.")
"""Options that decide which tasks are trained on."""


class Place(NamedTuple):
    """One job of a sweep; no ``run`` where it was deleted."""

    seed: Value
    run: Run | None


class Gain(NamedTuple):
    """A setting less the base: the difference with its interval, and the p-value, corrected for all settings of the
    sweep; ``floor``: only a bound of it is known. A setting without a difference has no gain."""

    difference: Interval
    p_value: float | None
    floor: bool = False

    @property
    def points(self) -> float:
        """The difference of success in points."""
        return 100 * cast(float, self.difference.value)


@dataclass
class Setting:
    """Runs that differ by their seed alone. ``success`` is over tasks; ``by_seed`` has the mean of each run that has
    one, ``spread`` how far they are apart: ``None`` with fewer than two."""

    number: int
    values: dict[str, Value]
    base: bool
    places: list[Place]
    success: Interval = UNKNOWN
    by_seed: list[float] = field(default_factory=list)
    gain: Gain | None = None
    word: Word = "nothing"

    @property
    def runs(self) -> list[Run]:
        """Its runs that are there."""
        return [place.run for place in self.places if place.run is not None]

    @property
    def spread(self) -> float | None:
        """The highest less the lowest mean of its seeds."""
        return max(self.by_seed) - min(self.by_seed) if len(self.by_seed) > 1 else None


@dataclass
class Figures:
    """All settings of a sweep in its order, the tries that they are compared by, and how many were compared."""

    settings: list[Setting]
    tries: Tries
    compared: int = 0

    @property
    def base(self) -> Setting:
        """What the others are compared with."""
        return next((each for each in self.settings if each.base), self.settings[0])

    @property
    def runs(self) -> list[Run]:
        """All runs that are there."""
        return [run for each in self.settings for run in each.runs]

    @property
    def ended(self) -> int:
        """How many runs have ended; a draft that was not queued has not."""
        return sum(run.state in TERMINAL for run in self.runs)


def settings_of(sweep: Sweep) -> list[Setting]:
    """The settings with their runs, in the order of the sweep."""
    rows = SweepRun.objects.filter(sweep=sweep, run__removed_at=None).select_related("run__project")
    runs = {row.number: row.run for row in rows}
    found: list[Setting] = []
    for number, point in enumerate(sweep.points):
        values = sweep.setting(point)
        known = next((each for each in found if each.values == values), None)
        if known is None:
            known = Setting(len(found), values, values == sweep.base, [])
            found.append(known)
        known.places.append(Place(point.get(SEED), runs.get(number)))
    return found


def figures_of(sweep: Sweep) -> Figures:
    """Read the tries of a sweep's runs, and compare its settings."""
    settings = settings_of(sweep)
    found = Figures(settings, tries_of([each.runs for each in settings]))
    columns = _columns(settings, found.tries)
    for setting, column in zip(settings, columns, strict=True):
        setting.success = mean_interval(column[~np.isnan(column)])
        setting.by_seed = [mean for run in setting.runs if (mean := _mean(found.tries.of.get(run.pk, []))) is not None]
    _compare(found, columns)
    return found


def _columns(settings: Sequence[Setting], tries: Tries) -> list[Values]:
    """The success of each setting by task, seeds pooled: all tasks of all settings in one order, NaN where it has
    none."""
    pooled = [[item for run in each.runs for item in tries.of.get(run.pk, [])] for each in settings]
    tasks = sorted({item.task for items in pooled for item in items})
    return [sheet_of(items, tasks).of(SUCCESS) for items in pooled]


def _mean(tries: Sequence[Try]) -> float | None:
    return mean_interval(sheet_of(tries).of(SUCCESS)).value if tries else None


def _compare(found: Figures, columns: Sequence[Values]) -> None:
    """Give each setting its gain over the base and its word."""
    base = found.base
    base.word = "base" if base.success.value is not None else "nothing"
    others = [each for each in found.settings if each is not base and each.success.value is not None]
    if base.success.value is None or not others:
        return
    if not found.tries.paired and any(option.startswith(TASKS) for option in base.values):
        for each in others:
            each.word = "apart"
        return
    gains = _gains(columns, base.number, [each.number for each in others], paired=found.tries.paired)
    corrected = holm([gain.p_value for gain in gains])
    found.compared = sum(p_value is not None for p_value in corrected)
    for each, gain, p_value in zip(others, gains, corrected, strict=True):
        each.gain = gain._replace(p_value=p_value) if gain.difference.value is not None else None
        each.word = _word(each, base)


def _gains(columns: Sequence[Values], base: int, others: Sequence[int], *, paired: bool) -> list[Gain]:
    if paired:
        found = paired_columns(np.column_stack(columns), [(base, other) for other in others])
        return [_gain_of_pair(each) for each in found]
    scores = [ahead_by(columns[base], columns[other]) for other in others]
    return [Gain(score.difference, score.p_value) for score in scores]


def _gain_of_pair(found: Paired) -> Gain:
    return Gain(found.difference, found.p_value, found.p_value is not None and found.p_value <= FLOOR)


def _word(setting: Setting, base: Setting) -> Word:
    gain = setting.gain
    if gain is None:
        return "apart"
    if gain.p_value is None or gain.p_value > ALPHA:
        return "equal"
    if abs(gain.points) <= 100 * max(setting.spread or 0.0, base.spread or 0.0):
        return "seeds"
    return "helped" if gain.points > 0 else "hurt"


def lacking(setting: Setting) -> list[Run | None]:
    """The runs of a setting that have ended without a result; ``None`` for one that was deleted."""
    return [
        place.run for place in setting.places if place.run is None or place.run.state in TERMINAL - {RunState.SUCCEEDED}
    ]
