"""Every fault is found within 10 steps of its begin; recorded runs that are healthy are left alone."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.training.doctor.drifts import DRIFTS
from tests.training.doctor.planted import BEGIN, FAULTS, OTHER_WAYS, STEPS, Fault, curve, healthy, planted
from training.doctor.digest import Digest, StepFacts
from training.doctor.doctor import DETECTORS, Advisory, Doctor
from training.doctor.options import DoctorOptions
from training.doctor.rules import CURVES, RULES
from training.metrics import METRICS

HERE = Path(__file__).parent
STRICT: dict[str, dict[str, Any]] = {
    "no_spread": {"no_spread_share": 0.95, "no_spread_long": 0.95},
    "zero_advantages": {"no_spread_share": 0.95, "no_spread_long": 0.95},
    "kl_drift": {"kl_ceiling": 1.3},
    "repeated_text": {"repetition_share": 0.3},
    "phantom_share": {"phantom_share": 1.0},
    "shaping_above_outcome": {"inverted_share": 1.0},
    "over_optimisation": {"reward_gain": 10.0},
    "collapse": {"collapse_share": 1.0},
    "entropy_fall": {"entropy_ratio": 1e-9, "entropy_floor": 1e-9},
    "kl_spike": {"kl_ratio": 1000.0},
    "gradient_spike": {"gradient_ratio": 1000.0},
    "clip_share": {"clip_share": 0.5},
    "logprob_gap": {"gap_mean": 0.5},
    "length_explosion": {"length_ratio": 100.0},
    "truncation": {"truncated_share": 0.9, "truncated_rise": 0.9, "truncated_long": 0.9},
    "repetition": {"repetition": 0.9},
    "looping": {"loop_share": 1.0},
    "format_decay": {"format_rise": 0.9},
    "tool_failures": {"tool_failure_share": 0.9, "tool_failure_rise": 0.9},
    "judge_failures": {"judge_failure_share": 0.9},
    "excluded_share": {"excluded_share": 0.5},
    "excluded_bias": {"excluded_gap": 0.9},
    "stall": {"stall_ratio": 100.0},
    "device_idle": {"idle_share": 0.3},
}
"""Thresholds that the planted fault does not reach."""


def seen(steps: Any, **options: Any) -> list[Advisory]:
    doctor = Doctor(DoctorOptions(**options))
    for facts in steps:
        doctor.see(facts)
    return doctor.advisories


def recorded(name: str) -> dict[str, list[Digest]]:
    """The digests of recorded runs of ours, from columns of figures."""
    runs = json.loads((HERE / name).read_text(encoding="utf-8"))
    found = {}
    for run, table in runs.items():
        columns = {
            key: value if isinstance(value, list) else [value] * table["steps"]
            for key, value in table["curves"].items()
        }
        rows = [
            {key: values[place] for key, values in columns.items() if values[place] is not None}
            for place in range(table["steps"])
        ]
        found[run] = [Digest(step, row) for step, row in enumerate(rows, start=1)]
    return found


def taken(digests: list[Digest]) -> list[Advisory]:
    doctor = Doctor()
    for digest in digests:
        doctor.take(digest)
    return doctor.advisories


def test_every_advisory_has_its_detector_its_words_and_its_fault() -> None:
    assert set(DETECTORS) == set(RULES) == set(FAULTS) | {drift.code for drift in DRIFTS}
    named = {name for rule in RULES.values() for name in rule.options}
    assert named | {"calm"} == set(DoctorOptions.model_fields)


@pytest.mark.parametrize("seed", range(12))
def test_a_healthy_run_has_no_advisory(seed: int) -> None:
    assert [(one.code, one.first) for one in seen(healthy(seed))] == []


CASES = [(code, fault) for code, fault in FAULTS.items()] + [
    (code, fault) for code, faults in OTHER_WAYS.items() for fault in faults
]


@pytest.mark.parametrize(("code", "fault"), CASES)
def test_a_planted_fault_is_found_within_ten_steps_of_its_begin(code: str, fault: Fault) -> None:
    for seed in (1, 2, 3):
        found = [one for one in seen(planted(fault, seed)) if one.code == code]
        assert len(found) == 1
        assert BEGIN <= found[0].first <= BEGIN + 9
        assert str(found[0].sentence) and "{" not in str(found[0].sentence)
        for shown in found[0].evidence.curves:
            assert shown.name in METRICS or shown.name in CURVES
            assert len(shown.steps) == len(shown.values) > 0 and set(shown.steps) <= set(range(1, STEPS + 1))
        names = found[0].evidence.rollouts
        assert len(names) <= 3 and all(int(name.split("-")[0][1:]) <= found[0].last for name in names)


@pytest.mark.parametrize("code", STRICT)
def test_a_threshold_beyond_the_fault_keeps_quiet(code: str) -> None:
    assert [one for one in seen(planted(FAULTS[code]), **STRICT[code]) if one.code == code] == []


def test_recorded_healthy_runs_have_at_most_one_advisory_in_ten() -> None:
    runs = recorded("healthy.json")
    assert len(runs) >= 10 and all(len(digests) >= 20 for digests in runs.values())
    false = {run: [one.code for one in found] for run, digests in runs.items() if (found := taken(digests))}
    assert len(false) <= len(runs) // 10, false


def test_recorded_faults_are_found() -> None:
    """Runs of ours that went wrong by themselves: one learned to write on and on, two learned from shaping alone."""
    found = {run: {one.code: one.first for one in taken(digests)} for run, digests in recorded("faulty.json").items()}
    assert found == {
        "reasoning_collapses": {"collapse": 50, "truncation": 54},
        "toolbench_phantom": {"phantom_share": 10},
        "webshop_phantom": {"phantom_share": 10},
    }


def test_what_a_collapse_says_is_what_happened() -> None:
    [found] = [one for one in seen(planted(FAULTS["collapse"])) if one.code == "collapse"]
    best, now = (float(found.evidence.figures[name]) for name in ("best", "now"))
    assert now == pytest.approx(0.1) and 0.5 < best < 0.9
    assert found.evidence.curves[0].name == "rollouts/task_success"
    assert found.evidence.curves[0].values[-1] == 0.1


def test_over_optimisation_without_held_out_tasks_looks_at_the_rollouts() -> None:
    def without(facts: StepFacts) -> StepFacts:
        metrics = {name: value for name, value in facts.metrics.items() if name != "heldout/success"}
        return replace(facts, metrics=metrics | {"rollouts/task_success": 0.5})

    def paid(facts: StepFacts) -> StepFacts:
        return replace(facts, metrics={**facts.metrics, "reward": 0.6 + 0.05 * max(0, facts.step - BEGIN)})

    calm = [replace(paid(without(facts)), metrics=without(facts).metrics | {"reward": 0.6}) for facts in healthy()]
    assert "over_optimisation" not in {one.code for one in seen(calm)}
    [found] = [one for one in seen(paid(without(facts)) for facts in healthy()) if one.code == "over_optimisation"]
    assert BEGIN <= found.first <= BEGIN + 9
    assert [curve.name for curve in found.evidence.curves] == ["reward", "rollouts/task_success"]


@pytest.mark.parametrize("held_out", [True, False])
@pytest.mark.parametrize(("rise", "reported"), [(0.04, False), (0.08, True)])
def test_noise_of_a_model_whose_rollouts_are_all_alike_is_no_rise(held_out: bool, rise: float, reported: bool) -> None:
    """With zero variance any rise is many standard deviations: a model that had collapsed was called over-optimised."""

    def alike(facts: StepFacts) -> StepFacts:
        kept = {name: value for name, value in facts.metrics.items() if held_out or name != "heldout/success"}
        kept |= {"heldout/success": 0.1} if "heldout/success" in kept else {}
        reward = 0.26 * (1 + (rise if facts.step >= BEGIN else 0.0))
        return replace(facts, metrics=kept | {"reward": reward, "reward_std": 1e-4, "rollouts/task_success": 0.1})

    found = {one.code for one in seen(alike(facts) for facts in healthy())}
    assert ("over_optimisation" in found) is reported


@pytest.mark.parametrize("held_out", [True, False])
def test_a_reward_that_rises_while_nearly_all_is_solved_is_no_over_optimisation(held_out: bool) -> None:
    def solved(facts: StepFacts) -> StepFacts:
        kept = {name: value for name, value in facts.metrics.items() if held_out or name != "heldout/success"}
        measured = {"heldout/success": 0.96} if held_out else {}
        return replace(
            facts, metrics=kept | measured | {"reward": 0.6 + 0.05 * facts.step, "rollouts/task_success": 0.97}
        )

    assert "over_optimisation" not in {one.code for one in seen(solved(facts) for facts in healthy())}


def test_a_spike_is_not_hidden_by_the_one_before() -> None:
    spikes = curve("grad_norm", lambda facts: 40.0 if facts.step in (BEGIN, BEGIN + 4) else 0.4)
    [found] = [one for one in seen(planted(spikes)) if one.code == "gradient_spike"]
    assert (found.first, found.last) == (BEGIN, BEGIN + 4)


def test_an_entropy_that_falls_little_by_little_is_reported_at_a_tenth() -> None:
    falling = planted(curve("entropy", lambda facts: 0.6 * 0.95**facts.step), begin=1)
    [found] = [one for one in seen(falling) if one.code == "entropy_fall"]
    assert (found.first, found.open) == (53, True)


def test_what_a_destroyed_policy_does_is_not_reported_too() -> None:
    """It was advised to raise the limits and the temperature, and to take harder tasks."""
    found = {one.code for one in seen(planted(FAULTS["no_gradient"])) if one.last > 40}
    assert "no_gradient" in found and not found & {"no_spread", "zero_advantages", "truncation", "entropy_fall"}
