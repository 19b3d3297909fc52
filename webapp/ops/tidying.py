"""Deletes what is not needed any more and no other code deletes: expired sessions, notes of deletions that are done,
what lost imports left, and answers kept for calls that are sent again."""

from __future__ import annotations

from datetime import timedelta

from django.core.management import call_command
from django.utils import timezone

from webapp.api.models import KeptAnswer
from webapp.foreign.importing import cut_imports_discard
from webapp.runs.removal.models import Removal, RemovalState

REMOVALS_KEPT = timedelta(days=30)  # the audit keeps what was deleted and by whom without end
ANSWERS_KEPT = timedelta(hours=48)  # a call is sent again within minutes; a script does not do so after a weekend


def tidy() -> None:
    """Delete them; a deletion that failed stays until it was done."""
    call_command("clearsessions")
    cut_imports_discard()
    Removal.objects.filter(state=RemovalState.DONE, created_at__lt=timezone.now() - REMOVALS_KEPT).delete()
    KeptAnswer.objects.filter(created_at__lt=timezone.now() - ANSWERS_KEPT).delete()
