"""The judge of growth: a square is seen whatever disturbs the clock, and a pause of the machine is no square."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain, repeat

import pytest

from tests import growth
from tests.growth import STANDARD_S, assert_linear, assert_quick


class Clock:
    """Advances by what the work takes."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s

    def work(self, *took_s: float) -> Callable[[], None]:
        """Takes each of these times in turn, and the last one ever after."""
        times: Iterator[float] = chain(took_s, repeat(took_s[-1]))

        def go() -> None:
            self.now_s += next(times)

        return go


@pytest.mark.parametrize(
    ("eighth", "whole", "is_linear"),
    [
        ((0.005,), (0.04,), True),
        ((0.004,), (0.0724,), True),  # 15.625 times and the 10 ms that memory may add
        ((0.004,), (0.0726,), False),
        ((0.00125,), (0.08,), False),  # a square
        ((0.05, 0.00125), (0.08,), False),  # a square whose small text was disturbed once
        ((0.005,), (0.5, 0.3, 0.2, 0.09, 0.04), True),  # disturbed four times
        ((0.0005,), (0.01,), True),  # too short to judge
        ((0.02,), (0.101,), False),  # linear, and above the limit
    ],
)
def test_what_is_linear(
    eighth: tuple[float, ...], whole: tuple[float, ...], is_linear: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert is_linear == found_linear(eighth, whole, STANDARD_S, monkeypatch)


@pytest.mark.parametrize(
    ("whole_s", "standard_s", "is_linear"),
    [
        (0.199, 2 * STANDARD_S, True),  # on a machine half as quick
        (0.201, 2 * STANDARD_S, False),
        (0.101, STANDARD_S / 2, False),
        (0.099, STANDARD_S / 2, True),
    ],
)
def test_the_limit_of_what_is_linear_is_that_of_the_machine(
    whole_s: float, standard_s: float, is_linear: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert is_linear == found_linear((0.03,), (whole_s,), standard_s, monkeypatch)


def found_linear(
    eighth: tuple[float, ...], whole: tuple[float, ...], standard_s: float, monkeypatch: pytest.MonkeyPatch
) -> bool:
    clock = Clock()
    monkeypatch.setattr(growth, "standard_work", clock.work(standard_s))
    works = {10: clock.work(*eighth), 80: clock.work(*whole)}
    try:
        assert_linear(works.__getitem__, 80, limit_s=0.1, clock=clock)
    except AssertionError:
        return False
    return True


@pytest.mark.parametrize(
    ("took", "standard", "is_quick"),
    [
        ((0.099,), (STANDARD_S,), True),
        ((0.101,), (STANDARD_S,), False),
        ((0.5, 0.4, 0.3, 0.099), (STANDARD_S,), True),  # disturbed three times
        ((0.199,), (2 * STANDARD_S,), True),  # on a machine half as quick
        ((0.201,), (2 * STANDARD_S,), False),
        ((0.199,), (4 * STANDARD_S, 2 * STANDARD_S), True),
        ((0.399,), (4 * STANDARD_S, 2 * STANDARD_S), True),  # both disturbed at first
        ((0.5, 0.399), (STANDARD_S,), False),
        ((0.101,), (STANDARD_S / 2,), False),  # a quick machine gets no shorter limit, and no longer one
        ((0.099,), (STANDARD_S / 2,), True),
    ],
)
def test_what_is_quick(
    took: tuple[float, ...], standard: tuple[float, ...], is_quick: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr(growth, "standard_work", clock.work(*standard))
    try:
        assert_quick(clock.work(*took), 0.1, clock=clock)
    except AssertionError:
        assert not is_quick
    else:
        assert is_quick
