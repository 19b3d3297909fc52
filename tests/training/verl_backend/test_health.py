"""Updates that do not move the weights pause a run, as on one device."""

from __future__ import annotations

import math

import pytest

from training.config import RunConfig
from training.errors import NoGradient, NotFinite
from training.journal import Event
from training.verl_backend.figures import Health


def health(most: int = 3) -> tuple[Health, list[Event]]:
    said: list[Event] = []
    return Health(RunConfig(no_gradient_updates=most), said.append), said


def test_three_gradients_in_a_row_that_are_not_finite_pause() -> None:
    made, said = health()
    for step, norm in enumerate([math.nan, math.inf, 0.5, math.nan, math.inf], start=1):
        made.look(step, 0.1, norm)
    with pytest.raises(NotFinite, match=r"in 3 updates in a row \(up to step 6\)"):
        made.look(6, math.nan, math.nan)
    assert [(event.step, event.what, event.in_a_row) for event in said] == [  # type: ignore[attr-defined]
        (1, "gradient", 1),
        (2, "gradient", 2),
        (4, "gradient", 1),
        (5, "gradient", 2),
        (6, "gradient", 3),
    ]


def test_updates_of_exactly_nothing_pause_after_as_many_as_are_allowed() -> None:
    made, said = health(3)
    for step, (loss, norm) in enumerate([(0.0, 0.0), (0.0, 0.0), (0.0, 1e-9), (0.0, 0.0), (0.0, 0.0)], start=1):
        made.look(step, loss, norm)
    with pytest.raises(NoGradient, match=r"in 3 updates in a row \(up to step 6\)"):
        made.look(6, 0.0, 0.0)
    assert said == []


def test_a_job_may_allow_any_number_of_them() -> None:
    made, _said = health(0)
    for step in range(1, 50):
        made.look(step, 0.0, 0.0)
