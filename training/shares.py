"""Where a share of counted cases lies: the score interval (Wilson 1927), which stays within 0 and 1."""

from __future__ import annotations

import math
from statistics import NormalDist

CONFIDENCE = 0.95
_Z = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)


def share_interval(cases: int, count: int) -> tuple[float, float]:
    """Where a share of ``count`` independent cases lies with 95% confidence. Raises ``ValueError`` of none."""
    if not 0 <= cases <= count or not count:
        raise ValueError(f"{cases} of {count} is no share")
    return wilson(cases / count, count)


def wilson(share: float, count: int) -> tuple[float, float]:
    """The same of a ``share`` of ``count`` cases, at least one."""
    middle = share + _Z * _Z / (2 * count)
    half = _Z * math.sqrt(share * (1 - share) / count + _Z * _Z / (4 * count * count))
    scale = 1 + _Z * _Z / count
    return min(share, max(0.0, (middle - half) / scale)), max(share, min(1.0, (middle + half) / scale))
