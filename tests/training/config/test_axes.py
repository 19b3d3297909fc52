"""The axes of a sweep: which options, which values, which jobs, and what is refused at which axis."""

from __future__ import annotations

from typing import Any

import pytest

from training.config import Axis, JobConfig, base_setting, points_of, scalar_options, typed_axes, written
from training.config.axes import MOST_AXES, MOST_RUNS, MOST_VALUES
from training.errors import ConfigError

RATE, SEED, RANK = "optim.learning_rate", "run.seed", "model.lora_rank"


def refused(axes: list[Axis], base: JobConfig | None = None, mode: Any = "product") -> tuple[str, str]:
    with pytest.raises(ConfigError) as raised:
        points_of(base or JobConfig(), axes, mode)
    return raised.value.option, raised.value.sentence


def test_options_with_one_value_can_be_varied() -> None:
    known = scalar_options()
    assert {RATE, SEED, RANK, "rewards.spec", "data.train", "kind", "grpo.loss_type", "rollout.temperature"} <= set(
        known
    )
    assert not {"environment.url", "environment.protocol"} & set(known), "a registration fills them in"
    assert not {"rewards.components", "curriculum.stages", "report.to", "version", "model"} & set(known)
    assert all(path == "kind" or path.count(".") == 1 for path in known)


def test_every_combination_in_order_with_texts_as_the_options_have_them() -> None:
    points = points_of(JobConfig(), [Axis(RATE, ["1e-5", "3e-05"]), Axis(SEED, ["1", 2])])
    assert [point.values for point in points] == [
        {RATE: 1e-5, SEED: 1}, {RATE: 1e-5, SEED: 2}, {RATE: 3e-5, SEED: 1}, {RATE: 3e-5, SEED: 2},
    ]  # fmt: skip
    assert [(p.config.optim.learning_rate, p.config.run.seed) for p in points][1:3] == [(1e-5, 2), (3e-5, 1)]
    assert points[0].setting == points[1].setting == {RATE: 1e-5}
    assert points[0].config.model == JobConfig().model


def test_one_change_at_a_time_keeps_the_rest_and_every_seed_repeats_it() -> None:
    base = JobConfig.model_validate({"optim": {"learning_rate": 1e-5}, "model": {"lora_rank": 8}})
    axes = [Axis(RATE, [1e-5, 3e-5]), Axis(RANK, [16, 32]), Axis(SEED, [1, 2])]
    points = points_of(base, axes, "single")
    assert [tuple(point.values.values()) for point in points] == [
        (rate, rank, seed) for rate, rank in ((1e-5, 8), (3e-5, 8), (1e-5, 16), (1e-5, 32)) for seed in (1, 2)
    ]
    assert base_setting(base, typed_axes(base, axes), "single") == {RATE: 1e-5, RANK: 8}
    alone = points_of(base, axes[:2], "single")
    assert {point.config.run.seed for point in alone} == {base.run.seed} and len(alone) == 4


def test_the_default_learning_rate_is_the_one_that_is_trained_with() -> None:
    base = JobConfig()
    rate = base.learning_rate
    assert base.optim.learning_rate == 0
    points = points_of(base, [Axis(RATE, [rate, 2 * rate])], "single")
    assert [point.values[RATE] for point in points] == [rate, 2 * rate], "the default is not tried twice"


@pytest.mark.parametrize("form", [{}, {"optim": {"learning_rate": 5e-5}}])
def test_a_learning_rate_of_0_is_the_methods_own_wherever_it_is_written(form: dict[str, Any]) -> None:
    base, own = JobConfig.model_validate(form), JobConfig().learning_rate
    axes = [Axis(RATE, [3e-5, "0"])]
    assert [point.values[RATE] for point in points_of(base, axes)] == [3e-5, own]
    assert base_setting(base, typed_axes(base, axes), "product") == {RATE: 3e-5 if form else own}
    singles = [point.values[RATE] for point in points_of(base, axes, "single")]
    assert singles == ([5e-5, 3e-5, own] if form else [own, 3e-5]), "what the form has is not tried twice"
    assert refused([Axis(RATE, [0, own])], base) == ("axes.0.values", "1e-6 is listed twice.")


