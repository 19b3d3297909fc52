"""The rows of each update: dealt evenly, each once, by seed and step alone."""

from __future__ import annotations

import pytest

from training.algorithms.micro_batches import rows_by_update


def test_rows_by_value() -> None:
    """The order is part of what a run is: another one would make other updates of the same rollouts."""
    assert rows_by_update([True] * 8, 2, 42, 1) == [[0, 2, 4, 1], [3, 7, 5, 6]]
    assert rows_by_update([True] * 8, 2, 42, 3) == [[2, 5, 0, 4], [3, 7, 1, 6]], "each sampling has its own"
    assert rows_by_update([True] * 8, 2, 43, 1) == [[3, 2, 7, 1], [0, 4, 6, 5]]
    assert rows_by_update([True] * 3, 1, 42, 1) == [[0, 1, 2]]


@pytest.mark.parametrize(("kept", "sizes"), [(16, [4, 4, 4, 4]), (13, [4, 3, 3, 3]), (2, [1, 1, 0, 0]), (0, [0] * 4)])
def test_rows_that_teach_are_dealt_evenly(kept: int, sizes: list[int]) -> None:
    teaches = [place % 16 < kept for place in range(16)]
    found = rows_by_update(teaches, 4, 7, 9)
    assert [len(rows) for rows in found] == sizes
    assert sorted(place for rows in found for place in rows) == list(range(kept))
