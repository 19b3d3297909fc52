"""Whatever a test of the web asks the API, the answer is held to the schema, and what it is made of to its shape."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client
from pydantic import ValidationError

from tests.webapp.api.answers import PREFIX, complaints
from tests.working import at_once
from webapp.common.answers import Answer


@pytest.fixture(autouse=True)
def answers_are_as_the_schema_says(monkeypatch: pytest.MonkeyPatch) -> None:
    ask = Client.request

    def asked(self: Client, **request: Any) -> Any:
        response = ask(self, **request)
        address, method = request["PATH_INFO"], request["REQUEST_METHOD"]
        shown = address.startswith(PREFIX) and response.status_code < 300
        if shown and response["Content-Type"].startswith("application/json") and "openapi" not in address:
            assert complaints(method, address, response.status_code, response.json()) == []
        return response

    def fail(shape: type[Answer], error: ValidationError) -> None:
        raise AssertionError(f"{shape.__name__}: {error}")

    monkeypatch.setattr(Client, "request", asked)
    monkeypatch.setattr("webapp.common.answers.report_misfit", fail)


@pytest.fixture
def no_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Work that is asked for is noted in its row, and no message is sent."""
    at_once(monkeypatch)