@pytest.mark.parametrize(("values", "base"), [([1e-5, 3e-5], 1e-5), ([3e-5, 1e-4], 3e-5)])
def test_the_base_is_the_configs_own_value_else_the_first(values: list[Any], base: float) -> None:
    config, axes = JobConfig.model_validate({"optim": {"learning_rate": 1e-5}}), [Axis(RATE, values)]
    assert base_setting(config, axes, "product") == {RATE: base}


@pytest.mark.parametrize(
    ("axes", "option", "sentence"),
    [
        ([], "axes", f"A sweep varies 1 to {MOST_AXES} options."),
        ([Axis(SEED, [1, 2])] * 5, "axes", f"A sweep varies 1 to {MOST_AXES} options."),
        ([Axis("optim.lerning_rate", [1])], "axes.0.option", "Did you mean optim.learning_rate?"),
        ([Axis("learning_rate", [1])], "axes.0.option", "Did you mean optim.learning_rate?"),
        ([Axis("zzzzzz", [1])], "axes.0.option", "zzzzzz is no option with one value."),
        ([Axis("", [1, 2])], "axes.0.option", "Choose the option that these values are of."),
        ([Axis(SEED, [1, 2]), Axis("rewards.components", [1])], "axes.1.option", "no option with one value"),
        ([Axis(SEED, [1, 2]), Axis(SEED, [3])], "axes.1.option", "run.seed is listed twice."),
        ([Axis(SEED, [])], "axes.0.values", f"An option takes 1 to {MOST_VALUES} values."),
        ([Axis(SEED, range(MOST_VALUES + 1))], "axes.0.values", f"An option takes 1 to {MOST_VALUES} values."),
        ([Axis(SEED, [1])], "axes", "Give at least two values: one run is no sweep."),
        ([Axis(SEED, [1, 2]), Axis(RATE, ["1e-5", "x"])], "axes.1.values", "x is no value of optim.learning_rate"),
        ([Axis(RATE, [-1, 1])], "axes.0.values", "-1 is no value of optim.learning_rate"),
        ([Axis(RATE, ["1e-5", "0.00001"])], "axes.0.values", "1e-5 is listed twice."),
        ([Axis("grpo.loss_type", ["dapo", "dopa"])], "axes.0.values", "dopa is no value of grpo.loss_type"),
        ([Axis("optim.mini_batch_size", [8, 7])], "axes.0.values", "With optim.mini_batch_size = 7: 64 rollouts"),
        (
            [Axis(SEED, [1, 2]), Axis("model.quantization", ["none", "nf4"])],
            "axes.1.values",
            "With run.seed = 1, model.quantization = nf4: weights of 4 bits cannot be trained",
        ),
        ([Axis(SEED, range(8)), Axis("run.max_steps", range(1, 6))], "axes", "These are 40 runs; a sweep has at most"),
    ],
)
def test_a_refusal_names_its_axis(axes: list[Axis], option: str, sentence: str) -> None:
    found = refused(axes)
    assert found[0] == option and sentence in found[1]


def test_as_many_runs_as_are_allowed() -> None:
    axes = [Axis(SEED, range(8)), Axis("run.max_steps", range(1, 5))]
    assert len(points_of(JobConfig(), axes)) == MOST_RUNS


def test_one_change_at_a_time_has_32_runs_at_most() -> None:
    """The form's setting is one of them."""
    options = ["run.max_steps", "rollout.prompts_per_step", "data.max_rows", "optim.warmup_steps"]
    axes = [Axis(option, range(200, 208)) for option in options]
    fitting = [*axes[:3], axes[3]._replace(values=range(200, 207))]
    assert len(points_of(JobConfig(), fitting, "single")) == 32
    assert refused(axes, mode="single") == ("axes", "These are 33 runs; a sweep has at most 32.")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1e-5, "1e-5"),
        (0.0003, "3e-4"),
        (0.5, "0.5"),
        (1.0, "1"),
        (100.0, "100"),
        (0.0, "0"),
        (0.01, "0.01"),  # as long as 1e-2
        (0.001, "1e-3"),
        (0.0123456789, "0.0123456789"),
        (True, "true"),
        (3, "3"),
        ("", "–"),
        (None, "–"),
        ("奖励", "奖励"),
    ],
)
def test_values_are_short_and_exact(value: Any, text: str) -> None:
    assert written(value) == text
