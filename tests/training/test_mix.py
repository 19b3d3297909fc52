"""A mix in a config: each part is a job by itself, made of the run's options and its own; what is wrong is named."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from training.config import MAX_PARTS, JobConfig, config_from_yaml, config_to_yaml
from training.rewards.scoring import components_of, differently_scored, form_components
from training.words import complaint_of, option_of

COUNT = {"name": "count", "weight": 3, "data": {"train": "count.jsonl", "max_rows": 75}}
SHOP = {
    "name": "shop",
    "environment": {"url": "http://shop:1", "step_timeout_s": 5},
    "rewards": {"components": [{"name": "task_success", "weight": 1.0}], "score_timeout_s": 3},
}


def job(*parts: dict[str, Any], **groups: Any) -> JobConfig:
    base = {"data": {"train": "whole.jsonl"}, "mix": {"parts": list(parts)}}
    return JobConfig.model_validate(base | groups)


def refused(*parts: dict[str, Any], **groups: Any) -> list[tuple[str, str]]:
    with pytest.raises(ValidationError) as caught:
        job(*parts, **groups)
    return [(option_of(error), complaint_of(error)) for error in caught.value.errors(include_url=False)]


def test_each_part_has_the_options_of_the_run_with_its_own_over_them() -> None:
    config = job(COUNT, SHOP, environment={"url": "http://tools:1", "attempts": 5}, rollout={"max_turns": 7})
    first, second = config.courses
    assert (first.data.train, first.data.max_rows, first.environment.url) == ("count.jsonl", 75, "http://tools:1")
    assert (second.data.train, second.environment.url, second.environment.step_timeout_s) == (
        "whole.jsonl",
        "http://shop:1",
        5.0,
    )
    assert [each.environment.attempts for each in config.courses] == [5, 5]
    assert [each.rewards.score_timeout_s for each in config.courses] == [30.0, 3.0]
    assert [each.mix.parts for each in config.courses] == [[], []]
    assert list(config.named_courses) == ["count", "shop"] and config.stages == []
    assert [part.weight for part in config.mix.parts] == [3.0, 1.0]


def test_a_spec_and_components_of_a_part_replace_one_another() -> None:
    spec = {"name": "a", "rewards": {"spec": "reward:mine"}}
    by_parts = job(spec, SHOP, rewards={"components": [{"name": "task_success", "weight": 1.0}]}).courses
    assert (by_parts[0].rewards.spec, by_parts[0].rewards.components) == ("reward:mine", [])
    by_spec = job(spec, SHOP, rewards={"spec": "reward:theirs"}).courses
    assert by_spec[1].rewards.spec == "" and [each.name for each in by_spec[1].rewards.components] == ["task_success"]


def test_yaml_gives_the_parts_back() -> None:
    config = job(COUNT, SHOP)
    for only_changed in (False, True):
        assert config_from_yaml(config_to_yaml(config, only_changed=only_changed)) == config


PLAIN, NOT_ITS = (
    "only methods that learn from rollouts mix environments",
    "this option is the whole run's, not a part's",
)
STAGES = {"stages": [{"name": "a", "until_step": 1}, {"name": "b"}]}
NONE = {"weight": 0}


@pytest.mark.parametrize(
    ("parts", "groups", "option", "words"),
    [
        ([COUNT], {}, "mix.parts", "a mix has at least 2 parts: with one, set the options of the run itself"),
        ([COUNT, COUNT], {}, "mix.parts", "each part needs a name of its own"),
        ([COUNT | NONE, SHOP | NONE], {}, "mix.parts", "all weights are 0, so there would be nothing to play"),
        ([COUNT, SHOP], {"kind": "sft"}, "mix.parts", PLAIN),
        ([COUNT, SHOP], {"kind": "dpo"}, "mix.parts", PLAIN),
        ([COUNT, SHOP], {"kind": "evaluate"}, "mix.parts", PLAIN),
        ([COUNT, SHOP], {"kind": "sample"}, "mix.parts", PLAIN),
        ([COUNT, SHOP], {"curriculum": STAGES}, "mix.parts", "a run has either stages or a mix: leave out one of them"),
        (
            [COUNT, SHOP],
            {"data": {"draw": "pass_rate"}},
            "data.draw",
            "each part of a mix goes through its tasks in their order: choose that",
        ),
        ([COUNT | {"data": {"draw": "pass_rate"}}, SHOP], {}, "mix.parts.0.data.draw", NOT_ITS),
        (
            [COUNT, SHOP],
            {"evaluate": {"every": 5, "data": "other.jsonl"}},
            "evaluate.data",
            "each part of a mix holds out tasks of its own data: set a share instead",
        ),
        (
            [COUNT, SHOP | {"rewards": {"aggregation": "sum_then_normalize"}}],
            {},
            "mix.parts.1.rewards.aggregation",
            NOT_ITS,
        ),
        ([COUNT | {"rewards": {"signal": "all"}}, SHOP], {}, "mix.parts.0.rewards.signal", NOT_ITS),
    ],
)
def test_what_cannot_be_a_mix_is_refused_by_name(
    parts: list[dict[str, Any]], groups: dict[str, Any], option: str, words: str
) -> None:
    assert refused(*parts, **groups) == [(option, words)]


def test_what_is_wrong_with_a_part_is_named_below_it() -> None:
    assert [option for option, _words in refused(COUNT, {"name": "b", "data": {"max_rows": -1}})] == [
        "mix.parts.1.data.max_rows"
    ]
    twice = {"name": "b", "rewards": {"components": SHOP["rewards"]["components"] * 2}}  # type: ignore[index]
    assert refused(COUNT, twice) == [("mix.parts.1.rewards.components", "each component may appear once")]
    assert [option for option, _words in refused(COUNT, {"name": "b", "rollout": {"max_turns": 3}})] == [
        "mix.parts.1.rollout"
    ]


def test_limits_of_names_weights_and_numbers() -> None:
    assert job(COUNT, SHOP | {"weight": 0}).mix.parts[1].weight == 0.0
    assert job(COUNT, SHOP | {"weight": 1e6}).mix.parts[1].weight == 1e6
    assert job(COUNT, {"name": "n" * 40}, {"name": "two words"}).mix.parts[1].name == "n" * 40
    for wrong in ({"name": "n" * 41}, {"name": " a"}, {"name": "a/b"}, {"name": ""}):
        assert [option for option, _words in refused(COUNT, wrong)] == ["mix.parts.1.name"]
    for weight in (-0.1, 1.1e6, float("nan"), float("inf")):
        assert [option for option, _words in refused(COUNT, SHOP | {"weight": weight})] == ["mix.parts.1.weight"]
    assert len(job(*({"name": str(number)} for number in range(MAX_PARTS))).mix.parts) == MAX_PARTS == 20
    assert [option for option, _words in refused(*({"name": str(number)} for number in range(21)))] == ["mix.parts"]


def test_a_mix_may_have_an_unplayed_held_out_dataset_and_a_share() -> None:
    """Without evaluations the option is read by nothing."""
    assert job(COUNT, SHOP, evaluate={"data": "other.jsonl"}).evaluate.data
    assert job(COUNT, SHOP, evaluate={"every": 5, "share": 0.1}).evaluate.share == 0.1


def test_the_components_of_a_mix_are_those_of_all_parts_each_name_once() -> None:
    shaped = {"name": "b", "rewards": {"components": [{"name": "format", "function": "coherence", "weight": 0.5}]}}
    config = job(SHOP | {"name": "a"}, shaped, SHOP | {"name": "c"})
    assert [(item.name, item.weight) for item in components_of(config.courses)] == [
        ("task_success", 1.0),
        ("format", 0.5),
    ]
    assert differently_scored(config) is None
    assert components_of(job(COUNT, {"name": "b"}).courses) == form_components()
    assert components_of([JobConfig()]) == form_components()


def test_one_name_may_not_mean_two_things() -> None:
    half = {"name": "half", "rewards": {"components": [{"name": "task_success", "weight": 0.5}]}}
    assert differently_scored(job(SHOP, half)) == ("task_success", "half")
    assert differently_scored(job(SHOP, SHOP | {"name": "same"})) is None
    strict = {"name": "strict", "rewards": {"components": [{"name": "task_success", "weight": 1.0, "clip": [0, 0.5]}]}}
    assert differently_scored(job(SHOP, strict)) == ("task_success", "strict")
    first = form_components()[0]
    other = {"name": "own", "rewards": {"components": [{"name": first.name, "weight": first.weight + 1}]}}
    assert differently_scored(job(COUNT, other)) == (first.name, "own")  # also against what is there by default
