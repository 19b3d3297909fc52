"""Chances estimated from n tries of a task, of which c succeeded.

``pass_at_k``: at least one of k tries succeeds (Chen et al. 2021, *Evaluating Large Language Models Trained on Code*).
``pass_all_k``: all of k tries succeed, written pass^k (Yao et al. 2024, *τ-bench*). Both are unbiased: they are the
share of the subsets of k tries, drawn without replacement, in which it is so.
"""

from __future__ import annotations

import math


def pass_at_k(tries: int, solved: int, k: int) -> float:
    """Chance that one of ``k`` tries succeeds. Raises ``ValueError`` where there are fewer than ``k`` tries."""
    _check(tries, solved, k)
    return 1.0 - _share(tries - solved, tries, k)


def pass_all_k(tries: int, solved: int, k: int) -> float:
    """Chance that all of ``k`` tries succeed (pass^k). Raises ``ValueError`` where there are fewer than ``k`` tries."""
    _check(tries, solved, k)
    return _share(solved, tries, k)


def _share(some: int, tries: int, k: int) -> float:
    """The share of the subsets of ``k`` of ``tries`` that lie within ``some`` of them."""
    return math.comb(some, k) / math.comb(tries, k)


def _check(tries: int, solved: int, k: int) -> None:
    if not (1 <= k <= tries and 0 <= solved <= tries):
        raise ValueError(f"{solved} of {tries} tries say nothing about {k}")
