"""Whatever a test of the web asks the API, the answer is held to the schema."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from tests.webapp.api.answers import PREFIX, complaints


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

    monkeypatch.setattr(Client, "request", asked)
