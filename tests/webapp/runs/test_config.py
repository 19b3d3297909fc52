"""A run's config, read: the stage of a step, the components of all rollouts, weights, and what differs."""

from __future__ import annotations

from typing import Any

import pytest

from training.config import JobConfig
from webapp.runs.config import Changed, common_components, differences, flat, plain, stack_weights, stage_at
from webapp.runs.models import Run

SUCCESS, FORMAT = {"name": "task_success", "weight": 1.0}, {"name": "format", "weight": 0.5}
STAGES = [{"stage": 1, "began": 2}, {"stage": 2, "began": 6}]


def job(*courses: list[dict[str, Any]], parts: bool = False) -> JobConfig:
    """A job with these components in each of its stages, or in each part of its mix."""
    own: list[dict[str, Any]] = [{"name": f"c{n}", "rewards": {"components": each}} for n, each in enumerate(courses)]
    stages = own if parts else [each | {"until_step": n + 1} for n, each in enumerate(own[:-1])] + own[-1:]
    group = {"mix": {"parts": stages}} if parts else {"curriculum": {"stages": stages}}
    return JobConfig.model_validate(group | {"rewards": {"components": [SUCCESS]}})


@pytest.mark.parametrize(
    ("stages", "step", "stage"),
    [([], 5, 0), (STAGES, 2, 1), (STAGES, 3, 1), (STAGES, 6, 1), (STAGES, 7, 2), (STAGES[:1], 1, 1)],
)
def test_the_stage_of_a_step_is_the_last_that_began_before_it(
    stages: list[dict[str, int]], step: int, stage: int
) -> None:
    assert stage_at(Run(health={"stages": stages}), step) == stage


def test_components_of_all_rollouts_are_those_of_every_stage() -> None:
    assert [part.name for part in common_components(job([FORMAT, SUCCESS], [SUCCESS]))] == ["task_success"]
    assert common_components(job([FORMAT], [FORMAT | {"weight": 1.0}])) == common_components(None) == []


@pytest.mark.parametrize(
    ("parts", "courses", "weights"),
    [
        (False, [[SUCCESS], [SUCCESS, FORMAT]], {"task_success": 1.0, "format": 0.5}),
        (False, [[FORMAT], [FORMAT | {"weight": 1.0}]], None),
        (True, [[SUCCESS], [SUCCESS]], {"task_success": 1.0}),
        (True, [[SUCCESS], [SUCCESS, FORMAT]], None),
        (False, [], {"task_success": 1.0}),
    ],
)
def test_one_factor_of_each_component_or_none_at_all(
    parts: bool, courses: list[list[dict[str, Any]]], weights: dict[str, float] | None
) -> None:
    assert stack_weights(job(*courses, parts=parts)) == weights
    assert stack_weights(None) is None


def test_options_differ_by_their_written_values() -> None:
    old = {"kind": "sft", "train": {"steps": 5, "seed": 1}}
    assert flat(old) == {"kind": "sft", "train.steps": 5, "train.seed": 1}
    new = {"kind": "grpo", "train": {"steps": 6, "seed": 1, "note": ""}, "tags": []}
    assert differences(old, new) == [Changed("kind", "sft", "grpo"), Changed("train.steps", "5", "6")]
    parts = [{"rewards": {"components": [SUCCESS | {"params": {"n": n}}]}} for n in (1, 2)]
    same = Changed("rewards.components", "task_success × 1", "task_success × 1")
    assert differences(*parts) == [same], "though a page shows no parameters"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        *((None, "–"), ("", "–"), ([], "–"), (0, "0"), (False, "false"), ("a b", "a b"), (0.5, "0.5")),
        ([{"name": "a", "weight": 1.0}, {"name": "b", "weight": 0.5, "params": {}}], "a × 1, b × 0.5"),
        ([{"name": "a"}], '[{"name": "a"}]'),
        (["é", 1], '["é", 1]'),
        (
            [{"name": "a", "weight": 1.0, "environment": {}}],
            '[{"name": "a", "weight": 1.0, "environment": {}}]',
        ),
    ],
)
def test_a_value_is_shown_as_it_was_written(value: Any, text: str) -> None:
    assert plain(value) == text
