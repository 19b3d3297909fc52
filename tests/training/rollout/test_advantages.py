"""Our advantages are TRL's, with missing rewards left out of the baseline."""

from __future__ import annotations

import math
import random
from typing import Literal

import pytest

from training.rewards.combining import group_statistics, mean_of, reward_mean, reward_std


def trl_advantages(rewards: list[float | None], size: int, scale: str) -> list[float]:
    """TRL 1.16's own lines (``sum_then_normalize``) on its own helper ``nanstd``."""
    import torch
    from trl.trainer.utils import nanstd

    r = torch.tensor([float("nan") if x is None else x for x in rewards], dtype=torch.float32)
    mean = torch.nanmean(r.view(-1, size), dim=1).repeat_interleave(size)
    per_group = nanstd(r.view(-1, size), dim=1).repeat_interleave(size)
    std = nanstd(r).expand_as(r) if scale == "batch" else per_group
    advantages = r - mean
    if scale != "none":
        advantages = advantages / (std + 1e-4)
    return torch.nan_to_num(advantages, nan=0.0).tolist()


@pytest.mark.parametrize("scale", ["group", "batch", "none"])
def test_advantages_equal_trls_whatever_is_missing(scale: str) -> None:
    rng = random.Random(1)
    for missing in (0.0, 0.2, 0.6, 0.9, 1.0):
        rewards = [None if rng.random() < missing else rng.choice([0.0, 0.5, rng.random()]) for _ in range(24)]
        ours: list[float | None] = []
        for start in range(0, 24, 4):
            result = group_statistics(rewards[start : start + 4], scale=scale, batch_std=reward_std(rewards))  # type: ignore[arg-type]
            ours += result.advantages
        assert [a is None for a in ours] == [r is None for r in rewards]
        assert [a or 0.0 for a in ours] == pytest.approx(trl_advantages(rewards, 4, scale), abs=2e-3)


def test_an_excluded_rollout_leaves_the_baseline_by_hand() -> None:
    result = group_statistics([1.0, None, 0.0, 0.5])
    assert result.mean == 0.5
    assert result.std == pytest.approx(0.5)
    assert result.advantages[1] is None
    assert [result.advantages[i] for i in (0, 2, 3)] == pytest.approx([0.5 / 0.5001, -0.5 / 0.5001, 0.0])


def test_zero_variance_sees_through_float_noise() -> None:
    assert group_statistics([0.1 + 0.2, 0.3, 0.3]).zero_variance
    assert not group_statistics([0.3, 0.3, 0.31]).zero_variance


def test_groups_without_enough_rewards_teach_nothing() -> None:
    assert group_statistics([None, None])[:4] == ([None, None], None, None, True)
    alone = group_statistics([0.7, None])
    assert alone.advantages == [0.0, None] and alone.zero_variance and alone.std is None
    assert reward_mean([]) is None and reward_std([1.0]) is None


HUGE = (1e308, -1e308, 1.7e308, 1e200, math.inf, -math.inf, math.nan)


@pytest.mark.parametrize("scale", ["group", "batch", "none"])
def test_no_recorded_reward_however_large_raises(scale: Literal["group", "batch", "none"]) -> None:
    """A reward of 1e200 ended the trainer with ``OverflowError``; recorded runs of others may hold any float."""
    for first in HUGE:
        for second in (*HUGE, 0.0, 1.0):
            found = group_statistics([first, second, None, 1.0], scale=scale, batch_std=reward_std([first, second]))
            assert len(found.advantages) == 4 and found.advantages[2] is None


def test_large_rewards_have_the_mean_and_deviation_of_small_ones_scaled() -> None:
    small = [1.0, 2.0, 4.0]
    large = [value * 1e200 for value in small]
    assert reward_mean(large) == pytest.approx(7 / 3 * 1e200) and reward_std(large) == pytest.approx(
        (7 / 3) ** 0.5 * 1e200
    )
    assert math.isnan(reward_mean([1.0, math.inf]) or 0.0) and math.isnan(reward_std([1.0, math.nan]) or 0.0)


def test_rewards_a_millionth_apart_are_equal() -> None:
    assert group_statistics([0.0, 1e-6]).zero_variance and not group_statistics([0.0, 2e-6]).zero_variance


@pytest.mark.parametrize(
    ("scale", "batch_std", "expected"),
    [
        ("group", None, [-1.0 / 1.0001, 0.0, 1.0 / 1.0001]),
        ("batch", 3.0, [-1.0 / 3.0001, 0.0, 1.0 / 3.0001]),
        ("batch", None, [0.0, 0.0, 0.0]),
        ("none", 3.0, [-1.0, 0.0, 1.0]),
    ],
)
def test_what_the_distance_from_the_mean_is_divided_by(
    scale: Literal["group", "batch", "none"], batch_std: float | None, expected: list[float]
) -> None:
    found = group_statistics([1.0, 2.0, 3.0], scale=scale, batch_std=batch_std)
    assert found.advantages == pytest.approx(expected)
    assert (found.mean, found.std, found.zero_variance) == (2.0, 1.0, False)
    assert group_statistics([1.0, 2.0, 3.0]).advantages == pytest.approx([-1.0 / 1.0001, 0.0, 1.0 / 1.0001])


def test_means_and_deviations_by_hand() -> None:
    assert mean_of([1.0, 2.0, 6.0]) == 3.0 and mean_of([5.0]) == 5.0
    assert math.isnan(mean_of([1.0, math.inf])) and mean_of([1e300, 3e300]) == pytest.approx(2e300)
    assert reward_mean([None, 4.0, 0.0]) == 2.0 and reward_mean([None]) is None
    assert reward_std([3.0, None, 1.0]) == pytest.approx(2**0.5)
    assert reward_std([None, 1.0]) is None and reward_std([2.0, 2.0]) == 0.0
