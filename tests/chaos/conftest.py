"""One house for the tests of a module; each test leaves it standing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.chaos.house import House


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory, django_db_setup: None, django_db_blocker: Any) -> Iterator[House]:
    """Workers, PostgreSQL and Redis of this module's own."""
    with django_db_blocker.unblock(), pytest.MonkeyPatch.context() as patch:
        # The house's own outbox task sends the nudges: this process knows another broker.
        patch.setattr("webapp.engine.history._send_message", lambda row: False)
        patch.setattr("webapp.runs.nudge.Nudger.put", lambda *_: None)
        built = House(tmp_path_factory.mktemp("house"))
        try:
            built.open()
            yield built
        finally:
            built.close()
