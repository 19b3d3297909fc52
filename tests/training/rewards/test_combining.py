"""Clip, scale, gates, schedules, categories; advantages against TRL's own lines."""

from __future__ import annotations

import inspect
import math
import random
import textwrap
from types import SimpleNamespace
from typing import Any

import pytest

from tests.growth import assert_quick
from training.config import JobConfig, RewardComponent, RewardSchedule
from training.errors import RewardFault
from training.rewards.combining import Aggregation, Scale, advantages, factor, terms_of, total_of
from training.rewards.scoring import score_episode, validate_components
from training.rows import categories_of

from .episodes import episode, says


def part(name: str, weight: float = 1.0, **more: Any) -> RewardComponent:
    return RewardComponent.model_validate({"name": name, "weight": weight, **more})


def test_the_defaults_change_nothing() -> None:
    plain = [part("coherence", 2), part("task_success", -3)]
    assert terms_of({"coherence": 0.8, "task_success": 1.0}, plain) == {"coherence": 0.8, "task_success": 1.0}
    assert plain[0].model_dump(exclude_defaults=True) == {"name": "coherence", "weight": 2.0}
    assert JobConfig().rewards.aggregation == "sum_then_normalize"


@pytest.mark.parametrize(
    ("more", "value", "expected"),
    [
        ({"clip": [-1, 1]}, 3.0, 1.0),
        ({"clip": [-1, 1]}, -3.0, -1.0),
        ({"clip": [-1, 1]}, 0.25, 0.25),
        ({"scale": [-1, 1]}, 0.0, 0.5),
        ({"scale": [0, 2]}, 3.0, 1.5),
        ({"clip": [0, 2], "scale": [0, 2]}, 3.0, 1.0),
    ],
)
def test_clip_then_scale(more: dict[str, Any], value: float, expected: float) -> None:
    assert terms_of({"a": value}, [part("a", **more)]) == {"a": expected}


@pytest.mark.parametrize(
    "bad",
    [
        {"clip": [1, 0]},
        {"scale": [1, 1]},
        {"clip": [1]},
        {"clip": [0, float("nan")]},
        {"schedule": {"end": 1, "begin": 2, "last": 0}},
        {"gate": {"component": "A b"}},
        {"schedule": {"end": 5}},
        {"categories": [""]},
        {"colour": 1},
    ],
)
def test_bad_options_are_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="validation error"):
        part("a", **bad)


def test_a_gate_counts_shaping_only_behind_the_outcome() -> None:
    spec = [part("win", 1), part("shape", 0.5, gate={"component": "win", "above": 0})]
    for win, expected in ((1.0, 1.5), (0.0, 0.0), (-1.0, -1.0)):
        parts = {"win": win, "shape": 1.0}
        assert total_of(terms_of(parts, spec), spec) == expected
    assert terms_of({"win": 0.0, "shape": 1.0}, spec) == {"win": 0.0, "shape": 0.0}


@pytest.mark.parametrize(
    ("kind", "expected"), [("linear", [1.0, 1.0, 0.75, 0.5, 0.0, 0.0]), ("step", [1.0, 1.0, 1.0, 1.0, 0.0, 0.0])]
)
def test_schedules(kind: Any, expected: list[float]) -> None:
    schedule = RewardSchedule(kind=kind, begin=10, end=30, first=1, last=0)
    assert [factor(schedule, step) for step in (0, 10, 15, 20, 30, 99)] == pytest.approx(expected)
    assert factor(None, 7) == 1.0
    spec = [part("a", 2, schedule=schedule.model_dump())]
    assert total_of(terms_of({"a": 0.5}, spec, 20), spec) == pytest.approx(0.5 if kind == "linear" else 1.0)


def test_components_count_for_their_categories_only() -> None:
    spec = [part("task_success", categories=["G1"]), part("coherence", categories=["G1", "G2"]), part("exact_match")]
    row = {"answer": "hi", "extra_info": {"category": "G2"}}
    scored = score_episode(episode("q", says("hi"), row=row), spec)
    assert scored.parts == {"coherence": 0.8, "exact_match": 1.0} and scored.total == pytest.approx(1.8)
    assert categories_of({"data_source": "x", "category": 3, "split": "y"}) == {"x", "y"}
    with pytest.raises(RewardFault, match="No reward component counts"):
        score_episode(episode("q", says("hi")), spec[:1])


