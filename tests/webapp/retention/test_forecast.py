"""What a rule removes now and within 30 days: both sides of each limit, without a database."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from webapp.retention.candidates import GIB, Item, due, forecast_of
from webapp.retention.rules import Rule

NOW = datetime(2026, 6, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)


def _item(number: int, days: float, size: int = 1, kept: str = "", more: timedelta = timedelta()) -> Item:
    """A run that ended so many days ago and left so many GiB."""
    return Item(UUID(int=number), f"run-{number}", NOW - timedelta(days=days) - more, size * GIB, 7, kept)


def test_an_age_is_reached_exactly_and_not_a_second_before() -> None:
    old, young = _item(1, 30), _item(2, 30, more=-SECOND)
    assert due([old, young], Rule(days=30), NOW) == [(old, "age")]


def test_a_sum_may_be_as_large_as_the_limit() -> None:
    items = [_item(1, 3, 2), _item(2, 2, 2), _item(3, 1, 2)]
    assert due(items, Rule(gib=6), NOW) == []
    assert due(items, Rule(gib=5), NOW) == [(items[0], "size")]
    assert due(items, Rule(gib=3), NOW) == [(items[0], "size"), (items[1], "size")]


def test_what_is_kept_neither_goes_nor_counts() -> None:
    items = [_item(1, 90, 50, "starred"), _item(2, 80, 2), _item(3, 1, 2)]
    assert due(items, Rule(days=90), NOW) == []
    assert due(items, Rule(gib=4), NOW) == []
    assert due(items, Rule(days=80, gib=1), NOW) == [(items[1], "age"), (items[2], "size")]


def test_without_a_limit_nothing_goes() -> None:
    items = [_item(1, 9000, 9000)]
    assert due(items, Rule(), NOW) == []
    found = forecast_of(items, Rule(), NOW)
    assert (found.now_bytes, found.later_bytes) == (0, 0)


def test_ages_that_are_reached_within_30_days_are_known() -> None:
    items = [_item(1, 91), _item(2, 60), _item(3, 60, more=-SECOND), _item(4, 40)]
    found = forecast_of(items, Rule(days=90), NOW)
    assert found.now == [items[0]]
    assert (found.aging, found.later_bytes) == (1, GIB)  # the second run; the third becomes 90 days old too late


@pytest.mark.parametrize(("days", "expected"), [(30, 0), (15, 15), (10, 20), (1, 29)])
def test_a_shorter_age_also_reaches_runs_that_are_still_to_come(days: int, expected: int) -> None:
    """30 GiB in 30 days, of which those go that end early enough; today's run goes by its age."""
    items = [_item(1, 0, 30)]
    found = forecast_of(items, Rule(days=days), NOW)
    assert (found.recent, found.recent_bytes) == (1, 30 * GIB)
    assert found.later_bytes == (30 + expected) * GIB


def test_the_rate_is_that_of_the_last_30_days() -> None:
    items = [_item(1, 30, 100), _item(2, 29, 3), _item(3, 1, 3)]
    found = forecast_of(items, Rule(gib=106), NOW)
    assert (found.now_bytes, found.recent, found.recent_bytes) == (0, 2, 6 * GIB)
    assert found.later_bytes == 6 * GIB
    assert forecast_of(items, Rule(gib=112), NOW).later_bytes == 0
    assert forecast_of(items, Rule(gib=111), NOW).later_bytes == GIB


def test_age_and_size_together_count_nothing_twice() -> None:
    items = [_item(1, 100, 4), _item(2, 70, 4), _item(3, 10, 4)]
    found = forecast_of(items, Rule(days=90, gib=8), NOW)
    assert found.now == [items[0]]
    # In 30 days: 4 GiB reach the age, 4 GiB are left and 4 GiB come, which is as much as may be kept.
    assert found.later_bytes == 4 * GIB
    smaller = forecast_of(items, Rule(days=90, gib=7), NOW)
    assert (smaller.now, smaller.later_bytes) == (items[:2], GIB)  # 4 GiB are left, and 4 GiB come
