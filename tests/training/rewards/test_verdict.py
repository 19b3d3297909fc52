"""What decides a rollout's outcome: the environment, else a component that judges the task, else nothing."""

from __future__ import annotations

import math
from typing import Any

import pytest

from training.rewards.base import Verdict, verdict_of


@pytest.mark.parametrize(
    ("env_parts", "parts", "functions", "verdict"),
    [
        ({"task_success": 1.0}, {"numeric_match": 0.0}, {}, Verdict(1.0)),
        ({"task_success": 0}, {}, {}, Verdict(0.0)),
        ({"task_success": None}, {"numeric_match": 1.0}, {}, Verdict(1.0, "numeric_match")),
        ({"score": 0.5}, {"length_penalty": 1.0}, {}, None),
        ({}, {"exact_match": 0.0, "numeric_match": 1.0}, {}, Verdict(1.0, "numeric_match")),
        ({}, {"numeric_match": None, "exact_match": 0.5}, {}, Verdict(0.5, "exact_match")),
        ({}, {"right": 1.0, "kind": 0.2}, {"right": "exact_match"}, Verdict(1.0, "right")),
        ({}, {"exact_match": 1.0}, {"exact_match": "length_penalty"}, None),
        ({"task_success": math.nan}, {"exact_match": math.inf}, {}, None),
        ({"task_success": "yes"}, {}, {}, None),
    ],
)
def test_the_verdict(
    env_parts: dict[str, Any], parts: dict[str, Any], functions: dict[str, str], verdict: Verdict | None
) -> None:
    assert verdict_of(env_parts, parts, functions) == verdict
