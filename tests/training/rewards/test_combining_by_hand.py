"""Terms, totals and advantages of a few rollouts, worked out by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest

from training.config import RewardComponent, RewardSchedule
from training.rewards.combining import advantages, counts_for, factor, term_of, terms_of, total_of
from training.rows import categories_of


def part(name: str, weight: float = 1.0, **more: Any) -> RewardComponent:
    return RewardComponent.model_validate({"name": name, "weight": weight, **more})


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({"category": "a"}, {"a"}),
        ({"data_source": "b"}, {"b"}),
        ({"ability": "c"}, {"c"}),
        ({"split": "d"}, {"d"}),
        ({"extra_info": {"category": "e", "dataset_type": "f"}}, {"e", "f"}),
        ({"category": 1, "other": "x", "extra_info": {"x": "y"}}, set()),
    ],
)
def test_where_a_row_says_what_it_is(row: dict[str, Any], expected: set[str]) -> None:
    assert categories_of(row) == expected


def test_a_component_without_categories_counts_for_every_row() -> None:
    assert counts_for(part("a"), set()) and counts_for(part("a"), {"x"})
    assert counts_for(part("a", categories=["x", "y"]), {"y", "z"}) and not counts_for(
        part("a", categories=["x"]), {"y"}
    )
    assert not counts_for(part("a", categories=["x"]), set())


def test_a_schedule_begins_and_ends_at_its_steps() -> None:
    schedule = RewardSchedule(kind="linear", begin=10, end=20, first=0.5, last=2.5)
    assert [factor(schedule, step) for step in (9, 10, 11, 15, 19, 20, 21)] == pytest.approx(
        [0.5, 0.5, 0.7, 1.5, 2.3, 2.5, 2.5]
    )
    sudden = RewardSchedule(kind="step", begin=10, end=20, first=0.5, last=2.5)
    assert [factor(sudden, step) for step in (9, 10, 19, 20, 21)] == [0.5, 0.5, 0.5, 2.5, 2.5]


def test_a_term_is_clipped_scaled_and_scheduled_in_this_order() -> None:
    item = part(
        "a", clip=[0, 4], scale=[2, 6], schedule={"kind": "linear", "begin": 0, "end": 4, "first": 1, "last": 3}
    )
    assert [term_of(item, {"a": 9.0}, step) for step in (0, 2, 4)] == [0.5, 1.0, 1.5]
    assert term_of(item, {"a": 9.0}) == 0.5 and term_of(item, {"b": 1.0}) is None


@pytest.mark.parametrize(("other", "expected"), [(0.5, 0.0), (0.6, 3.0), (0.4, 0.0), (None, 0.0)])
def test_a_gate_opens_above_its_mark(other: float | None, expected: float) -> None:
    gated = part("a", gate={"component": "b", "above": 0.5})
    parts = {"a": 3.0} | ({} if other is None else {"b": other})
    assert term_of(gated, parts) == expected
    assert terms_of(parts, [gated, part("c")]) == {"a": expected}


def test_a_total_is_the_weighted_sum_of_what_there_is() -> None:
    spec = [part("a", 2), part("b", -0.5), part("c", 7)]
    assert total_of({"a": 1.0, "b": 4.0}, spec) == 0.0 and total_of({"a": 1.5, "d": 9.0}, spec) == 3.0
    assert total_of({}, spec) == 0.0
    assert math.isnan(total_of({"a": math.inf, "b": math.inf}, spec))
    assert math.isnan(total_of({"a": 1e308, "b": 1e308}, [part("a"), part("b")]))


def test_advantages_of_two_groups() -> None:
    spec = [part("a", 2)]
    rollouts = [{"a": 0.0}, {"a": 1.0}, None, {"a": 3.0}, {"a": 3.0}, {"a": 6.0}]
    by_group = advantages(rollouts, spec, 3)
    std = 2**0.5  # of 0 and 2
    assert by_group[2] is None
    assert [by_group[0], by_group[1]] == pytest.approx([-1 / (std + 1e-4), 1 / (std + 1e-4)])
    std = 12**0.5  # of 6, 6 and 12
    assert by_group[3:] == pytest.approx([-2 / (std + 1e-4), -2 / (std + 1e-4), 4 / (std + 1e-4)])
    plain = advantages(rollouts, spec, 3, scale="none")
    assert plain[:2] + plain[3:] == [-1.0, 1.0, -2.0, -2.0, 4.0]
    rewards = [0.0, 2.0, 6.0, 6.0, 12.0]
    std = (sum((reward - 5.2) ** 2 for reward in rewards) / 4) ** 0.5
    batch = advantages(rollouts, spec, 3, scale="batch")
    assert [batch[0], batch[1], batch[5]] == pytest.approx([-1 / (std + 1e-4), 1 / (std + 1e-4), 4 / (std + 1e-4)])


def test_normalised_terms_are_summed_and_compared_within_the_batch() -> None:
    """Groups of two: each term becomes ±0.7070 of its own group, whatever its size; one alone becomes 0."""
    spec = [part("a", 1), part("b", 0.5)]
    rollouts = [{"a": 0.0, "b": 100.0}, {"a": 10.0, "b": 300.0}, {"a": 5.0}, {"a": 1.0, "b": 2.0}]
    one = 5 / (50**0.5 + 1e-4)  # 0 and 10: mean 5, deviation √50
    two = 100 / (20000**0.5 + 1e-4)
    three = 2 / (8**0.5 + 1e-4)
    sums = [-one - 0.5 * two, one + 0.5 * two, three, -three]
    std = (sum(value**2 for value in sums) / 3) ** 0.5  # their mean is 0
    found = advantages(rollouts, spec, 2, aggregation="normalize_then_sum")
    assert found == pytest.approx([value / (std + 1e-4) for value in sums])
    for scale in ("batch", "none"):
        assert advantages(rollouts, spec, 2, aggregation="normalize_then_sum", scale=scale) == found  # type: ignore[arg-type]
    with_excluded = advantages([*rollouts, None, {"a": 1.0}], spec, 2, aggregation="normalize_then_sum")
    assert with_excluded[4] is None and with_excluded[5] == pytest.approx(0.0)


def test_without_a_step_it_is_the_first_one() -> None:
    spec = [part("a", schedule={"kind": "step", "begin": 0, "end": 1, "first": 2, "last": 5})]
    assert terms_of({"a": 1.0}, spec) == {"a": 2.0} and term_of(spec[0], {"a": 1.0}) == 2.0
