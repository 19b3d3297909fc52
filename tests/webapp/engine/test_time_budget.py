"""What the projection keeps of a run's time budget."""

from __future__ import annotations

import math

from tests.webapp.engine.test_batch import T, batch_of
from training import journal


def test_the_time_that_a_run_has_used_of_its_budget() -> None:
    config = {"run": {"max_hours": 8}}
    batch = batch_of(journal.Metrics(step=3, values={"timing/hours": 2.12345678}), config=config)
    assert batch.run_changes["health"] == {"time": {"hours": 2.1235, "of": 8.0}}
    batch.add(journal.RunFinished(status="succeeded", step=3, hours=8.0, t=T))
    assert batch.run_changes["health"] == {"time": {"hours": 2.1235, "of": 8.0, "over": 3}}
    assert batch.attempt_changes["outcome"]["hours"] == 8.0
    without = batch_of(journal.Metrics(step=3, values={"timing/hours": 1.0}), config={"run": {"max_hours": 0}})
    assert without.run_changes["health"]["time"]["of"] is None
    assert "health" not in batch_of(journal.Metrics(step=3, values={"timing/hours": math.inf})).run_changes
    early = batch_of(journal.RunFinished(status="succeeded", step=0, hours=8.0))
    assert early.run_changes["health"]["time"] == {"hours": 8.0, "of": 8.0, "over": 0}
