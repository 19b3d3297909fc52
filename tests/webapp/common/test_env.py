"""Settings that are read from the environment."""

from __future__ import annotations

import pytest
from django.core.exceptions import ImproperlyConfigured

from webapp.common.env import env_ports

NAME = "TILTYARD_REPLICA_PORTS"


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ("", range(0)),
        ("8200-8231", range(8200, 8232)),
        ("1024-1024", range(1024, 1025)),
        ("65535-65535", range(65535, 65536)),
    ],
)
def test_ports_are_first_and_last(monkeypatch: pytest.MonkeyPatch, value: str, found: range) -> None:
    monkeypatch.setenv(NAME, value)
    assert env_ports(NAME) == found


@pytest.mark.parametrize(
    "value", ["8200", "8200-", "-8200", "8231-8200", "1023-1024", "65535-65536", "a-b", "1-2-3", "８２００-8201"]
)
def test_other_ports_stop_the_start_with_a_sentence(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv(NAME, value)
    with pytest.raises(
        ImproperlyConfigured, match=f"{NAME} must be two ports between 1024 and 65535, such as 8200-8231"
    ):
        env_ports(NAME)
