"""Numbers that others wrote are used in range only."""

from __future__ import annotations

from typing import Any

import pytest

from training.plain import number_in, whole
from training.rollout.client import _reported


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (0, 0),
        (7, 7),
        (7.0, 7),
        ("7", 7),
        (100, 100),
        (101, None),
        (-1, None),
        (1.5, None),
        (float("inf"), None),
        (float("nan"), None),
        (True, None),
        (None, None),
        ("", None),
        ("-1", None),
        ("7.0", None),
        ("٧", None),
        ("9" * 5000, None),
        ([7], None),
    ],
)
def test_a_whole_number_in_range_or_none(value: Any, found: int | None) -> None:
    assert whole(value, 100) == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("0", 0),
        ("7", 7),
        ("007", 7),
        ("999", 999),
        ("1000", None),
        ("0007", None),
        ("", None),
        ("-1", None),
        ("+1", None),
        ("1.0", None),
        ("1_0", None),
        (" 1", None),
        ("1\n", None),
        ("٧", None),
        ("²", None),
        (b"12", 12),
        (b"-1", None),
        (b"1234", None),
    ],
)
def test_a_number_of_so_many_digits_or_none(text: str | bytes, found: int | None) -> None:
    assert number_in(text, 3) == found


def test_a_number_has_at_most_as_many_digits_as_python_reads() -> None:
    assert number_in("9" * 4300) == 10**4300 - 1
    assert number_in("9" * 4301) is None


@pytest.mark.parametrize(
    ("written", "slots"),
    [(1, 1), (1_000_000, 1_000_000), (1_000_001, None), (10**30, None), (0, None), (-1, None), (True, None)],
)
def test_the_slots_of_a_full_server(written: Any, slots: int | None) -> None:
    full = _reported({"code": "CAPACITY_REACHED", "message": "full", "max_sessions": written})
    assert getattr(full, "slots", "none") == slots
