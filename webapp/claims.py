"""Work that one worker has claimed: a token in the row's ``progress`` says whose it is, ``at`` when it was heard of.

Whoever is silent for too long may be replaced, and then finds out: none of his writes reaches the row any more.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar

from django.db.models import Model, Q, QuerySet
from django.utils import timezone

M = TypeVar("M", bound=Model)


def silent(rows: QuerySet[M], after_s: float) -> QuerySet[M]:
    """Of rows that are being worked on, those of which nobody has heard for so long; new ones have time to begin."""
    old = rows.filter(created_at__lt=timezone.now() - timedelta(seconds=after_s))
    return old.filter(Q(progress__at__isnull=True) | Q(progress__at__lt=time.time() - after_s))


def progress_writer(
    ours: Callable[[], QuerySet[Any]], token: str, lost: type[Exception], every_s: float
) -> Callable[..., None]:
    """``write(values, at_once=False)`` keeps progress at most once in ``every_s``, and raises ``lost`` if not ours."""
    last = 0.0

    def write(values: dict[str, Any], *, at_once: bool = False) -> None:
        nonlocal last
        if time.monotonic() - last < every_s and not at_once:
            return
        last = time.monotonic()
        if not ours().update(progress={"token": token, "at": time.time(), **values}):
            raise lost

    return write
