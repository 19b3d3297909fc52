"""Checks numbers of events before they go into a column: a journal may have any value."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

INT_MAX = 2**31 - 1


class BadEvent(Exception):
    """An event that is well-formed JSON but cannot be true; its message says why."""


def checked_int(value: int | None, what: str) -> int:
    """A count that a column can hold. Raises ``BadEvent``."""
    if value is None or not 0 <= value <= INT_MAX:
        raise BadEvent(f"{what} {value} is out of range")
    return value


def checked_time(t: float) -> datetime:
    """A time from seconds since 1970. Raises ``BadEvent``."""
    try:
        return datetime.fromtimestamp(t, UTC)
    except (OverflowError, ValueError, OSError) as exc:
        raise BadEvent(f"time {t} is out of range") from exc


def time_later(at: datetime, seconds: float) -> str:
    """The time ``seconds`` after ``at``, as ISO 8601. Raises ``BadEvent``."""
    try:
        return (at + timedelta(seconds=max(0.0, seconds))).isoformat()
    except (OverflowError, ValueError) as exc:
        raise BadEvent(f"a wait of {seconds} s is out of range") from exc
