"""Runs that were queued, written and projected, as for the engine, and claims of several at once."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from django.db import connection

from tests.webapp.engine.conftest import job, queued, quick, written
from webapp.engine.attempts import claim
from webapp.runs.models import Run

__all__ = ["job", "queued", "quick", "written"]


def claims_at_once(runs: Sequence[Run]) -> list[bool]:
    """Claim each run in a thread of its own, all at the same time. Whether each was got, in the order of the ends."""
    gate, found = threading.Barrier(len(runs)), list[bool]()

    def work(run: Run) -> None:
        try:
            gate.wait(20)
            found.append(claim(run.pk) is not None)
        finally:
            connection.close()

    threads = [threading.Thread(target=work, args=[run]) for run in runs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return found
