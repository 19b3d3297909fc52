"""The newest figures of a run, for its tiles."""

from __future__ import annotations

from typing import Any

import pytest

from tests.webapp.results.conftest import points
from webapp.runs.metrics.selectors import first_curves, newest_values

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
