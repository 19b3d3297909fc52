"""Database reads of sockets: in a few threads that keep their connections, apart from the threads of pages."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from django.db import connection

from webapp.common.errors import DATABASE_AWAY

T = TypeVar("T")
THREADS = 6
_threads = ThreadPoolExecutor(THREADS, thread_name_prefix="live-db")


async def in_database(action: Callable[..., T], *arguments: Any) -> T:
    """Run a database read in one of the threads, and give what it returns."""
    return await asyncio.get_running_loop().run_in_executor(_threads, partial(_run_with_reconnect, action, *arguments))


def _run_with_reconnect(action: Callable[..., T], *arguments: Any) -> T:
    """Run the action; once more on a fresh connection if the one kept since an earlier read had died meanwhile."""
    kept = connection.connection
    try:
        return action(*arguments)
    except DATABASE_AWAY:
        died = kept is not None and kept.closed
        connection.close()
        if not died:
            raise
    return _run_with_reconnect(action, *arguments)


def close_connections() -> None:
    """Close the connections of all threads (tests do, before the database goes)."""
    for future in [_threads.submit(_close_slowly) for _ in range(THREADS)]:
        future.result()


def _close_slowly() -> None:
    connection.close()
    time.sleep(0.01)  # so that each thread gets one of these
