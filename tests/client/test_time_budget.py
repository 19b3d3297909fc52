"""`tiltyard run show` says how much of a run's time budget is used and left."""

from __future__ import annotations

from typing import Any

import pytest
from tiltyard_client import show


@pytest.mark.parametrize(
    ("time", "text"),
    [
        ({"hours": 1.5, "of": 8.0}, "1.50 of 8 hours used, 6.50 left"),
        ({"hours": 8.25, "of": 8.0}, "8.25 of 8 hours used, 0.00 left"),
        ({"hours": 8.25, "of": 8.0, "over": 40}, "8.25 of 8 hours used: it ended after step 40"),
        ({"hours": 1.5, "of": None}, ""),
        (None, ""),
    ],
)
def test_a_run_with_a_time_budget(capsys: pytest.CaptureFixture[str], time: Any, text: str) -> None:
    row = {"name": "night", "state": "running", "step": 3, "total_steps": 9, "last_reward": 0.5, "health": {}}
    row["health"] = {"time": time} if time else {}
    show.run(row, "http://site")
    shown = " ".join(capsys.readouterr().out.split())
    assert text in shown and ("time budget" in shown) is bool(text)
