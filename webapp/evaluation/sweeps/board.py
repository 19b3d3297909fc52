"""The page of a sweep: the answer, a row for each setting, a plot of gains, the curves of success."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from urllib.parse import urlencode

from django.urls import reverse
from django.utils.translation import gettext as _

from webapp.common.text import NOTHING
from webapp.evaluation.comparison.contestants import MOST, Contestant
from webapp.evaluation.comparison.figures import Cell, cell, known_columns
from webapp.evaluation.comparison.forest import Forest, differences
from webapp.evaluation.comparison.verdicts import one_decimal, p_text, signed
from webapp.evaluation.comparison.views import overlay
from webapp.evaluation.sweeps.answers import Answer, answer_of, change_words, setting_words, value_words
from webapp.evaluation.sweeps.figures import Figures, Setting, Word, figures_of
from webapp.launch.models import Sweep
from webapp.launch.sweeps import axis_title
from webapp.runs.config import config_of
from webapp.runs.models import Run
from webapp.runs.states import RunState

CHARTS = ("heldout/success", "rollouts/task_success")
DRAWN = 8
"""Settings with a curve of their own: there are as many colours."""


class Drawn(NamedTuple):
    """A setting in the plot, by the colour of its number."""

    number: int
    title: str


@dataclass
class Row:
    """A setting as the table shows it. ``gain`` and ``ends`` are points over the base; ``compare``: the address of a
    comparison with the base, where there is something to compare."""

    setting: Setting
    values: list[str]
    success: Cell
    gain: str
    ends: str
    p: str
    verdict: str
    compare: str

    @property
    def missing(self) -> int:
        """How many of its runs were deleted."""
        return len(self.setting.places) - len(self.setting.runs)


@dataclass
class Board:
    """Everything that the page says. ``going_on``: a run has not ended; ``compare``: one run of each setting, and
    ``comparable``: what they played is compared there too."""

    sweep: Sweep
    answer: Answer
    options: list[str]
    rows: list[Row]
    plot: Forest[Drawn] | None
    curves: dict[str, Any] | None
    going_on: bool
    compare: str
    comparable: bool
    figures: Figures


def board_of(sweep: Sweep, *, drawn: bool = True) -> Board:
    """Read all that the page of a sweep says; without ``drawn`` no curves."""
    found = figures_of(sweep)
    return Board(
        sweep,
        answer_of(found),
        [axis_title(option) for option in sweep.setting(sweep.base)],
        [_row(sweep, found, each) for each in found.settings],
        _plot(found),
        _curves(found) if drawn else None,
        found.ended < len(found.runs),
        _address(sweep, [run for each in found.settings if (run := _shown(found, each)) is not None]),
        found.tries.kind in ("played", "evaluated"),
        found,
    )


def _row(sweep: Sweep, found: Figures, setting: Setting) -> Row:
    success = next(column for column in known_columns(1) if column.name == "success")
    gain, ends, p = NOTHING, "", ""
    if setting.gain is not None:
        difference, p_value, floor = setting.gain
        gain, p = signed(setting.gain.points), p_text(p_value, floor=floor)
        if difference.low is not None and difference.high is not None:
            low, high = (one_decimal(100 * end) for end in (difference.low, difference.high))
            ends = _("%(low)s to %(high)s") % {"low": low, "high": high}
    pair = [run for each in (found.base, setting) if (run := _shown(found, each)) is not None]
    return Row(
        setting,
        [value_words(value) for value in setting.values.values()],
        cell(success, setting.success),
        gain,
        ends,
        p,
        word_of(setting.word, open_runs=_open(setting)),
        _address(sweep, pair) if setting is not found.base else "",
    )


def _open(setting: Setting) -> bool:
    return any(run.state not in (RunState.SUCCEEDED, RunState.FAILED, RunState.CANCELLED) for run in setting.runs)


def word_of(word: Word, *, open_runs: bool) -> str:
    """The verdict on a setting, in a word or two."""
    if word == "nothing":
        return _("not ended") if open_runs else _("no result")
    return {
        "base": _("base"),
        "helped": _("helped"),
        "hurt": _("hurt"),
        "seeds": _("within the spread of seeds"),
        "equal": _("no difference shown"),
        "apart": _("other tasks"),
    }[word]


def _shown(found: Figures, setting: Setting) -> Run | None:
    """What represents a setting in a comparison: the evaluation of its model, else its first run that succeeded."""
    done = [run for run in setting.runs if run.state == RunState.SUCCEEDED]
    return next((found.tries.by.get(run.pk, run) for run in done), None)


def _address(sweep: Sweep, runs: Sequence[Run]) -> str:
    if len(runs) < 2:
        return ""
    query = urlencode([("c", str(run.pk)) for run in runs[:MOST]])
    return f"{reverse('compare', args=[sweep.project.slug])}?{query}"


def _plot(found: Figures) -> Forest[Drawn] | None:
    base = found.base
    known = [
        (Drawn(each.number, change_words(each, base)), each.gain.difference)
        for each in found.settings
        if each.gain is not None
    ]
    return differences(known, Drawn(base.number, setting_words(base.values))) if known else None


def _curves(found: Figures) -> dict[str, Any] | None:
    """The curves of success, a line for each setting; ``None`` where there are too many, or none."""
    if len(found.settings) > DRAWN:
        return None
    of_run = {run.name: each for each in found.settings for run in each.runs}
    contestants = [Contestant(of_run[run.name].number, run, config_of(run)) for run in found.runs]
    drawn = overlay(contestants, CHARTS)
    if drawn is None or not drawn["charts"]:
        return None
    for line in drawn["runs"]:
        setting = of_run[line["name"]]
        line |= {"setting": setting.number, "name": setting_words(setting.values) or line["name"]}
    return drawn
