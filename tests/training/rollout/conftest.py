"""Fixtures of the rollout tests."""

from __future__ import annotations

import pytest

from tests.training.rollout.bench import Clock
from training.rollout import holding


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The time of holds, moved by their pauses."""
    made = Clock()
    monkeypatch.setattr(holding, "_now", lambda: made.now)
    monkeypatch.setattr(holding, "_sleep", made.sleep)
    return made
