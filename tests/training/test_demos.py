"""Each demo learns before one's eyes: played from its parts, with two seeds. Half an hour; its cheap sisters are
``test_demo_rows.py`` and ``test_presets.py``."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.demos import DEMOS, play
from training.presets import presets

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]
RISE = 1.3


@pytest.mark.parametrize("seed", [42, 43])
@pytest.mark.parametrize("name", DEMOS)
def test_a_demo_learns(name: str, seed: int, tmp_path: Path) -> None:
    preset = presets()[name]
    found = play(preset, tmp_path, seed)
    assert found["steps"] == preset.config_for("demo").run.max_steps
    assert found["excluded"] == 0
    # Something is there to begin with, and something is left to learn.
    assert 0.05 < found["first10"] < 0.7, found
    assert found["last10"] >= RISE * found["first10"], found
