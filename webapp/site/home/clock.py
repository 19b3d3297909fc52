"""The age of the clockwork's last look at leases, which it notes itself."""

from __future__ import annotations

from django.db.models import F
from django.db.models.functions import Now

from webapp.runs.models import ReaperMark

LATE_S = 30.0
"""The clockwork looks every five seconds; a busy machine delays it by some."""


def clock_age() -> float | None:
    """Seconds since it looked for expired leases; ``None`` where it never did."""
    found = ReaperMark.objects.order_by().values_list(Now() - F("ran_at"), flat=True).first()
    return max(0.0, found.total_seconds()) if found is not None else None


def is_late(age_s: float | None) -> bool:
    """Whether the clockwork is so late that runs of lost workers are not given back."""
    return age_s is None or age_s > LATE_S
