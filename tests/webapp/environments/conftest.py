"""Logging in is not what these tests are about, so passwords are hashed cheaply."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.fixture(autouse=True)
def _cheap_passwords(settings: Any) -> None:
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
