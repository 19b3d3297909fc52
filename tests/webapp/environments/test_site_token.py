"""Only the servers that the operator listed by host and port learn the installation's token."""

from __future__ import annotations

from typing import Any

import pytest

from webapp.environments.site_token import site_access
from webapp.runs.trainer import trainer_env


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("http://webshop:8104", True),
        ("http://WebShop:8104/", True),
        ("http://webshop:8105", False),
        ("http://webshop", False),
        ("http://webshop:8104@evil.example", False),
        ("http://10.0.0.0/8", False),
        ("https://evil.example", False),
        ("", False),
    ],
)
def test_who_is_told(url: str, told: bool, settings: Any) -> None:
    settings.OUTBOUND_ALLOW = ["tools:8101", "webshop:8104", "10.0.0.0/8"]
    settings.ENVIRONMENT_TOKEN = "s3cret"
    access = site_access(url)
    assert access == ({"TILTYARD_ENV_TOKEN": "s3cret"} if told else {})
    assert trainer_env(3, access).get("TILTYARD_ENV_TOKEN") == ("s3cret" if told else None)


def test_there_may_be_none(settings: Any) -> None:
    settings.OUTBOUND_ALLOW, settings.ENVIRONMENT_TOKEN = ["tools:8101"], ""
    assert site_access("http://tools:8101") == {}
