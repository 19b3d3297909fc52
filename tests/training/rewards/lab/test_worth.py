"""What a spec pays for, of its bounds alone."""

from __future__ import annotations

import math
from typing import Any

import pytest

from training.config import RewardComponent
from training.rewards.lab.figures import Worth, worth_of
from training.rewards.scoring import form_components, starting_components


def spec(*parts: dict[str, Any]) -> list[RewardComponent]:
    return [RewardComponent.model_validate(part) for part in parts]


SOLVED, FORM = {"name": "task_success", "weight": 0.6}, {"name": "coherence", "weight": 0.4}


@pytest.mark.parametrize(
    ("parts", "unpaid", "outranked"),
    [
        ([SOLVED, FORM], False, False),
        ([SOLVED | {"weight": 0.4}, FORM], False, False),  # as much is not more
        ([SOLVED | {"weight": 0.39}, FORM], False, True),
        ([SOLVED | {"weight": 0.39}, FORM | {"gate": {"component": "task_success"}}], False, False),
        ([SOLVED | {"weight": 0}, FORM], True, False),
        ([SOLVED | {"weight": -0.6}, FORM], True, False),
        ([FORM], True, False),
        ([SOLVED | {"name": "mine", "function": "task_success"}, FORM], False, False),
        ([SOLVED, FORM | {"weight": -0.7}], False, True),
        ([FORM | {"scale": [0, 0.5]}, SOLVED], False, True),
        ([{"name": "math_answer", "weight": 1}], False, False),
        ([{"name": "custom_python", "weight": 1}], False, False),
        ([{"name": "custom_python", "weight": 0}, FORM], True, False),
        ([{"name": "judge", "weight": 1}, FORM], False, False),
        ([{"name": "regex_match", "weight": 1}], False, False),
        ([{"name": "toolbench_turns", "weight": 1}, SOLVED], False, False),  # nothing bounds it: no figure to say
    ],
)  # fmt: skip
def test_a_spec_pays_for_the_outcome_or_does_not(parts: list[dict[str, Any]], unpaid: bool, outranked: bool) -> None:
    found = worth_of(spec(*parts))
    assert (found.unpaid, found.outranked) == (unpaid, outranked)


def test_the_figures_are_what_the_ranges_are_worth() -> None:
    found = worth_of(spec(SOLVED, FORM, {"name": "toolbench_last_turn", "weight": 2}))
    assert found == Worth(pytest.approx(0.6), pytest.approx(0.4 + 2 * 0.7), False)
    assert worth_of(spec(SOLVED, {"name": "toolbench_turns", "weight": 1})).others == math.inf


def test_the_five_components_alone_pay_for_form_and_a_new_spec_begins_with_the_outcome() -> None:
    assert worth_of(form_components()) == Worth(0.0, pytest.approx(1.0), False)
    start = starting_components()
    assert (start[0].name, start[0].weight) == ("task_success", 0.6)
    assert [part.name for part in start[1:]] == [part.name for part in form_components()]
    assert worth_of(start) == Worth(0.6, pytest.approx(0.4), False)
