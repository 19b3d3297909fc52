"""The diagnosis of a run: by value, on planted and recorded runs, and not by chance."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from tests.training.doctor.drifts import DRIFTS, long_healthy
from tests.training.doctor.planted import FAULTS, healthy, planted
from tests.training.doctor.test_detectors import recorded
from training.doctor import diagnosis
from training.doctor.diagnosis import GAMED, STUCK, TITLES, Diagnosis, diagnosis_of
from training.doctor.digest import Digest
from training.doctor.doctor import Advisory, Doctor, Evidence
from training.doctor.rules import RULES


def after(values: list[float], curve: str = "success", **figures: float) -> Diagnosis:
    """The diagnosis after steps with these levels. Rules are left out: only the curve is looked at."""
    doctor = Doctor()
    for step, value in enumerate(values, start=1):
        doctor.history.add(Digest(step, {curve: value, **figures}))
    return diagnosis_of(doctor)


WAVES = [0.04 * (step % 2) for step in range(60)]


def test_a_level_is_compared_with_the_begin_against_chance() -> None:
    """Steps differ by 0.04, so one has a standard error of 0.04 / √2, and the mean of ten one of that / √10."""
    error = 3 * (2 * 0.04**2 / 2 / 10) ** 0.5
    flat = after(WAVES)
    assert (flat.kind, flat.curve, flat.steps) == ("unclear", "success", 10)
    assert [flat.then, flat.now, flat.error] == pytest.approx([0.02, 0.02, error])
    assert str(flat.sentence) == (
        "Success was 2% in the first 10 steps and is 2% in the last 10; chance alone moves it by up to 4%."
    )
    rises = after([wave + (0.3 if step >= 30 else 0.0) for step, wave in enumerate(WAVES)])
    assert (rises.kind, rises.now) == ("learning", pytest.approx(0.32))
    assert str(rises.sentence).startswith("Success rose from 2% in the first 10 steps to 32% in the last 10 (± ")
    falls = after([wave + (0.3 if step < 30 else 0.0) for step, wave in enumerate(WAVES)])
    assert falls.kind == "falling" and "fell from 32% in the first 10 steps to 2% in the last 10 (± " in str(
        falls.sentence
    )


@pytest.mark.parametrize(
    ("rise", "kind"), [(0.99, "unclear"), (1.01, "learning"), (-0.99, "unclear"), (-1.01, "falling")]
)
def test_three_standard_errors_are_the_limit(rise: float, kind: str) -> None:
    levels = [0.5 + wave for wave in WAVES[:30]]
    jump = 0.0
    for _ in range(50):  # the jump itself is one of 29 differences, so the error depends on it
        risen = [level + (rise * jump if step >= 15 else 0.0) for step, level in enumerate(levels)]
        jump = after(risen).error or 0.0
    assert jump > 0.03 and after(risen).kind == kind


def test_a_long_run_compares_its_tenths() -> None:
    found = after([0.2 + step / 1000 for step in range(400)])
    assert (found.kind, found.begun, found.steps) == ("learning", 48, 48)  # three points of 16 steps hold 40
    assert (found.then, found.now) == (pytest.approx(0.2 + 23.5 / 1000), pytest.approx(0.2 + 375.5 / 1000))


def test_twenty_steps_are_needed() -> None:
    assert after(WAVES[:19]).kind == "early" and after(WAVES[:20]).kind == "unclear"
    assert str(after(WAVES[:19]).sentence) == "19 steps can be compared so far, and 20 are needed."
    assert after([]).kind == "early"


def test_a_curve_without_any_change_is_as_unsure_as_its_coins() -> None:
    """A success of 0 in 20 steps is no proof that one of 1 in 40 has gone."""
    fell = [0.025] * 10 + [0.0] * 10
    assert after(fell).kind == "falling" and after(fell, kept=4).kind == "unclear"
    coins, wavers = 0.025 * 0.975 / 40, 0.025**2 / 2 / 19 / 10
    assert after(fell, kept=4).error == pytest.approx(3 * (coins + wavers) ** 0.5)


def test_nearly_all_solved_is_an_answer_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    assert after([0.5] * 20 + [0.95] * 20).kind == "solved"
    assert after([0.5] * 20 + [0.949] * 20).kind == "learning"
    assert after([0.5] * 20 + [0.99] * 20, "reward").kind == "learning"
    monkeypatch.setattr(diagnosis, "SOLVED", 0.75)  # a mean of which is exact
    assert after([0.25] * 20 + [0.75] * 20).kind == "solved"


def test_a_reward_says_nothing_about_success() -> None:
    found = after([0.5 + value for value in WAVES] + [1.0] * 20, "reward")
    assert found.kind == "learning" and "whether tasks are solved is not known" in str(found.sentence)


def test_success_is_looked_at_before_the_reward() -> None:
    doctor = Doctor()
    for step in range(1, 31):
        doctor.history.add(Digest(step, {"reward": step / 30, "success": 0.2, "rollouts/task_success": 0.3}))
    found = diagnosis_of(doctor)
    assert (found.curve, found.kind, found.now) == ("rollouts/task_success", "unclear", pytest.approx(0.3))


def test_a_curve_that_ended_long_ago_is_not_judged() -> None:
    doctor = Doctor()
    for step in range(1, 101):
        doctor.history.add(Digest(step, {"success": step / 200} if step < 30 else {}))
    assert diagnosis_of(doctor).kind == "early"
    for step in range(101, 104):
        doctor.history.add(Digest(step, {"reward": 0.5}))
    assert (diagnosis_of(doctor).kind, diagnosis_of(doctor).steps) == ("early", 3)


@pytest.mark.parametrize("code", GAMED + STUCK)
def test_an_advisory_that_answers_is_the_answer(code: str) -> None:
    drift = next((drift for drift in DRIFTS if drift.code == code), None)
    doctor = Doctor()
    for facts in planted(FAULTS[code], 2) if drift is None else map(drift.fault, long_healthy(2)):
        doctor.see(facts)
    found = diagnosis_of(doctor)
    assert (found.kind, found.code) == ("gamed" if code in GAMED else "stuck", code)
    advisory = next(each for each in doctor.advisories if each.code == code)
    assert str(found.sentence) == str(advisory.sentence) and "{" not in str(found.sentence)
    advisory.open = False
    assert diagnosis_of(doctor).code != code


def test_the_gravest_of_several_is_the_answer() -> None:
    doctor = Doctor()
    for facts in planted(FAULTS["no_spread"], 2):
        doctor.see(facts)
    for facts in planted(FAULTS["over_optimisation"], 2):
        doctor.see(facts)
    codes = {each.code for each in doctor.advisories if each.open}
    assert diagnosis_of(doctor).code == next(code for code in GAMED + STUCK if code in codes)


GRAVER = [  # each before all that follow it
    "shaping_above_outcome", "over_optimisation", "dominant_part",
    "no_calls", "no_gradient", "no_effect", "collapse", "no_spread", "zero_advantages", "phantom_share", "plateau",
]  # fmt: skip


@pytest.mark.parametrize(("graver", "other"), list(pairwise(GRAVER)))
@pytest.mark.parametrize("order", [1, -1])
def test_of_two_the_graver_one_is_the_answer_whichever_came_first(graver: str, other: str, order: int) -> None:
    doctor = Doctor()
    doctor.advisories = [Advisory(code=code, first=1, last=2, evidence=Evidence()) for code in (graver, other)[::order]]
    assert diagnosis_of(doctor).code == graver


@pytest.mark.parametrize(("solved", "curve"), [(1, "reward"), (2, "")])
def test_one_figure_of_success_is_no_curve(solved: int, curve: str) -> None:
    """Two are: then it is too early to tell, whatever the reward does."""
    doctor = Doctor()
    for step in range(1, 31):
        doctor.history.add(Digest(step, {"reward": 0.5} | ({"success": 0.5} if step <= solved else {})))
    found = diagnosis_of(doctor)
    assert (found.curve, found.kind) == (curve, "unclear" if curve else "early")


@pytest.mark.parametrize("seed", range(6))
def test_a_healthy_run_learns(seed: int) -> None:
    doctor = Doctor()
    for facts in healthy(seed):
        doctor.see(facts)
    assert diagnosis_of(doctor).kind == "learning"


def test_recorded_runs_get_the_answer_that_people_gave() -> None:
    """Of the healthy ones two ended before success had moved."""
    kinds = {}
    for run, digests in {**recorded("healthy.json"), **recorded("faulty.json")}.items():
        doctor = Doctor()
        for digest in digests:
            doctor.take(digest)
        kinds[run] = diagnosis_of(doctor).kind
    others = {run: kind for run, kind in kinds.items() if kind != "learning"}
    assert others == {
        "webshop_1": "unclear",
        "reasoning_collapses": "stuck",
        "toolbench_phantom": "stuck",
        "webshop_phantom": "stuck",
    }


@pytest.mark.parametrize("chance", [0.02, 0.3, 0.5, 0.9])
def test_chance_alone_is_rarely_taken_for_learning(chance: float) -> None:
    """200 runs of 60 steps of four groups of eight, whose tasks differ: at most one in fifty."""
    found = [after(_coins(chance, seed), kept=32.0).kind for seed in range(200)]
    assert len(found) - found.count("unclear") <= 4


def _coins(chance: float, seed: int) -> list[float]:
    draw = random.Random(seed)
    steps = []
    for _ in range(60):
        tasks = [min(1.0, max(0.0, draw.gauss(chance, 0.3 * min(1, 4 * chance * (1 - chance))))) for _ in range(4)]
        steps.append(sum(draw.random() < task for task in tasks for _ in range(8)) / 32)
    return steps


def test_every_kind_has_its_words() -> None:
    assert set(TITLES) == set(Diagnosis.model_fields["kind"].annotation.__args__)  # type: ignore[union-attr]
    assert set(GAMED + STUCK) <= set(RULES)
