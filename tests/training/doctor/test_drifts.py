"""Faults that come little by little are found by what the whole run shows; healthy long runs are left alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.training.doctor.drifts import DRIFTS, STEPS, Drift, curves, long_healthy, ramp
from tests.training.doctor.planted import healthy
from tests.training.doctor.test_detectors import seen
from training.doctor.digest import StepFacts


@pytest.mark.parametrize("seed", range(4))
def test_a_long_healthy_run_has_no_advisory(seed: int) -> None:
    assert [(one.code, one.first) for one in seen(long_healthy(seed))] == []


@pytest.mark.parametrize("drift", DRIFTS, ids=lambda drift: f"{drift.code}-{drift.after}")
def test_a_drift_is_found(drift: Drift) -> None:
    found = [one for one in seen(drift.fault(facts) for facts in long_healthy()) if one.code == drift.code]
    assert found and drift.after <= found[0].first <= drift.before, [one.first for one in found]
    assert "{" not in str(found[0].sentence)


STRICT = {
    "slowing": {"slow_ratio": 10.0},
    "wasted_hours": {"wasted_share": 0.9},
    "dominant_part": {"part_share": 1.0},
    "kl_drift": {"kl_ceiling": 2.0},
    "no_spread": {"no_spread_long": 0.7},
    "truncation": {"truncated_long": 0.5, "truncated_rise": 0.6},
    "length_explosion": {"length_drift": 5.0},
}


@pytest.mark.parametrize(
    "drift", [drift for drift in DRIFTS if drift.code in STRICT and drift.fault.__name__ == "<lambda>"]
)
def test_a_threshold_beyond_the_drift_keeps_quiet(drift: Drift) -> None:
    steps = (drift.fault(facts) for facts in long_healthy())
    assert drift.code not in {one.code for one in seen(steps, **STRICT[drift.code])}


def test_a_share_is_compared_with_that_of_the_first_tenth() -> None:
    """The first 24 steps have 2% cut off; 32% are passed at step 203, in the mean of five steps."""
    changed = curves(rollouts__truncated_share=ramp(0.0, 0.48))
    [found] = [
        one for one in seen((changed(f) for f in long_healthy()), truncated_long=1.0) if one.code == "truncation"
    ]
    assert found.first == 203


def test_hours_are_counted_only_from_what_is_worth_a_word() -> None:
    """300 steps of 20 s with 40% of the groups flat lose 40 minutes."""
    steps = [curves(timing__step=lambda _: 20.0, groups__zero_variance_share=lambda _: 0.4)(f) for f in long_healthy()]
    assert "wasted_hours" not in {one.code for one in seen(steps)}
    [found] = [one for one in seen(steps, wasted_hours=0.5) if one.code == "wasted_hours"]
    assert found.first == 225 and found.evidence.figures == {"lost": "0.667", "spent": "1.67", "share": "40%"}


def test_longer_completions_are_no_fault_while_success_rises_with_them() -> None:
    def longer(facts: StepFacts) -> StepFacts:
        measured = {"completions/mean_length": ramp(100, 400)(facts), "heldout/success": ramp(0.2, 0.6)(facts)}
        return replace(facts, metrics=facts.metrics | measured)

    assert "length_explosion" not in {one.code for one in seen(longer(facts) for facts in long_healthy())}


def test_steps_that_take_longer_for_longer_completions_are_not_slow() -> None:
    changed = curves(timing__step=ramp(20, 60), completions__mean_length=ramp(50, 150), heldout__success=ramp(0.2, 0.6))
    assert "slowing" not in {one.code for one in seen(changed(facts) for facts in long_healthy())}


def test_a_run_that_has_solved_its_tasks_has_done_its_work() -> None:
    """Groups with zero variance are then no fault until they are nearly all; a steady success of 0.96 is no plateau."""
    changed = curves(groups__zero_variance_share=lambda _: 0.7, rollouts__task_success=lambda _: 0.96)
    steps = [replace(changed(facts), rollouts=()) for facts in long_healthy()]
    assert {"no_spread", "plateau"}.isdisjoint(one.code for one in seen(steps))
    changed = curves(groups__zero_variance_share=lambda _: 0.7, rollouts__task_success=lambda _: 0.8)
    assert "no_spread" in {one.code for one in seen(replace(changed(facts), rollouts=()) for facts in long_healthy())}


def learned(first: float, last: float, over: int = 120) -> list[StepFacts]:
    """Success rises from one level to the other, and then stays."""
    changed = curves(rollouts__task_success=lambda facts: first + (last - first) * min(facts.step, over) / over)
    return [changed(facts) for facts in long_healthy()]


@pytest.mark.parametrize(
    ("first", "last", "reported"), [(0.3, 0.94, True), (0.3, 0.97, False), (0.5, 0.53, True), (0.5, 0.52, False)]
)
def test_a_plateau_is_below_the_top_and_above_the_begin(first: float, last: float, reported: bool) -> None:
    """The first tenth of a rise from 0.5 to 0.53 is 0.5035: 5% of the level are gained; 3.3% of the other."""
    assert ("plateau" in {one.code for one in seen(learned(first, last))}) is reported


def test_form_that_is_being_learned_at_first_does_not_rule_the_reward() -> None:
    changed = curves(rewards__format__mean=ramp(0.3, 1.0), rewards__correct__mean=lambda _: 0.1)
    assert "dominant_part" not in {one.code for one in seen(changed(facts) for facts in long_healthy())}


def test_a_part_about_the_task_may_rule_the_reward() -> None:
    changed = curves(rewards__accuracy__mean=ramp(0.3, 1.0), rewards__correct__mean=lambda _: 0.1)
    assert "dominant_part" not in {one.code for one in seen(changed(facts) for facts in long_healthy())}


@pytest.mark.parametrize(("rollouts", "reported"), [(15, False), (16, True)])
def test_sixteen_rollouts_without_a_call_are_needed(rollouts: int, reported: bool) -> None:
    first = next(iter(healthy()))
    step = replace(first, rollouts=first.rollouts[:rollouts], metrics={"rollouts/calls_mean": 0.0})
    assert ("no_calls" in {one.code for one in seen([step])}) is reported
    assert "no_calls" not in {one.code for one in seen([replace(step, metrics={"rollouts/calls_mean": 0.1})])}
    assert "no_calls" not in {one.code for one in seen([replace(step, metrics={"reward": 0.1})])}  # no tools


def test_a_table_without_rollouts_has_at_least_one_a_step() -> None:
    steps = [StepFacts(step, {"rollouts/calls_mean": 0.0}) for step in range(1, 18)]
    [found] = seen(steps)
    assert (found.code, found.first) == ("no_calls", 16)
    assert str(found.sentence).startswith("17 rollouts in a row were offered tools")


def test_a_critic_that_never_explained_anything_is_found_after_twenty_steps() -> None:
    changed = curves(value__explained_variance=lambda _: -0.1)
    [found] = [one for one in seen(changed(facts) for facts in long_healthy(steps=STEPS)) if one.code == "critic_blind"]
    assert found.first == 20 and "-0.1 of the returns' variance over 20 steps" in str(found.sentence)
