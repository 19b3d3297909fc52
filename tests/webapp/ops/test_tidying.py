"""Sessions and notes of deletions were kept without end."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.contrib.sessions.models import Session
from django.utils import timezone

from webapp.ops.management.commands.run_clockwork import REMOVALS_KEPT, tidy
from webapp.runs.removal.models import Removal, RemovalState

pytestmark = pytest.mark.django_db
MINUTE = timedelta(minutes=1)


def test_expired_sessions_go_and_living_ones_stay() -> None:
    now = timezone.now()
    for key, expires in (("expired", now - MINUTE), ("living", now + MINUTE)):
        Session.objects.create(session_key=key, session_data="", expire_date=expires)
    tidy()
    assert list(Session.objects.values_list("session_key", flat=True)) == ["living"]


def test_done_deletions_go_after_their_time_and_no_others() -> None:
    now = timezone.now()
    for state in RemovalState:
        for name, age in (("old", REMOVALS_KEPT + MINUTE), ("young", REMOVALS_KEPT - MINUTE)):
            made = Removal.objects.create(name=f"{state} {name}", state=state)
            Removal.objects.filter(pk=made.pk).update(created_at=now - age)
    tidy()
    left = set(Removal.objects.values_list("name", flat=True))
    assert left == {"waiting old", "waiting young", "done young", "failed old", "failed young"}
    assert timedelta(days=30) == REMOVALS_KEPT, "docs/operations.md says so"
