"""Shares and their score interval, by hand."""

from __future__ import annotations

import pytest

from training.shares import share_interval, wilson


@pytest.mark.parametrize(
    ("cases", "count", "low", "high"),
    [
        (0, 3, 0.0, 0.5615),  # 3.8415 / (3 + 3.8415)
        (3, 3, 0.4385, 1.0),
        (1, 4, 0.0456, 0.6994),  # (0.25 + 0.4802 ± 1.96 √(0.1875 / 4 + 0.0600)) / 1.9604
        (288, 320, 0.8622, 0.9283),
    ],
)
def test_an_interval_by_hand(cases: int, count: int, low: float, high: float) -> None:
    assert share_interval(cases, count) == (pytest.approx(low, abs=1e-4), pytest.approx(high, abs=1e-4))
    assert wilson(cases / count, count) == share_interval(cases, count)


@pytest.mark.parametrize(("cases", "count"), [(0, 0), (2, 1), (-1, 3)])
def test_what_is_no_share_is_refused(cases: int, count: int) -> None:
    with pytest.raises(ValueError, match="no share"):
        share_interval(cases, count)
