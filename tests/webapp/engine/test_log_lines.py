"""Which request the lines of an attempt belong to: the one that asked for this run, or none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import uuid4

import pytest

from webapp.common.logs import about, log_about
from webapp.engine import supervisor
from webapp.engine.history import Lease


@pytest.mark.parametrize("same", [True, False])
def test_a_run_that_was_first_in_line_is_not_of_the_request_for_another(
    same: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, seen = uuid4(), list[Mapping[str, Any]]()
    lease = Lease(run_id=asked if same else uuid4(), attempt=3, owner="w")

    class Seen:
        def __init__(self, _lease: Lease) -> None:
            pass

        def run(self) -> None:
            seen.append(log_about())

    monkeypatch.setattr(supervisor, "training_problem", lambda: "")
    monkeypatch.setattr(supervisor, "draining", lambda: False)
    monkeypatch.setattr(supervisor, "_claim_next", lambda _run, _pool: lease)
    monkeypatch.setattr(supervisor, "Supervisor", Seen)
    monkeypatch.setattr(supervisor, "nudge_next", lambda _pool: seen.append(log_about()))
    with about(request_id="click", task="runs.supervise"):
        supervisor.supervise(asked)
    lines = {"task": "runs.supervise", "run_id": lease.run_id, "attempt": 3}
    assert seen == [lines | ({"request_id": "click"} if same else {}), {"task": "runs.supervise"}]
