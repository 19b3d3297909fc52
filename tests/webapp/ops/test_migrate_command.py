"""`manage.py migrate`, which the way back to an older version names, ran under the web's 15 s a statement."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.commands import migrate
from django.db import connection

NAMES = ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout")


def limits() -> list[str]:
    with connection.cursor() as cursor:
        return [cursor.execute(f"SHOW {name}").fetchone()[0] for name in NAMES]


@pytest.mark.django_db
def test_migrations_have_no_time_limit_and_all_else_has(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    before = limits()
    assert before == ["15s", "5s", "30s"]
    monkeypatch.setattr(migrate.Command, "handle", lambda self, *args, **options: seen.append(limits()))
    call_command("migrate", verbosity=0)
    assert seen == [["0", "1min", "0"]] and limits() == before


@pytest.mark.django_db
def test_a_migration_that_fails_leaves_the_limits_as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(self: Any, *args: Any, **options: Any) -> None:
        raise ValueError("by hand")

    before = limits()
    monkeypatch.setattr(migrate.Command, "handle", fails)
    with pytest.raises(ValueError, match="by hand"):
        call_command("migrate", verbosity=0)
    assert limits() == before
