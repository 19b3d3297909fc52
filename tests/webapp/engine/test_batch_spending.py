"""Figures of an endpoint's use that are none were taken in, and an infinite cost stayed."""

from __future__ import annotations

from datetime import UTC, date, datetime

import pytest
from django.utils import timezone

from tests.webapp.engine.test_batch import batch_of
from training import journal


@pytest.mark.parametrize(
    ("tokens", "cost", "used"),
    [
        (500.0, 0.5, (500, 0.5)),
        (0.0, 0.0, (0, 0.0)),
        (1e15, 1e12, (10**15, 1e12)),
        (500.0, -0.5, (500, None)),
        (500.0, 2e12, (500, None)),
        (500.0, float("nan"), (500, None)),
        (-1.0, 0.5, None),
        (2e15, 0.5, None),
        (1e300, 0.5, None),
        (float("inf"), 0.5, None),
        (1.5, 0.5, None),
    ],
)
def test_what_a_run_used_of_its_endpoint_is_taken_in_range(
    tokens: float, cost: float, used: tuple[int, float | None] | None
) -> None:
    batch = batch_of(journal.Metrics(step=3, values={"endpoint/tokens": tokens, "endpoint/cost": cost}))
    assert [found[:2] for found in batch.used.values()] == ([] if used is None else [used])


@pytest.mark.parametrize(("zone", "day"), [("UTC", 14), ("Asia/Shanghai", 15), ("America/New_York", 14)])
def test_what_was_used_counts_for_the_day_of_the_installations_zone(zone: str, day: int) -> None:
    """A budget of a day is compared with the days of this zone."""
    at = datetime(2023, 11, 14, 22, 30, tzinfo=UTC)
    with timezone.override(zone):
        batch = batch_of(journal.Metrics(step=3, values={"endpoint/tokens": 500.0}, t=at.timestamp()))
    assert batch.used == {date(2023, 11, day): (500, None, at)}
