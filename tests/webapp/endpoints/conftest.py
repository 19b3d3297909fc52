"""An endpoint of the project that a stub answers for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.chat_stub import Stub, stub
from webapp.endpoints.models import Endpoint
from webapp.endpoints.services import endpoint_create
from webapp.people.teams.models import Project, User

__all__ = ["stub"]
KEY = "sk-live-0123456789abcdefghij"


@pytest.fixture
def make_endpoint(project: Project, alice: User, stub: Stub, settings: Any) -> Callable[..., Endpoint]:
    """``make_endpoint(**values)``: at the stub, which may be reached, with a key."""
    settings.OUTBOUND_ALLOW = [*settings.OUTBOUND_ALLOW, f"127.0.0.1:{stub.server_address[1]}"]

    def make(**over: Any) -> Endpoint:
        values = {"name": "gpt", "url": stub.url, "model": "gpt-oss", "key": KEY, "timeout_s": 10.0}
        return endpoint_create(project=project, user=alice, **(values | over))

    return make
