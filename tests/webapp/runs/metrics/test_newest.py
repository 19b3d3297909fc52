"""The newest figures of a run, for its tiles."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.webapp.results.conftest import points
from webapp.runs.metrics.models import MetricPoint
from webapp.runs.metrics.selectors import _ends_of_curve, curves, first_curves, newest_values, values_at

pytestmark = pytest.mark.django_db


def test_a_metric_whose_name_is_longer_than_a_name_of_postgresql_has_its_newest_figures(make_run: Any) -> None:
    run, long, longer = make_run(), "rewards/" + "x" * 70, "rewards/" + "x" * 71
    points(run, long, [1.0, 2.0, 3.0])
    points(run, longer, [9.0])
    points(run, "other", [7.0])
    assert newest_values(run, [long, "other", "none"], 2) == {long: [2.0, 3.0], "other": [7.0]}


def test_the_band_of_the_reward_comes_with_the_first_curves(make_run: Any) -> None:
    run = make_run()
    for name in ("reward", "reward_std", "heldout/success_low", "grad_norm_of_another"):
        points(run, name, [0.5, 0.75])
    found = first_curves(run, ["reward", "reward_std", "heldout/success_low", "grad_norm_of_another"])
    assert set(found) == {"reward", "reward_std", "heldout/success_low"}
    assert found["reward_std"]["values"] == [0.5, 0.75]
    assert set(curves(run)) == {"reward", "reward_std", "heldout/success_low", "grad_norm_of_another"}
    assert set(curves(run, ["reward"])) == {"reward"} and curves(run, []) == {}


def test_figures_up_to_a_step_are_those_that_were_asked_for(make_run: Any) -> None:
    run = make_run()
    points(run, "reward", [1.0, 2.0, 3.0])
    points(run, "success", [0.25, 0.5, 0.75])
    assert [values_at(run, ["reward"], step) for step in (2, 9)] == [{"reward": 2.0}, {"reward": 3.0}]


@pytest.mark.parametrize("state", ["running", "succeeded"])
def test_of_two_attempts_at_a_step_the_later_counts_before_and_after_the_end(make_run: Any, state: str) -> None:
    run = make_run(state=state, attempt=2)
    points(run, "reward", [1.0, 2.0])
    MetricPoint.objects.create(run=run, attempt=2, step=2, name="reward", value=5.0, seq=9)
    assert first_curves(run, ["reward"])["reward"] == {"steps": [1, 2], "values": [1.0, 5.0], "attempts": [1, 2]}


@pytest.mark.parametrize(("count", "late"), [(1, None), (2, 1.0), (10, 9.0), (11, 8.5), (20, 17.5)])
def test_the_tenth_before_the_last_one_is_compared_with_it(count: int, late: float | None) -> None:
    rows = np.array([(step, step) for step in range(count, 0, -1)], [("step", ">i4"), ("value", ">f8")])
    found = _ends_of_curve(rows.tobytes())
    part = -(-count // 10)
    assert (found.total, found.part, found.late, found.last) == (count, part, late, count)
    assert (found.before, found.after) == ((1 + part) / 2, count - (part - 1) / 2)