def test_gates_are_checked() -> None:
    gate = {"component": "task_success"}
    assert validate_components([part("coherence", gate=gate), part("task_success", 0)]) == []
    assert "another component" in validate_components([part("coherence", gate=gate)])[0]
    assert "another component" in validate_components([part("task_success", gate=gate)])[0]
    narrow = [part("coherence", gate=gate, categories=["a"]), part("task_success", 0, categories=["b"])]
    assert "same categories" in validate_components(narrow)[0]
    narrow[1] = part("task_success", 0, categories=["a", "b"])
    assert validate_components(narrow) == []


def test_schedules_reach_the_score() -> None:
    spec = [part("coherence", 1, schedule={"end": 10, "last": 0})]
    played = episode("q", says("hi"))
    assert [score_episode(played, spec, step=step).total for step in (0, 5, 10)] == pytest.approx([0.8, 0.4, 0.0])
    assert score_episode(played, spec, step=10).parts == {"coherence": 0.8}


# --- TRL --------------------------------------------------------------------------------------------------------------
def trl_advantages(rewards: Any, weights: list[float], size: int, aggregation: str, scale: str) -> list[float]:
    """TRL's own lines between the rewards and the advantages, run unchanged (in float64)."""
    import torch
    from trl.trainer import grpo_trainer

    source = inspect.getsource(grpo_trainer.GRPOTrainer._generate_and_score_completions)
    begin = source.index("        unscorable_mask = ")
    end = source.index("advantages = torch.nan_to_num(advantages, nan=0.0)")
    lines = textwrap.dedent(source[begin:end] + "advantages = torch.nan_to_num(advantages, nan=0.0)\n")
    self = SimpleNamespace(
        multi_objective_aggregation=aggregation,
        scale_rewards=scale,
        reward_funcs=weights,
        reward_weights=torch.tensor(weights, dtype=torch.float64),
    )
    names = {
        "self": self,
        "torch": torch,
        "nanstd": grpo_trainer.nanstd,
        "device": "cpu",
        "num_generations": size,
        "rewards_per_func": torch.tensor(rewards, dtype=torch.float64),
    }
    exec(lines, names)  # noqa: S102 - the installed package's own code
    return names["advantages"].tolist()  # type: ignore[no-any-return, attr-defined]


@pytest.mark.parametrize("aggregation", ["sum_then_normalize", "normalize_then_sum"])
@pytest.mark.parametrize("scale", ["group", "batch", "none"])
def test_advantages_are_trls_on_1000_groups(aggregation: Aggregation, scale: Scale) -> None:
    rng = random.Random(f"{aggregation}{scale}")
    size, weights = 6, [1.0, -0.3, 0.25]
    spec = [part(name, weight) for name, weight in zip("abc", weights, strict=True)]
    rollouts: list[dict[str, float] | None] = []
    for group in range(1000):
        flat = rng.random() < 0.1
        same = {name: rng.choice([0.1, 1.0, rng.uniform(-2, 2)]) for name in "abc"}
        for _ in range(size):
            if rng.random() < (0.9 if group % 50 == 0 else 0.15):
                rollouts.append(None)  # excluded
                continue
            terms = dict(same) if flat else {name: rng.choice([0.0, 1.0, rng.uniform(-2, 2)]) for name in "abc"}
            if group % 3 == 0:
                terms.pop("c")  # a component that does not count for this row
            elif rng.random() < 0.1:
                terms.pop("b")
            rollouts.append(terms)
    nan = math.nan
    table = [[nan] * 3 if terms is None else [terms.get(name, nan) for name in "abc"] for terms in rollouts]
    theirs = trl_advantages(table, weights, size, aggregation, scale)
    ours = advantages(rollouts, spec, size, aggregation=aggregation, scale=scale)
    assert sum(terms is None for terms in rollouts) > 500
    for mine, other, terms in zip(ours, theirs, rollouts, strict=True):
        assert (mine is None) == (terms is None)
        assert (mine or 0.0) == pytest.approx(other, abs=1e-6)


def test_a_batch_of_broken_groups_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^The batch does not consist of whole groups\.$"):
        advantages([{"a": 1.0}] * 5, [part("a")], 2)


def test_moved_weights_on_10000_rollouts_take_less_than_300_ms() -> None:
    names = [f"c{number}" for number in range(6)]
    rng = random.Random(1)
    recorded = [{name: rng.random() for name in names} for _ in range(10_000)]
    spec = [part(name, rng.random(), clip=[0, 0.9]) for name in names]
    assert_quick(lambda: advantages([terms_of(parts, spec, 3) for parts in recorded], spec, 8), 0.3)
