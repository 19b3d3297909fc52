"""The word for a setting, the claim of a sweep and what it leaves out, of figures that are written here."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from training.evaluation import Interval, Try
from webapp.evaluation.sweeps import answers
from webapp.evaluation.sweeps.answers import _learned, _without_result, answer_of
from webapp.evaluation.sweeps.board import _open, word_of
from webapp.evaluation.sweeps.figures import Figures, Gain, Place, Setting, _word, lacking
from webapp.evaluation.sweeps.tries import Tries, _covers
from webapp.runs.models import Run

RATE = "optim.lr"


def setting(
    number: int, gain: float | None = None, p: float | None = 0.01, seeds: tuple[float, ...] = (), **over: Any
) -> Setting:
    """A setting with this gain over the base, which is the one with number 0."""
    made = Setting(number, {RATE: float(number + 1)}, number == 0, [], by_seed=list(seeds))
    if gain is not None:
        made.success = Interval(0.5, 0.4, 0.6, 10)
        made.gain = Gain(Interval(gain, gain - 0.1, gain + 0.1, 10), p)
    for name, value in over.items():
        setattr(made, name, value)
    return made


@pytest.mark.parametrize(
    ("gain", "p", "seeds", "base_seeds", "word"),
    [
        (0.25, 0.05, (), (), "helped"),
        (-0.25, 0.05, (), (), "hurt"),
        (0.25, 0.0501, (), (), "equal"),
        (0.25, None, (), (), "equal"),
        (0.25, 0.01, (0.25, 0.5), (), "seeds"),
        (-0.25, 0.01, (0.25, 0.5), (), "seeds"),
        (0.25, 0.01, (), (0.75, 0.5), "seeds"),
        (0.25, 0.01, (0.25, 0.375, 0.4375), (0.5, 0.5), "helped"),
        (0.25, 0.01, (0.25, 0.375, 0.5), (0.5, 0.5), "seeds"),
        (0.25, 0.01, (0.9,), (0.1,), "helped"),  # one seed differs from none
        (None, 0.01, (), (), "apart"),
    ],
)
def test_a_gain_beyond_chance_and_beyond_the_spread_of_seeds_has_a_word(
    gain: float | None, p: float | None, seeds: tuple[float, ...], base_seeds: tuple[float, ...], word: str
) -> None:
    assert _word(setting(1, gain, p, seeds), setting(0, seeds=base_seeds)) == word


@pytest.mark.parametrize(
    ("word", "open_runs", "shown"),
    [
        ("nothing", True, "not ended"),
        ("nothing", False, "no result"),
        ("base", True, "base"),
        ("helped", True, "helped"),
        ("hurt", False, "hurt"),
        ("seeds", False, "within the spread of seeds"),
        ("equal", False, "no difference shown"),
        ("apart", False, "other tasks"),
    ],
)
def test_each_word_is_shown(word: Any, open_runs: bool, shown: str) -> None:
    assert word_of(word, open_runs=open_runs) == shown


def test_what_has_ended_and_what_lacks_a_result() -> None:
    states = ("draft", "queued", "running", "paused", "succeeded", "failed", "cancelled")
    runs = {state: Run(name=state, state=state) for state in states}
    of_all = setting(0, places=[*(Place(None, run) for run in runs.values()), Place(None, None)])
    assert lacking(of_all) == [runs["failed"], runs["cancelled"], None]
    found = Figures([of_all], Tries("training", {}, {}))
    assert (len(found.runs), found.ended) == (7, 3)
    open_ones = [state for state, run in runs.items() if _open(setting(0, places=[Place(None, run)]))]
    assert open_ones == ["draft", "queued", "running", "paused"]


def test_each_setting_needs_a_run_whose_tries_have_a_verdict() -> None:
    one, two, three = UUID(int=1), UUID(int=2), UUID(int=3)
    known, excluded, silent = Try(0, False, 0.0), Try(0, True, None), Try(0, False, None)
    tries = {one: [silent, known], two: [excluded, silent]}
    assert _covers([{one}, {one}], tries)
    assert not _covers([{one}, {two}], tries)
    assert _covers([{one, two}, {three, one}], tries), "one of its seeds is enough"
    assert not _covers([{three}], tries)


def _claimed(*others: Setting) -> tuple[str, str]:
    found = answer_of(Figures([setting(0, success=Interval(0.5, 0.4, 0.6, 10)), *others], Tries("held_out", {}, {})))
    return found.kind, found.text


@pytest.mark.parametrize(
    ("others", "kind", "said"),
    [
        ([(0.25, "helped"), (-0.5, "hurt")], "helped", "2 helped: +25.0 points"),
        ([(0.25, "helped"), (0.5, "helped"), (0.0, "equal")], "helped", "2 of 3 changes helped, most of all"),
        ([(0.25, "helped"), (0.5, "helped"), (0.0, "equal")], "helped", "3: +50.0 points"),
        ([(-0.25, "hurt"), (-0.5, "hurt"), (0.125, "equal")], "hurt", "3 hurt: -50.0 points"),
        ([(0.125, "equal"), (-0.25, "seeds")], "seeds", "3, -25.0 points"),
        ([(0.125, "equal"), (-0.25, "equal"), (0.0, "equal")], "equal", "3, -25.0 points"),
    ],
)
def test_a_sweep_claims_the_largest_of_its_kind(others: list[tuple[float, str]], kind: str, said: str) -> None:
    rows = [setting(number, gain, word=word) for number, (gain, word) in enumerate(others, 1)]
    claimed, text = _claimed(*rows)
    assert claimed == kind and said in text.replace("−", "-")


def test_a_draft_that_is_still_checked_needs_no_decision() -> None:
    runs = [Run(name="asks", state="draft"), Run(name="checked", state="draft", phase="checking")]
    runs += [Run(name="made", state="succeeded"), Run(name="broken", state="failed")]
    places = [*(Place(None, run) for run in runs), Place(None, None), Place(None, None)]
    assert _without_result(Figures([setting(0, places=places)], Tries("training", {}, {}))) == [
        "Left out, because they have not succeeded: broken (failed).",
        "Not queued, because the check before the launch needs a decision: asks.",
        "2 runs of the sweep were deleted.",
    ]


@pytest.mark.parametrize("kind", ["played", "evaluated", "held_out", "training"])
def test_what_models_had_learned_is_said_of_three_runs_that_played(monkeypatch: Any, kind: Any) -> None:
    played = [Run(name=f"p{number}", kind="evaluate") for number in range(5)]
    trained = [Run(name=f"t{number}", kind="evaluate") for number in range(5)]
    monkeypatch.setattr(
        answers, "overlaps_of", lambda runs: {run.pk: SimpleNamespace(words=run.name != "p1" and "all") for run in runs}
    )
    monkeypatch.setattr(answers, "Contestant", lambda number, run, config: SimpleNamespace(evaluates=run.name != "p0"))
    by = {run.pk: mate for run, mate in zip(trained, played, strict=True)} if kind == "evaluated" else {}
    found = Figures([setting(0, places=[Place(None, run) for run in trained])], Tries(kind, {}, by))
    names = {"played": ["t0", "t1", "t2"], "evaluated": ["p2", "p3", "p4"]}.get(kind, [])
    assert _learned(found) == [f"{name}: all." for name in names]
