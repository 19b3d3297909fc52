"""Credit to turns lifts the planted tasks of ``benchmarks/credit.py``, with two seeds besides the default. Minutes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks.credit import CREDITS, learned, taught

pytestmark = pytest.mark.slow
STEPS, SEEDS, LIFT = 30, (1, 2), 0.2


@pytest.fixture(scope="module")
def picks_evenly(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that picks its words evenly."""
    return taught(tmp_path_factory.mktemp("evenly"))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("task", "credit"), [("late", "turns"), ("early", "turns, discount 0")])
def test_a_turn_learns_what_chance_hides_from_the_rollout(
    tmp_path: Path, picks_evenly: Path, task: str, credit: str, seed: int
) -> None:
    found: dict[str, Any] = {}
    for name in ("rollout", credit):
        shares = learned(tmp_path / name.replace(", ", "-"), picks_evenly, task, seed, STEPS, CREDITS[name])
        found[name] = sum(shares) / len(shares)
    assert found[credit] >= found["rollout"] + LIFT, found
