"""Whether two shares differ by more than chance: Fisher's exact test, and how often it would say so of equal ones.

Fisher (1935), *The Logic of Inductive Inference*; two-sided as is usual: all tables of the same margins that are no
likelier than the one that was seen are added up. Given the margins the number of successes on one side is
hypergeometric, so the test's own size is known exactly; with few tries it is far below its level.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

LEVEL = 0.05
_ALIKE = 1 + 1e-7
"""Tables whose probabilities differ by rounding alone are equally likely."""
_AT_ONCE = 2_000_000

Floats = NDArray[np.float64]
Longs = NDArray[np.int64]


class Changes(NamedTuple):
    """Of each pair of shares, shape (pairs,): the two-sided ``p``; how often two equal shares with as many successes in
    all would be found to have fallen (``fell``) and to have risen (``rose``) at the level."""

    p: Floats
    fell: Floats
    rose: Floats


def fisher(before: tuple[int, int], after: tuple[int, int]) -> float:
    """The two-sided p-value of two shares, each as (successes, tries); 1 where a side has no try."""
    return float(changes([before], [after]).p[0])


def changes(before: ArrayLike, after: ArrayLike, level: float = LEVEL) -> Changes:
    """Compare pairs of shares, each of shape (pairs, 2): successes and tries.

    Raises ``ValueError`` of more successes than tries.
    """
    first, second = (np.asarray(side, np.int64).reshape(-1, 2) for side in (before, after))
    if any((side[:, 0] < 0).any() or (side[:, 0] > side[:, 1]).any() for side in (first, second)):
        raise ValueError("there cannot be more successes than tries")
    width = int(second[:, 1].max(initial=0)) + 1
    block = max(1, _AT_ONCE // width**2)
    parts = [
        _changes(first[start : start + block], second[start : start + block], width, level)
        for start in range(0, len(first), block)
    ]
    return Changes(*(np.concatenate([np.zeros(0), *column]) for column in zip(*parts, strict=True))) if parts else _NONE


def _changes(before: Longs, after: Longs, width: int, level: float) -> Changes:
    tries, other = after[:, 1:], before[:, 1:]
    successes = before[:, :1] + after[:, :1]
    seen = np.arange(width)[None, :]  # successes of the second side, of each table of the same margins
    chance = _chance(seen, tries, other, successes)
    p = np.einsum("tj,tij->ti", chance, chance[:, None, :] <= chance[:, :, None] * _ALIKE)
    speaks = np.where(p <= level, chance, 0.0)
    expected = successes * tries / np.maximum(1, tries + other)
    fell, rose = ((speaks * side).sum(axis=1) for side in (seen < expected, seen > expected))
    return Changes(np.minimum(1.0, np.take_along_axis(p, after[:, :1], axis=1)[:, 0]), fell, rose)


def _chance(seen: Longs, tries: Longs, other: Longs, successes: Longs) -> Floats:
    """Shape (pairs, tables): the hypergeometric probability of each table; 0 of those that cannot be."""
    rest = successes - seen
    possible = (seen <= tries) & (rest >= 0) & (rest <= other)
    logs = _log_factorials(int((tries + other).max(initial=0)).bit_length())

    def ways(count: Longs, of: Longs) -> Floats:
        of = np.clip(of, 0, count)
        found: Floats = logs[count] - logs[of] - logs[count - of]
        return found

    found = np.exp(ways(tries, seen) + ways(other, rest) - ways(tries + other, successes))
    return np.where(possible, found, 0.0)


@lru_cache(maxsize=32)
def _log_factorials(bits: int) -> Floats:
    """Logarithms of the factorials of all numbers with so many binary digits."""
    return np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, 1 << bits, dtype=np.float64)))])


_NONE = Changes(*[np.zeros(0)] * 3)
