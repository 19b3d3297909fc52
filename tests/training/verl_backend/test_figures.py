"""The figures of a step of verl's, by value."""

from __future__ import annotations

from typing import Any

import pytest

from tests.training.helpers import job_config
from training.errors import SamplerDied
from training.verl_backend.actor import error_of
from training.verl_backend.figures import fatal_of, made_of, played_figures, renamed, rollout_of


def fact(index: int, reward: float | None, **over: Any) -> dict[str, Any]:
    parts = None if reward is None else {"task_success": reward}
    found = {
        "name": f"a1-s1-g{index // 2}-i{index % 2}",
        "row": index,
        "reward": reward,
        "parts": parts,
        "status": "completed" if parts else "excluded",
        "turns": 1 + index,
        "tokens": 10 * (index + 1),
        "env_parts": {"task_success": float(index == 3)},
        "env_errors": index,
        "latencies": [float(index)],
        "sampled": [(5.0, 6.0 + index)],
        "ended": 7.0 + index,
        "error": None,
    }
    return found | over


def test_verls_figures_under_our_names() -> None:
    theirs = {"actor/loss": 0.5, "actor/grad_norm": 2, "actor/lr": 1e-3, "timing_s/gen": 3.0, "critic/score/mean": 9.0}
    assert renamed(theirs) == {"loss": 0.5, "grad_norm": 2.0, "learning_rate": 1e-3, "timing/generation": 3.0}
    assert renamed({"actor/loss": float("nan"), "actor/lr": 0.0}) == {"learning_rate": 0.0}


def test_an_excluded_rollout_is_counted_and_is_in_no_mean() -> None:
    config = job_config(rollout={"num_generations": 2})
    facts = [fact(0, 1.0), fact(1, 0.0), fact(2, None), fact(3, 0.5)]
    found = played_figures([rollout_of(each) for each in facts], config, 1)
    assert found["reward"] == 0.5 and found["rewards/task_success/mean"] == 0.5
    assert found["reward_std"] == 0.5  # of the rewards 1, 0 and 0.5
    assert (found["rollouts/excluded"], found["rollouts/excluded_share"]) == (1.0, 0.25)
    assert found["rollouts/turns_mean"] == pytest.approx((1 + 2 + 4) / 3)
    assert found["completions/mean_length"] == pytest.approx((10 + 20 + 40) / 3)
    assert found["rollouts/task_success"] == pytest.approx(1 / 3) and found["env/errors"] == 6.0
    assert found["groups/zero_variance_share"] == 0.5 and "rollouts/calls_mean" not in found


def test_a_step_without_any_reward_has_no_mean() -> None:
    config = job_config(rollout={"num_generations": 2})
    found = played_figures([rollout_of(fact(index, None)) for index in range(4)], config, 1)
    assert found["rollouts/excluded_share"] == 1.0 and "reward" not in found and "reward_std" not in found


def test_an_error_comes_over_as_it_was() -> None:
    error = SamplerDied("gone", hint="start it")
    found = made_of(error_of(error))
    assert (found.code, found.boundary, found.pauses, found.message, found.hint) == (
        "sampler_died",
        "policy",
        True,
        "gone",
        "start it",
    )
    assert found.info == error.info
    assert fatal_of([{"name": "x"}, {"fatal": error_of(error)}]).info == error.info  # type: ignore[union-attr]
    assert fatal_of([{"name": "x"}]) is None
    failed = rollout_of(fact(0, None, error=error_of(error)))
    assert failed.trajectory.error is not None and failed.trajectory.error.boundary == "policy"
