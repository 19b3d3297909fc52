"""The identities of a dataset version's rows: stored next to its rows by the check, made later where that was not
done."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

from celery import current_app
from django.core.cache import cache

from training.data.identity import IDENTITIES_NAME, Identities, identities_read, identities_write
from training.data.reader import read_records
from training.data.schema import Row
from training.errors import DataError
from webapp.common.pools import LONG

logger = logging.getLogger(__name__)
AT_ONCE_BYTES = 2 << 20
"""A file of rows up to this size is read where it is asked for; a worker reads larger ones."""
ASK_AGAIN_S = 300
TASK = "datasets.identify"


def identities_of(rows: Path) -> Identities | None:
    """The identities of the rows in a version's ``rows.jsonl``; ``None`` where they are not known (yet)."""
    found = identities_read(rows.with_name(IDENTITIES_NAME))
    if found is not None or not rows.is_file():
        return found
    if rows.stat().st_size > AT_ONCE_BYTES:
        _order_identities(rows)
        return None
    return identities_read(rows.with_name(IDENTITIES_NAME)) if identities_make(rows) else None


def identities_make(rows: Path) -> bool:
    """Read the rows and keep their identities. Returns whether that could be done."""
    try:
        identities_write(_rows_of_file(rows), rows.with_name(IDENTITIES_NAME))
    except (DataError, OSError) as exc:
        logger.warning("rows could not be identified: %s", exc, extra={"path": str(rows)})
        return False
    return True


def _rows_of_file(path: Path) -> Iterator[Row]:
    return (record.row for record in read_records(path) if record.row is not None)


def _order_identities(rows: Path) -> None:
    """Have a worker make them; asked again every ``ASK_AGAIN_S`` until they are there. A broker failure is only
    logged."""
    try:
        dataset = str(UUID(rows.parent.name))
        if cache.add(f"identify:{dataset}", 1, ASK_AGAIN_S):
            current_app.send_task(TASK, args=[dataset], queue=LONG, retry=False)
    except Exception as exc:  # the boundary to the broker: kombu, redis and socket errors alike
        logger.warning("work not sent: %s", exc, extra={"work": TASK, "path": str(rows)})
