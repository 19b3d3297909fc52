"""Drawing by pass rate beats the order on a planted task, over two seeds. Minutes; a rise, not a smoke run."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import drawing
from training.algorithms import grpo

LIFT, MORE_SPREAD = 0.05, 1.8


@pytest.mark.slow
def test_more_of_the_tasks_that_can_be_learned_are_solved_after_as_many_rollouts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grpo, "check_environment", grpo.check_environment)  # the benchmark replaces it
    found = drawing.measured(tmp_path, [0, 1], 40)
    order, pass_rate = found["runs"]["order"], found["runs"]["pass_rate"]
    for seed in (0, 1):
        assert order[seed]["success_before"] == pass_rate[seed]["success_before"] < 0.3
        assert order[seed]["success_after"] > order[seed]["success_before"]
        assert pass_rate[seed]["groups_with_spread"] >= MORE_SPREAD * order[seed]["groups_with_spread"]
    assert min(found["lift"]) >= LIFT, found


def test_the_interval_of_a_mean_by_hand() -> None:
    """Of 0.1 and 0.3: the deviation is 0.2 / √2, over √2 it is 0.1, and Student's t is 12.706."""
    assert drawing.mean_of([0.1, 0.3]) == {"n": 2, "mean": 0.2, "low": -1.071, "high": 1.471}
    assert drawing.mean_of([0.25]) == {"n": 1, "mean": 0.25}


def test_who_solves_a_planted_task() -> None:
    verdicts = [drawing.solved(kind, answer) for kind in drawing.KINDS for answer in ("green", "red", "")]
    assert verdicts == [1.0, 0.0, 0.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0]
