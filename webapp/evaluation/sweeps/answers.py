"""Which change helped, in the reader's language: one sentence, and what it leaves out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from training.config import Value, written
from training.evaluation import Interval
from webapp.common.text import first_names, percent
from webapp.evaluation.comparison.contestants import Contestant
from webapp.evaluation.comparison.verdicts import one_decimal, signed
from webapp.evaluation.sweeps.figures import Figures, Setting, lacking
from webapp.launch.learned import overlaps_of
from webapp.launch.sweeps import axis_title
from webapp.runs.config import config_of
from webapp.runs.models import CHECKING, Run
from webapp.runs.states import RunState

NAMED = 3
"""Runs that a sentence names; of more it says how many."""


class Answer(NamedTuple):
    """``kind``: helped, hurt, seeds, equal, repeats, running or nothing. ``left_out``: what it does not cover."""

    kind: str
    text: str
    left_out: list[str]


def answer_of(found: Figures) -> Answer:
    """The answer for a whole sweep."""
    kind, text = _claim(found)
    total = sum(len(each.places) for each in found.settings)
    open_runs = len(found.runs) - found.ended
    if open_runs:
        still = _("Still running: %(ended)d of %(total)d runs have ended.") % {
            "ended": total - open_runs,
            "total": total,
        }
        so_far = _("%(still)s So far: %(text)s") % {"still": still, "text": text}
        return Answer("running", still if kind == "nothing" else so_far, _left_out(found))
    return Answer(kind, text, _left_out(found))


def _claim(found: Figures) -> tuple[str, str]:
    others = [each for each in found.settings if each.gain is not None]
    if len(found.settings) == 1:
        return _repeats(found.settings[0])
    if not others:
        return "nothing", _reason(found)
    best = max(others, key=_points)
    helped = [each for each in others if each.word == "helped"]
    values = {"change": change_words(best, found.base), "figures": _gain_words(best, found.base)}
    if len(helped) == 1:
        return "helped", _("%(change)s helped: %(figures)s.") % values
    if helped:
        counts = values | {"n": len(helped), "of": len(others)}
        return "helped", _("%(n)d of %(of)d changes helped, most of all %(change)s: %(figures)s.") % counts
    hurt = min(others, key=_points)
    if hurt.word == "hurt":
        values = {"change": change_words(hurt, found.base), "figures": _gain_words(hurt, found.base)}
        return "hurt", _("No change helped; %(change)s hurt: %(figures)s.") % values
    widest = max(others, key=lambda each: abs(_points(each)))
    values = {"change": change_words(widest, found.base), "figures": _gain_words(widest, found.base)}
    if any(each.word == "seeds" for each in others):
        text = _("No difference beyond the spread between seeds is shown; the largest: %(change)s, %(figures)s.")
        return "seeds", text % values
    return "equal", _("No difference is shown; the largest: %(change)s, %(figures)s.") % values


def _points(setting: Setting) -> float:
    return setting.gain.points if setting.gain else 0.0


def _repeats(setting: Setting) -> tuple[str, str]:
    """A sweep over seeds alone."""
    if setting.success.value is None:
        return "nothing", _("No answer: no run has succeeded with a figure of success.")
    text = ngettext(
        "One setting, %(n)d seed: success %(success)s (%(detail)s).",
        "One setting, %(n)d seeds: success %(success)s (%(detail)s), from %(low)s to %(high)s between seeds.",
        len(setting.by_seed),
    )
    ends = {"low": percent(min(setting.by_seed)), "high": percent(max(setting.by_seed))}
    values = {"n": len(setting.by_seed), "success": percent(setting.success.value)}
    return "repeats", text % (values | ends | {"detail": _detail(setting.success, percent_ends=True)})


def _reason(found: Figures) -> str:
    if all(run.state != RunState.SUCCEEDED for run in found.runs):
        return _("No answer: no run has succeeded.")
    if all(each.success.value is None for each in found.settings):
        return _(
            "No answer: no setting has a figure of success. Evaluate their models on the same tasks to compare them."
        )
    if found.base.success.value is None:
        return _("No answer: the setting that all others are compared with, %(base)s, has no figure of success.") % {
            "base": setting_words(found.base.values)
        }
    if any(each.word == "apart" for each in found.settings):
        return _(
            "No answer: the settings played different tasks. Evaluate their models on the same tasks to compare them."
        )
    return _("No answer: no other setting has a figure of success to compare.")


# --- Words ----------------------------------------------------------------------------------------------------------
def setting_words(values: Mapping[str, Value]) -> str:
    """A setting: ``Learning rate 3e-5, LoRA rank 16``."""
    return ", ".join(f"{axis_title(option)} {value_words(value)}" for option, value in values.items())


def value_words(value: Value) -> str:
    """A value as a sentence writes it: a reference by its name."""
    text = written(value)
    kind, colon, name = text.partition(":")
    return name if colon and kind in ("reward", "dataset", "model", "run", "environment", "endpoint") else text


def changed(setting: Setting, base: Setting) -> dict[str, Value]:
    """The options in which a setting differs from the base."""
    return {option: value for option, value in setting.values.items() if base.values.get(option) != value}


def change_words(setting: Setting, base: Setting) -> str:
    """What a setting changes."""
    return setting_words(changed(setting, base))


def _gain_words(setting: Setting, base: Setting) -> str:
    """``+12.0 points of success over 1e-5 (95% interval 5.1 to 18.2, 200 tasks)``."""
    gain = setting.gain
    if gain is None:
        return ""
    before = ", ".join(value_words(base.values[option]) for option in changed(setting, base))
    values = {"points": signed(gain.points), "before": before}
    return _("%(points)s points of success over %(before)s (%(detail)s)") % (
        values | {"detail": _detail(gain.difference)}
    )


def _detail(found: Interval, *, percent_ends: bool = False) -> str:
    tasks = ngettext("%(n)d task", "%(n)d tasks", found.tasks) % {"n": found.tasks}
    if found.low is None or found.high is None:
        return tasks
    shown = percent if percent_ends else lambda value: one_decimal(100 * value)
    ends = {"low": shown(found.low), "high": shown(found.high), "tasks": tasks}
    return _("95%% interval %(low)s to %(high)s, %(tasks)s") % ends


# --- What it does not cover -----------------------------------------------------------------------------------------
def _left_out(found: Figures) -> list[str]:
    sentences = [_evidence(found)] if found.tries.of else []
    if found.compared > 1:
        text = _("The p-values are corrected for %(n)d comparisons having been made (Holm).")
        sentences.append(text % {"n": found.compared})
    sentences += [_seeds(found)] if found.tries.of else []
    return [*_alone(found), *sentences, *_without_result(found), *_learned(found)]


def _alone(found: Figures) -> list[str]:
    """Where the best setting changes several options: what each of them brought alone, as far as that was tried."""
    best = max((each for each in found.settings if each.word == "helped"), key=_points, default=None)
    together = changed(best, found.base) if best is not None else {}
    if len(together) < 2:
        return []
    sentences = []
    for option, value in together.items():
        single = next((each for each in found.settings if changed(each, found.base) == {option: value}), None)
        if single is not None and single.gain is not None:
            values = {"change": change_words(single, found.base), "figures": _gain_words(single, found.base)}
            sentences.append(_("Alone, %(change)s brought %(figures)s.") % values)
    return sentences or [_("What each of these options brings alone was not tried.")]


def _evidence(found: Figures) -> str:
    """What success is of, and whether tasks are paired."""
    match found.tries.kind:
        case "played":
            return _("Success of the evaluations themselves, paired by task.")
        case "held_out":
            return _("Success on held-out tasks with the weights after the last step, paired by task.")
        case "evaluated":
            names = {_data_words(run) for run in found.tries.by.values()} - {""}
            if len(names) == 1:
                return _("Success of the models' evaluations on %(data)s, paired by task.") % {"data": names.pop()}
            return _("Success of the models' evaluations, paired by task.")
    return _(
        "Success on training tasks, in the last tenth of the steps: not the same tasks in each run, so not paired. "
        "Hold tasks out, or evaluate the models on the same tasks, to know more."
    )


def _data_words(run: Run) -> str:
    return value_words(str(run.config.get("data", {}).get("train") or ""))


def _seeds(found: Figures) -> str:
    spreads = [each.spread for each in found.settings if each.spread is not None]
    if not spreads:
        return _("No setting has results of two seeds: how far success moves by the seed alone is not known.")
    text = _(
        "Seeds of a setting are pooled; between them success differs by up to %(points)s points. A difference that is "
        "not larger is not called a gain."
    )
    return text % {"points": one_decimal(100 * max(spreads))}


def _without_result(found: Figures) -> list[str]:
    lost = [each for setting in found.settings for each in lacking(setting)]
    sentences = []
    if named := [f"{run.name} ({run.get_state_display()})" for run in lost if run is not None]:
        sentences.append(
            _("Left out, because they have not succeeded: %(names)s.") % {"names": first_names(named, NAMED)}
        )
    if drafts := [run.name for run in found.runs if run.state == RunState.DRAFT and run.phase != CHECKING]:
        text = _("Not queued, because the check before the launch needs a decision: %(names)s.")
        sentences.append(text % {"names": first_names(drafts, NAMED)})
    if gone := sum(run is None for run in lost):
        texts = ngettext("%(n)d run of the sweep was deleted.", "%(n)d runs of the sweep were deleted.", gone)
        sentences.append(texts % {"n": gone})
    return sentences


def _learned(found: Figures) -> list[str]:
    """How many of the tasks a model learned from, where they were not held out by the run itself."""
    if found.tries.kind not in ("played", "evaluated"):
        return []
    played = list(found.tries.by.values()) or found.runs
    overlaps = overlaps_of(run for run in played if Contestant(0, run, config_of(run)).evaluates)
    said = [(run.name, overlaps[run.pk].words) for run in played if run.pk in overlaps and overlaps[run.pk].words]
    return [_("%(run)s: %(learned)s.") % {"run": name, "learned": words} for name, words in said[:NAMED]]
