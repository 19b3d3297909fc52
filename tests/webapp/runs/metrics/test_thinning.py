"""What is left of a long curve: nothing that is seen is lost, and what is smoothed runs where the figures are."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
import pytest

from webapp.runs.metrics.selectors import Column, curve_of


def thinned(steps: Any, values: Any, limit: int, attempts: Any = None) -> dict[str, Any]:
    steps, values = np.array(steps, "i8"), np.array(values, "f8")
    return curve_of(Column(steps, values, np.array(attempts if attempts is not None else steps * 0 + 1, "i8")), limit)


def test_a_short_curve_stays_as_it_is_and_has_no_means() -> None:
    found = thinned([1, 2, 5], [1.0, math.nan, -math.inf], 3, [1, 1, 2])
    assert found == {"steps": [1, 2, 5], "values": [1.0, None, None], "attempts": [1, 1, 2]}
    assert thinned([], [], 10) == {"steps": [], "values": [], "attempts": []}


def test_first_last_and_the_ends_of_every_stretch_stay() -> None:
    rng = random.Random(7)
    steps = sorted(rng.sample(range(50_000), 9_000))
    values = [rng.gauss(0, 1) for _step in steps]
    values[4_321], values[77] = 99.0, -99.0
    found = thinned(steps, values, 200)
    assert (found["steps"][0], found["steps"][-1]) == (steps[0], steps[-1])
    assert {99.0, -99.0} <= set(found["values"]) and 150 < len(found["steps"]) <= 200
    assert found["steps"] == sorted(set(found["steps"]))
    known = dict(zip(steps, values, strict=True))
    assert all(known[step] == value for step, value in zip(found["steps"], found["values"], strict=True))
    width = (steps[-1] - steps[0] + 1) / 99
    for stretch in range(99):
        inside = [known[step] for step in steps if stretch == int((step - steps[0]) / width)]
        kept = [known[step] for step in found["steps"] if stretch == int((step - steps[0]) / width)]
        assert (min(kept), max(kept)) == (min(inside), max(inside))


def test_means_count_all_figures_of_a_stretch_once() -> None:
    values = [float(number % 10) for number in range(1_000)]
    means = thinned(range(1_000), values, 42)["means"]
    assert sum(means["counts"]) == 1_000 and len(means["counts"]) == 20
    assert means["values"] == [4.5] * 20 and means["counts"] == [50] * 20
    assert means["steps"][:2] == [24, 74]


def test_a_gap_stays_a_gap_and_hides_no_spike_next_to_it() -> None:
    """Where a stretch had a NaN, that was its highest, and a spike in it was lost."""
    values = [0.0] * 1_000
    values[500], values[501], values[503] = 7.0, math.nan, math.inf
    found = thinned(range(1_000), values, 40)
    assert 7.0 in found["values"] and found["values"].count(None) == 1
    assert sum(found["means"]["counts"]) == 998


def test_a_stretch_without_a_finite_figure_has_no_mean() -> None:
    values = [1.0] * 500 + [math.nan] * 500
    found = thinned(range(1_000), values, 22)
    assert len(found["means"]["values"]) == 5 and set(found["means"]["values"]) == {1.0}
    assert found["values"][-1] is None


def test_attempts_go_with_their_points() -> None:
    found = thinned(range(1_000), range(1_000), 20, [1] * 600 + [2] * 400)
    wanted = [1 if step < 600 else 2 for step in found["steps"]]
    assert found["attempts"] == wanted


@pytest.mark.parametrize("limit", [1, 2, 3])
def test_the_smallest_limit_keeps_the_ends(limit: int) -> None:
    found = thinned([10, 11, 12, 13], [0.0, 5.0, -5.0, 1.0], limit)
    assert found["steps"] == [10, 11, 12, 13] and found["means"]["counts"] == [4]
