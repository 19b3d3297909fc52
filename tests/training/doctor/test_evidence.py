"""What a detector says is what the steps say: figures, curves and rollouts by value, and each threshold at its edge."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from training.doctor import learning_detectors, rollout_detectors
from training.doctor.digest import Digest
from training.doctor.history import Finding, History
from training.doctor.options import DoctorOptions

WINDOW, STEPS = 3, 20
KINDS = ("excluded", "failed", "failed_calls", "flat", "inverted", "longest", "looping", "paid", "phantom", "repeating")
KINDS += ("slowest", "truncated", "unread")
Curve = float | Sequence[float]


def late(before: float, now: float, steps: int = WINDOW) -> list[float]:
    """A curve that changes for its last steps."""
    return [before] * (STEPS - steps) + [now] * steps


def history(curves: dict[str, Curve]) -> History:
    """Twenty steps; every kind of rollout that can be shown is shown under its own name."""
    made = History(WINDOW)
    for place in range(STEPS):
        figures = {name: curve if isinstance(curve, int | float) else curve[place] for name, curve in curves.items()}
        made.add(Digest(place + 1, figures, {kind: [kind] for kind in KINDS}))
    return made


def looked(detector: Any, curves: dict[str, Curve], options: dict[str, Any], *more: float) -> Finding | None:
    found: Finding | None = detector(history(curves), DoctorOptions(**options), *more)
    return found


CALLS = {"calls": 10, "failed_calls": late(1, 5)}
LOST = {"lost_solved": 1, "lost_tries": 4, "whole_solved": 3, "whole_tries": 4, "excluded": 1, "rollouts": 8}
PAID = {"reward": late(0.4, 0.6, 8), "reward_std": 0.1, "success": 0.5}
HELD = {"reward": late(0.4, 0.6, 8), "reward_std": 0.1}
CASES: list[tuple[Any, dict[str, Curve], dict[str, Any], dict[str, Any], list[str], str]] = [
    (
        rollout_detectors.tool_failures,
        CALLS,
        {"tool_failure_share": 0.5, "tool_failure_rise": 0.9},
        {"failed": 15, "calls": 30},
        ["tool_failure_share"],
        "failed_calls",
    ),
    (
        rollout_detectors.tool_failures,
        CALLS,
        {"tool_failure_share": 0.9, "tool_failure_rise": 0.4},
        {"failed": 15, "calls": 30},
        ["tool_failure_share"],
        "failed_calls",
    ),
    (
        rollout_detectors.judge_failures,
        {"judge/requests": 2, "judge/failures": 1},
        {"judge_failure_share": 0.5},
        {"failed": 3, "asked": 6},
        ["judge_failure_share"],
        "excluded",
    ),
    (
        rollout_detectors.excluded_share,
        {"rollouts/excluded_share": late(0, 0.25)},
        {"excluded_share": 0.25},
        {"share": "25%"},
        ["rollouts/excluded_share"],
        "excluded",
    ),
    (
        rollout_detectors.excluded_bias,
        LOST,
        {"excluded_gap": 0.5},
        {"lost": 6, "theirs": "25%", "others": "75%"},
        ["rollouts/excluded_share"],
        "excluded",
    ),
    (
        rollout_detectors.stall,
        {"timing/step": late(10, 80, 1)},
        {"stall_s": 60.0, "stall_ratio": 8.0},
        {"now": "80", "usual": "10"},
        ["timing/step"],
        "slowest",
    ),
    (
        rollout_detectors.no_spread,
        {"groups/zero_variance_share": late(0, 0.75, 6), "success": 0.5},
        {"no_spread_share": 0.75},
        {"share": "75%", "solved": "50%"},
        ["groups/zero_variance_share"],
        "flat",
    ),
    (
        rollout_detectors.no_spread,
        {"flat": late(0, 6, 6), "groups": 8},
        {"no_spread_share": 0.75},
        {"share": "75%", "solved": "–"},
        ["groups/zero_variance_share"],
        "flat",
    ),
    (
        rollout_detectors.phantom_share,
        {"phantom": late(0, 2, 6), "groups": 8},
        {"phantom_share": 0.25},
        {"cases": 12, "groups": 48},
        ["phantom_share"],
        "phantom",
    ),
    (
        rollout_detectors.shaping_above_outcome,
        {"inverted": 1, "mixed": 4},
        {"inverted_share": 0.25},
        {"cases": 3, "groups": 12},
        ["inverted_share"],
        "inverted",
    ),
    (
        rollout_detectors.length_explosion,
        {"completions/mean_length": late(20, 40)},
        {"length_ratio": 2.0},
        {"before": "20", "now": "40"},
        ["completions/mean_length"],
        "longest",
    ),
    (
        rollout_detectors.truncation,
        {"rollouts/truncated_share": late(0.25, 0.5)},
        {"truncated_share": 0.5, "truncated_rise": 0.9},
        {"share": "50%"},
        ["rollouts/truncated_share"],
        "truncated",
    ),
    (
        rollout_detectors.truncation,
        {"rollouts/truncated_share": late(0.25, 0.5)},
        {"truncated_share": 0.9, "truncated_rise": 0.25},
        {"share": "50%"},
        ["rollouts/truncated_share"],
        "truncated",
    ),
    (
        rollout_detectors.repetition,
        {"repeating": 3, "texts": 6},
        {"repetition_share": 0.5},
        {"cases": 9, "rollouts": 18},
        ["repetition_share"],
        "repeating",
    ),
    (
        rollout_detectors.looping,
        {"looping": 3, "acting": 6},
        {"loop_share": 0.5},
        {"cases": 9, "rollouts": 18},
        ["loop_share"],
        "looping",
    ),
    (
        rollout_detectors.format_decay,
        {"unread": late(0, 4), "kept": 8},
        {"format_rise": 0.5},
        {"before": "0%", "now": "50%"},
        ["unread_share"],
        "unread",
    ),
    (
        learning_detectors.kl_spike,
        {"kl": late(0.5, 2, 1)},
        {"kl_ratio": 4.0, "kl_floor": 2.0},
        {"now": "2", "usual": "0.5"},
        ["kl"],
        "",
    ),
    (
        learning_detectors.gradient_spike,
        {"grad_norm": late(0.5, 5, 1)},
        {"gradient_ratio": 10.0},
        {"now": "5", "usual": "0.5"},
        ["grad_norm"],
        "",
    ),
    (
        learning_detectors.clip_share,
        {"clip_ratio/region_mean": late(0, 0.25)},
        {"clip_share": 0.25},
        {"share": "25%"},
        ["clip_ratio/region_mean"],
        "",
    ),
    (
        learning_detectors.logprob_gap,
        {learning_detectors.GAP_MEAN: -0.5},
        {"gap_mean": 0.5},
        {"gap": "0.5", "most": "0.5"},
        [learning_detectors.GAP_MEAN],
        "",
    ),
    (
        learning_detectors.logprob_gap,
        {learning_detectors.GAP_MAX: 2},
        {"gap_max": 2.0},
        {"gap": "2", "most": "2"},
        [learning_detectors.GAP_MAX],
        "",
    ),
    (
        learning_detectors.over_optimisation,
        PAID,
        {"reward_gain": 1.5, "success_gain": 0.0},
        {"low": "0.4", "high": "0.6", "then": "50%", "now": "50%"},
        ["reward", "success"],
        "paid",
    ),
    (
        learning_detectors.collapse,
        {"success": late(0.8, 0.4)},
        {"collapse_share": 0.5},
        {"best": "0.8", "now": "0.4"},
        ["success"],
        "failed",
    ),
    (
        learning_detectors.entropy_fall,
        {"entropy": late(1, 0.25)},
        {"entropy_ratio": 0.25, "entropy_floor": 0.01},
        {"before": "1", "now": "0.25"},
        ["entropy"],
        "",
    ),
    (
        learning_detectors.no_effect,
        {"learning_rate": late(1, 0, 5)},
        {},
        {"curve": "learning_rate", "value": "0", "steps": 5},
        ["learning_rate"],
        "",
    ),
    (
        learning_detectors.no_effect,
        {"grad_norm": late(1, 1e-8, 5)},
        {},
        {"curve": "grad_norm", "value": "1e-08", "steps": 5},
        ["grad_norm"],
        "",
    ),
    (
        learning_detectors.no_effect,
        {"kl": late(1, -1e-6, 10)},
        {"no_effect_kl": 1e-6},
        {"curve": "kl", "value": "1e-06", "steps": 10},
        ["kl"],
        "",
    ),
]


@pytest.mark.parametrize(("detector", "curves", "options", "figures", "shown", "kind"), CASES)
def test_what_is_found_at_the_threshold_is_reported_with_its_value(
    detector: Any,
    curves: dict[str, Curve],
    options: dict[str, Any],
    figures: dict[str, Any],
    shown: list[str],
    kind: str,
) -> None:
    found = looked(detector, curves, options)
    assert found is not None and found.figures == figures
    assert list(found.curves) == shown and all(len(points) == STEPS for points in found.curves.values())
    assert all(steps == list(range(1, STEPS + 1)) for steps in ([s for s, _ in p] for p in found.curves.values()))
    assert found.rollouts == ([kind] * 3 if kind else [])


JUST = 1e-6
QUIET: list[tuple[Any, dict[str, Curve], dict[str, Any]]] = [
    (rollout_detectors.tool_failures, CALLS, {"tool_failure_share": 0.5 + JUST, "tool_failure_rise": 0.4 + JUST}),
    (rollout_detectors.tool_failures, {"calls": 6, "failed_calls": 6}, {}),  # 18 calls say nothing yet
    (rollout_detectors.judge_failures, {"judge/requests": 2, "judge/failures": 1}, {"judge_failure_share": 0.5 + JUST}),
    (rollout_detectors.judge_failures, {"judge/requests": 1, "judge/failures": 1}, {}),
    (rollout_detectors.excluded_share, {"rollouts/excluded_share": late(0, 0.25)}, {"excluded_share": 0.25 + JUST}),
    (rollout_detectors.excluded_bias, LOST, {"excluded_gap": 0.5 + JUST}),
    (rollout_detectors.excluded_bias, LOST | {"excluded": late(0, 1, 4)}, {"excluded_gap": 0.5}),
    (rollout_detectors.excluded_bias, LOST | {"lost_tries": late(0, 1, 6), "lost_solved": 0}, {"excluded_gap": 0.5}),
    (rollout_detectors.stall, {"timing/step": late(10, 80, 1)}, {"stall_s": 80.1, "stall_ratio": 2.0}),
    (rollout_detectors.stall, {"timing/step": late(10, 80, 1)}, {"stall_s": 60.0, "stall_ratio": 8.1}),
    (rollout_detectors.no_spread, {"groups/zero_variance_share": late(0, 0.75, 5)}, {"no_spread_share": 0.75}),
    (rollout_detectors.phantom_share, {"phantom": late(0, 1, 2), "groups": 4}, {"phantom_share": 0.01}),
    (rollout_detectors.shaping_above_outcome, {"inverted": late(0, 1, 2), "mixed": 2}, {"inverted_share": 0.01}),
    (rollout_detectors.length_explosion, {"completions/mean_length": late(20, 40)}, {"length_ratio": 2.1}),
    (rollout_detectors.repetition, {"repeating": late(0, 3, 2), "texts": 6}, {"repetition_share": 0.1}),
    (rollout_detectors.format_decay, {"unread": late(0, 2), "kept": 2}, {"format_rise": 0.5}),
    (learning_detectors.kl_spike, {"kl": late(0.5, 2, 1)}, {"kl_ratio": 4.0, "kl_floor": 2.1}),
    (learning_detectors.gradient_spike, {"grad_norm": late(0.0005, 0.009, 1)}, {"gradient_ratio": 10.0}),
    (learning_detectors.logprob_gap, {learning_detectors.GAP_MEAN: 0.5}, {"gap_mean": 0.5 + JUST}),
    (learning_detectors.no_gradient, {"grad_norm": late(1, 0, 3), "entropy": 0.05}, {}),
    (learning_detectors.no_gradient, {"grad_norm": late(1, 0, 3), "entropy": 0.5}, {}),
    (learning_detectors.no_gradient, {"grad_norm": late(1, 1e-9, 3), "entropy": 0.0}, {}),
    (learning_detectors.no_gradient, {"grad_norm": late(1, 0, 2), "entropy": 0.0}, {}),
    (learning_detectors.over_optimisation, PAID | {"success": 0.951}, {"reward_gain": 1.5, "success_gain": 0.0}),
    (learning_detectors.over_optimisation, PAID, {"reward_gain": 2.1, "success_gain": 0.0}),
    (
        learning_detectors.over_optimisation,
        PAID | {"success": late(0.5, 0.6)},
        {"reward_gain": 1.5, "success_gain": 0.09},
    ),
    (
        learning_detectors.collapse,
        {"success": late(0.8, 0.61)},
        {"collapse_share": 0.1},
    ),  # less than a fifth of all tasks
    (
        learning_detectors.no_effect,
        {"grad_norm": late(1, 0, 5), "groups/zero_variance_share": 1},
        {},
    ),  # nothing to learn from
    (learning_detectors.no_effect, {"learning_rate": late(1, 0, 4)}, {}),
]


@pytest.mark.parametrize(("detector", "curves", "options"), QUIET)
def test_what_is_below_a_threshold_is_not_reported(
    detector: Any, curves: dict[str, Curve], options: dict[str, Any]
) -> None:
    assert looked(detector, curves, options) is None


def test_held_out_success_is_believed_over_that_of_the_rollouts() -> None:
    """Two evaluations with a window between them are enough; in between none may have been better."""
    made = History(WINDOW)
    held = {4: 0.5, 12: 0.5, 20: 0.5}
    for place in range(STEPS):
        figures = {name: curve if isinstance(curve, float) else curve[place] for name, curve in HELD.items()}
        if place + 1 in held:
            figures["heldout/success"] = held[place + 1]
        made.add(Digest(place + 1, figures | {"success": place / STEPS}, {kind: [kind] for kind in KINDS}))
    found = learning_detectors.over_optimisation(made, DoctorOptions(reward_gain=1.5, success_gain=0.0))
    assert found is not None and found.figures == {"low": "0.4", "high": "0.6", "then": "50%", "now": "50%"}
    assert found.curves["heldout/success"] == [(4, 0.5), (12, 0.5), (20, 0.5)] and found.rollouts == ["paid"] * 3
    made.digests[11].figures["heldout/success"] = 0.7
    assert learning_detectors.over_optimisation(made, DoctorOptions(reward_gain=3.0, success_gain=0.0)) is None
    made.digests[-1].figures["heldout/success"] = learning_detectors.CEILING
    assert learning_detectors.over_optimisation(made, DoctorOptions(reward_gain=1.5, success_gain=1.0)) is None


def test_a_step_that_is_still_being_made_is_overdue() -> None:
    made = history({"timing/step": 10})
    found = rollout_detectors.overdue(made, DoctorOptions(stall_s=60.0, stall_ratio=8.0), 80.0)
    assert found is not None and found.figures == {"now": "80", "usual": "10"} and found.rollouts == []
    assert found.curves == {"timing/step": [(step, 10) for step in range(1, STEPS + 1)]}
    assert rollout_detectors.overdue(made, DoctorOptions(stall_s=60.0, stall_ratio=8.1), 80.0) is None
    few = history({"timing/step": 10})
    few.digests = few.digests[:4]
    assert rollout_detectors.overdue(few, DoctorOptions(stall_s=1.0, stall_ratio=2.0), 1e6) is None


def ending(*values: float, before: float = 0) -> list[float]:
    """A curve with these as its last values."""
    return [before] * (STEPS - len(values)) + list(values)


ENOUGH: list[tuple[Any, dict[str, Curve], dict[str, Curve]]] = [
    (
        rollout_detectors.tool_failures,
        {"calls": ending(7, 7, 6), "failed_calls": ending(7, 7, 6)},
        {"calls": ending(7, 6, 6), "failed_calls": ending(7, 6, 6)},
    ),
    (
        rollout_detectors.judge_failures,
        {"judge/requests": ending(2, 2, 1), "judge/failures": ending(2, 2, 1)},
        {"judge/requests": ending(2, 1, 1), "judge/failures": ending(2, 1, 1)},
    ),
    (
        rollout_detectors.excluded_bias,
        LOST | {"excluded": ending(1, 1, 1, 1, 1)},
        LOST | {"excluded": ending(1, 1, 1, 1)},
    ),
    (
        rollout_detectors.excluded_bias,
        LOST | {"lost_tries": ending(2, 2, 2, 2), "lost_solved": 0},
        LOST | {"lost_tries": ending(2, 2, 2, 1), "lost_solved": 0},
    ),
    (
        learning_detectors.no_effect,
        {"grad_norm": late(1, 0, 5), "groups/zero_variance_share": ending(0, 1, 1, 1, 1)},
        {"grad_norm": late(1, 0, 5), "groups/zero_variance_share": ending(1, 1, 1, 1, 1)},
    ),
]


@pytest.mark.parametrize(("detector", "enough", "fewer"), ENOUGH)
def test_so_many_are_needed_and_one_fewer_say_nothing(
    detector: Any, enough: dict[str, Curve], fewer: dict[str, Curve]
) -> None:
    assert looked(detector, enough, {}) is not None and looked(detector, fewer, {}) is None


@pytest.mark.parametrize(("steps", "reported"), [(4, False), (5, True)])
def test_what_is_usual_is_known_of_five_steps(steps: int, reported: bool) -> None:
    made = History(WINDOW)
    for step in range(steps):
        made.add(Digest(step + 1, {"timing/step": 10.0}))
    assert (rollout_detectors.overdue(made, DoctorOptions(), 1e6) is not None) == reported


@pytest.mark.parametrize(("steps", "reported"), [(149, False), (150, True)])
def test_a_run_is_long_with_150_steps(steps: int, reported: bool) -> None:
    made = History(WINDOW)
    for step in range(steps):
        made.add(Digest(step + 1, {"success": min(0.5, 0.01 * step)}))
    assert (learning_detectors.plateau(made, DoctorOptions()) is not None) == reported
