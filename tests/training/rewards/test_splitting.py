"""Advantages split by component, held against numbers computed by hand."""

from __future__ import annotations

import math

import pytest

from training.config import RewardComponent
from training.rewards.combining import (
    REST,
    SCALE_EPSILON,
    advantages,
    group_statistics,
    is_phantom,
    split_batch,
    split_group,
    total_of,
)

A, B = RewardComponent(name="success", weight=0.6), RewardComponent(name="form", weight=0.4)
TERMS = [{"success": 1.0, "form": 0.5}, {"success": 0.0, "form": 0.5}, None, {"success": 0.0, "form": 1.0}]
REWARDS = [0.8, 0.2, None, 0.4]


def sums(split) -> list[float | None]:
    return [None if row is None else math.fsum(row) for row in split.shares]


def test_with_no_scale_a_share_is_the_difference_from_the_components_mean() -> None:
    split = split_group(REWARDS, TERMS, [A, B], scale="none")
    assert split is not None and split.names == ["success", "form"]
    # success: 0.6, 0, 0 with mean 0.2; form: 0.2, 0.2, 0.4 with mean 4/15
    assert split.shares[0] == pytest.approx([0.4, 0.2 - 4 / 15])
    assert split.shares[1] == pytest.approx([-0.2, 0.2 - 4 / 15])
    assert split.shares[2] is None
    assert split.shares[3] == pytest.approx([-0.2, 0.4 - 4 / 15])
    mean = (0.8 + 0.2 + 0.4) / 3
    assert [sums(split)[at] for at in (0, 1, 3)] == pytest.approx([0.8 - mean, 0.2 - mean, 0.4 - mean])


def test_the_groups_spread_divides_and_the_shares_add_up() -> None:
    split = split_group(REWARDS, TERMS, [A, B], scale="group")
    assert split is not None
    mean = 1.4 / 3
    std = math.sqrt(((0.8 - mean) ** 2 + (0.2 - mean) ** 2 + (0.4 - mean) ** 2) / 2)
    assert split.shares[0] == pytest.approx([0.4 / (std + 1e-4), (0.2 - 4 / 15) / (std + 1e-4)])
    expected = group_statistics(REWARDS).advantages
    assert [sums(split)[at] for at in (0, 1, 3)] == pytest.approx([expected[at] for at in (0, 1, 3)])


def test_leave_one_out_and_the_batchs_spread() -> None:
    one_out = split_group(REWARDS, TERMS, [A, B], scale="leave_one_out")
    assert one_out is not None and one_out.shares[0] == pytest.approx([0.6, 1.5 * (0.2 - 4 / 15)])
    assert sums(one_out)[0] == pytest.approx(0.8 - (0.2 + 0.4) / 2)  # less the mean of the others
    batch = split_group(REWARDS, TERMS, [A, B], scale="batch", batch_std=0.5)
    assert batch is not None and batch.shares[0] == pytest.approx([0.4 / 0.5001, (0.2 - 4 / 15) / 0.5001])
    assert split_group(REWARDS, TERMS, [A, B], scale="values") is None


def test_what_the_components_do_not_explain_is_a_share_of_its_own() -> None:
    split = split_group([1.0, 0.5], [{"success": 1.0}, {"success": 0.0}], [A, B], scale="none")
    assert split is not None and split.names == ["success", REST]
    # rests: 1 - 0.6 = 0.4 and 0.5, mean 0.45
    assert split.shares[0] == pytest.approx([0.3, -0.05]) and sums(split)[0] == pytest.approx(0.25)


def test_an_absent_term_adds_nothing_and_one_reward_alone_has_no_spread() -> None:
    split = split_group([0.6, 0.4], [{"success": 1.0}, {"success": 0.0, "form": 1.0}], [A, B], scale="none")
    assert split is not None and split.shares[0] == pytest.approx([0.3, -0.2])
    alone = split_group([0.6, None], [{"success": 1.0}, None], [A], scale="group")
    assert alone is not None and alone.shares == [[0.0], None]


def test_normalised_terms_are_split_over_the_batch() -> None:
    groups = [
        [{"success": 1.0, "form": 0.0}, {"success": 0.0, "form": 1.0}],
        [{"success": 0.0, "form": 0.0}, {"success": 0.0, "form": 1.0}],
    ]
    split = split_batch(groups, [A, B], 0)
    half = 0.5 / (math.sqrt(0.5) + SCALE_EPSILON)  # of a pair that differs by 1: its mean is 0.5, its spread √½
    # sums: 0.6h - 0.4h, -0.6h + 0.4h, -0.4h, +0.4h; their mean is 0
    of_batch = [0.2 * half, -0.2 * half, -0.4 * half, 0.4 * half]
    std = math.sqrt(sum(value**2 for value in of_batch) / 3)
    assert split.shares[0] == pytest.approx([0.6 * half / (std + 1e-4), -0.4 * half / (std + 1e-4)])
    flat = [found for group in groups for found in group]
    expected = advantages(flat, [A, B], 2, aggregation="normalize_then_sum")
    assert sums(split) == pytest.approx(expected[:2]) and split.advantages == pytest.approx(expected[:2])
    assert sums(split_batch(groups, [A, B], 1)) == pytest.approx(expected[2:])


def test_totals_are_those_of_the_spec() -> None:
    assert [None if found is None else total_of(found, [A, B]) for found in TERMS] == pytest.approx(REWARDS)


@pytest.mark.parametrize(
    ("rewards", "verdicts", "phantom"),
    [
        ([0.3, 0.2, 0.2], [0.0, 0.0, 0.0], True),
        ([0.9, 0.8], [1.0, 1.0], True),
        ([0.9, 0.2], [1.0, 0.0], False),  # the outcome differs
        ([0.2, 0.2], [0.0, 0.0], False),  # zero variance
        ([0.3, 0.2], [0.0, None], False),  # not known of all
        ([0.3, None, 0.2], [0.0, None, 0.0], True),  # an excluded one does not count
        ([], [], False),
    ],
)
def test_a_phantom_group_has_one_outcome_and_several_rewards(
    rewards: list[float | None], verdicts: list[float | None], phantom: bool
) -> None:
    assert is_phantom(rewards, verdicts) is phantom
