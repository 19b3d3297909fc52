"""Which figure says whether a rollout did its task: the environment's own word, else a component that judges the task.

The lab holds all shaping against it, and every page takes a rollout's outcome from it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

ENVIRONMENT = "task_success"
"""The environment's own verdict, among the parts that it reports."""
OUTCOMES = (
    "task_success",
    "bfcl_task_success",
    "webshop_success",
    "toolbench_pass",
    "helloagents_accuracy",
    "math_answer",
    "numeric_match",
    "exact_match",
    "webshop_score",
)
"""Functions that judge the task itself, the first that is there counts."""


class Verdict(NamedTuple):
    """How well a task was done, 0 to 1, and the component that says so; ``by`` is empty for the environment itself."""

    value: float
    by: str = ""


def verdict_of(
    env_parts: Mapping[str, Any], parts: Mapping[str, Any], functions: Mapping[str, str] | None = None
) -> Verdict | None:
    """What decides a rollout's outcome; ``None`` where nothing judged the task.

    ``functions`` names the function of each component whose name is another one; a component's own name is its
    function otherwise.
    """
    said = _number(env_parts.get(ENVIRONMENT))
    if said is not None:
        return Verdict(said)
    functions = functions or {}
    for function in OUTCOMES:
        for name, raw in parts.items():
            value = _number(raw) if functions.get(name, name) == function else None
            if value is not None:
                return Verdict(value, name)
    return None


def _number(value: Any) -> float | None:
    known = isinstance(value, int | float) and math.isfinite(value)
    return float(value) if known else None
