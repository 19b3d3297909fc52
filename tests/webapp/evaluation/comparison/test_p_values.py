"""A p-value at the floor of its test is a bound, and reads as one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from training.evaluation.comparisons import FLOOR
from webapp.evaluation.comparison.contestants import contestants_of
from webapp.evaluation.comparison.rewards import evaluations
from webapp.evaluation.comparison.verdicts import at_floor, conclusions, p_text
from webapp.people.teams.models import Project
from webapp.runs.models import Run

pytestmark = pytest.mark.django_db


def test_a_p_value_that_is_only_bounded_reads_as_a_bound(
    project: Project, evaluation: Callable[..., Run], make_dataset: Any
) -> None:
    """Three different effects all read p = 0.00015 once: the least that 20,000 sign flips can give, times three."""
    data = make_dataset(name="many", lines=[{"messages": [{"role": "user", "content": str(n)}]} for n in range(30)])
    a = evaluation("a", {n: [1.0, float(n == 0)] for n in range(30)}, dataset=data)
    b = evaluation("b", {n: [1.0, float(n != 1)] for n in range(30)}, dataset=data)
    c = evaluation("c", {n: [0.0, float(n == 2)] for n in range(30)}, dataset=data)
    read = evaluations(project, contestants_of(project, [str(run.pk) for run in (a, b, c)])[0], "")
    assert read is not None
    texts = [verdict.text for verdict in conclusions(read.playing, read)[1]]
    assert len(texts) == 3 and all(", p < 0.0002, n = 30 tasks × 2." in text for text in texts), texts


def test_a_bound_has_one_digit_and_lies_above_the_value() -> None:
    bounds = [p_text(value, floor=True) for value in (3 * FLOOR, 2e-4, 9.5e-4, FLOOR, None)]
    assert bounds == ["p < 0.0002", "p < 0.0003", "p < 0.001", "p < 0.0001", "p –"]
    assert [at_floor(value) for value in (None, FLOOR, 2 * FLOOR, 1e-9)] == [False, True, False, True]
