"""Stages in a config: each is a job by itself, made of the run's options and its own; what is wrong is named there."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from training.config import JobConfig, config_from_yaml, config_to_yaml
from training.words import complaint_of, option_of

FORMAT = {"name": "format", "until_step": 20, "data": {"train": "format.jsonl", "max_rows": 75}}
BASE = {"name": "base", "until": {"figure": "success", "at_least": 0.6, "times": 2}, "rollout": {"prompts_per_step": 4}}
ALL = {"name": "all", "optim": {"learning_rate": 1e-5}, "grpo": {"beta": 0.1}}
HELD_OUT = {"every": 10, "share": 0.1}


def job(*stages: dict[str, Any], **groups: Any) -> JobConfig:
    base = {"data": {"train": "whole.jsonl"}, "evaluate": HELD_OUT, "curriculum": {"stages": list(stages)}}
    return JobConfig.model_validate(base | groups)


def refused(*stages: dict[str, Any], **groups: Any) -> list[tuple[str, str]]:
    with pytest.raises(ValidationError) as caught:
        job(*stages, **groups)
    return [(option_of(error), complaint_of(error)) for error in caught.value.errors(include_url=False)]


def test_each_stage_has_the_options_of_the_run_with_its_own_over_them() -> None:
    config = job(FORMAT, BASE, ALL, rollout={"prompts_per_step": 2, "max_turns": 7}, optim={"micro_batch_size": 4})
    first, second, third = config.courses
    assert (first.data.train, first.data.max_rows, first.rollout.prompts_per_step) == ("format.jsonl", 75, 2)
    assert (second.data.train, second.data.max_rows, second.rollout.prompts_per_step) == ("whole.jsonl", 0, 4)
    assert (third.optim.learning_rate, third.optim.micro_batch_size, third.grpo.beta) == (1e-5, 4, 0.1)
    assert {each.rollout.max_turns for each in config.courses} == {7}
    assert [each.curriculum.stages for each in config.courses] == [[], [], []]
    assert JobConfig().courses == [JobConfig()]


def test_a_spec_and_components_of_a_stage_replace_one_another() -> None:
    part, other = {"name": "task_success", "weight": 1.0}, {"name": "tool_call_correctness", "weight": 0.5}
    spec = {"name": "a", "until_step": 1, "rewards": {"spec": "reward:mine"}}
    parts = {"name": "b", "rewards": {"components": [other]}}
    by_parts = job(spec, parts, rewards={"components": [part]}).courses
    assert (by_parts[0].rewards.spec, by_parts[0].rewards.components) == ("reward:mine", [])
    by_spec = job(spec, parts, rewards={"spec": "reward:theirs"}).courses
    assert by_spec[1].rewards.spec == "" and [each.name for each in by_spec[1].rewards.components] == [other["name"]]


def test_yaml_gives_the_stages_back() -> None:
    config = job(FORMAT, BASE, ALL)
    for only_changed in (False, True):
        assert config_from_yaml(config_to_yaml(config, only_changed=only_changed)) == config
    assert "until_step: 20" in config_to_yaml(config, only_changed=True)


def test_methods_without_rollouts_have_one_course() -> None:
    config = job({"name": "a", "until_step": 5_000}, {"name": "b"}, kind="sft")
    assert config.stages == [] and config.courses == [config]


WRONG: dict[str, tuple[list[dict[str, Any]], str, str]] = {
    "no end": ([{"name": "a"}, ALL], "curriculum.stages.0", "say when the stage ends"),
    "last by step": ([FORMAT, {"name": "b", "until_step": 40}], "curriculum.stages.1.until_step", "ends with the run"),
    "last by figure": ([FORMAT, {**BASE}], "curriculum.stages.1.until", "ends with the run"),
    "not rising": (
        [FORMAT, {"name": "b", "until_step": 20}, ALL],
        "curriculum.stages.1.until_step",
        "ends at step 20, and one before it at step 20",
    ),
    "after the run": (
        [{"name": "a", "until_step": 100}, ALL],
        "curriculum.stages.0.until_step",
        "would end at step 100, and the run ends at step 100",
    ),
    "one name": ([FORMAT, {"name": "format"}], "curriculum.stages", "a name of its own"),
    "no name": ([{"name": " ", "until_step": 3}, ALL], "curriculum.stages.0.name", "pattern"),
    "the model": ([{**FORMAT, "model": {"lora_rank": 4}}, ALL], "curriculum.stages.0.model", "not permitted"),
    "the sampler": (
        [{**FORMAT, "rollout": {"engine": "vllm"}}, ALL],
        "curriculum.stages.0.rollout.engine",
        "whole run",
    ),
    "the schedule": ([FORMAT, {**ALL, "optim": {"schedule": "cosine"}}], "curriculum.stages.1.optim.schedule", "whole"),
    "unknown": ([FORMAT, {"name": "b", "rollout": {"turns": 3}}], "curriculum.stages.1.rollout.turns", "not permitted"),
    "out of range": (
        [FORMAT, {"name": "b", "rollout": {"max_turns": 0}}],
        "curriculum.stages.1.rollout.max_turns",
        "greater than or equal to 1",
    ),
    "does not go together": (
        [FORMAT, {"name": "b", "optim": {"mini_batch_size": 7}}],
        "curriculum.stages.1.optim.mini_batch_size",
        "64 rollouts per step cannot be divided into mini batches of 7",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_named_with_its_place(name: str) -> None:
    stages, option, sentence = WRONG[name]
    found = refused(*stages)
    assert [each[0] for each in found] == [option] and sentence in found[0][1], found


def test_every_wrong_stage_is_reported() -> None:
    wrong = {"rollout": {"max_turns": 0}}
    found = refused({**FORMAT, **wrong}, {**ALL, **wrong})
    assert [option for option, _ in found] == [f"curriculum.stages.{n}.rollout.max_turns" for n in (0, 1)]


def test_a_figure_needs_tasks_that_are_held_out() -> None:
    assert [each[0] for each in refused(BASE, ALL, evaluate={"every": 0})] == ["evaluate.every"]
