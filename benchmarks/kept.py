"""A PostgreSQL and a Redis of a benchmark's own, in a folder that may be kept for the next time."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from webapp.common.host import Embedded


@contextmanager
def kept_services(folder: Path | None, **settings: str) -> Iterator[Path]:
    """The folder with both at work, and Django's settings by variables, ``settings`` among them. Without a folder it is
    a temporary one."""
    place = folder or Path(tempfile.mkdtemp(prefix="tiltyard-bench-"))
    (place / "files").mkdir(parents=True, exist_ok=True)
    services = Embedded(place)
    services.start()
    os.environ |= {
        "DATABASE_URL": services.database_url,
        "REDIS_URL": services.redis_url,
        "TILTYARD_DATA_DIR": str(place / "files"),
        "DJANGO_SETTINGS_MODULE": "webapp.settings",
        "TILTYARD_LOG_LEVEL": "ERROR",
        **settings,
    }
    try:
        yield place
    finally:
        services.stop()
        if folder is None:
            shutil.rmtree(place, ignore_errors=True)
