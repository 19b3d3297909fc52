"""Judge faults in forks of one pytest: it imports and collects the tests once, and each fault is a fork of it."""

from __future__ import annotations

import os
import select
import signal
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, NoReturn

import pytest
from _pytest.runner import runtestprotocol
from pytest_django.plugin import blocking_manager_key

from training.garbage import freeze


def judged(run: Callable[[], NoReturn], limit_s: float) -> int | None:
    """The exit code of a fork in which this runs; ``None`` for one that was ended at its limit."""
    pid = os.fork()
    if pid == 0:
        os.setsid()
        run()
    watched = os.pidfd_open(pid)
    ended = select.select([watched], [], [], limit_s)[0]
    os.close(watched)
    with suppress(ProcessLookupError):  # with what its tests have started and could not end
        os.killpg(pid, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return code if ended else None


def run_in_fork(session: pytest.Session, items: list[pytest.Item], turn_on: Callable[[], None]) -> NoReturn:
    """Turn the fault on and run these tests, until one fails; ends the process with 0 where all pass."""
    code = 1
    try:
        turn_on()
        fresh_pools()
        if any(item.get_closest_marker("django_db") for item in items):
            empty_database(session)
        session._setupstate.teardown_exact(items[0])
        followings = [*items[1:], items[-1].parent]  # with itself as the next one it would not be torn down
        code = 0 if all(passes(*pair) for pair in zip(items, followings, strict=True)) else 1
    finally:
        os._exit(code)


def passes(item: pytest.Item, following: Any) -> bool:
    """Run one test; ``following`` is the next one, which decides what of its fixtures stays."""
    return not any(report.failed for report in runtestprotocol(item, log=False, nextitem=following))


def let_go() -> None:
    """What forks must not share: connections. What they may share stays as it is."""
    from django.conf import settings
    from django.db import connections

    if settings.configured:  # not by tests of the library
        connections.close_all()
    freeze()


def fresh_pools() -> None:
    """A fork has none of its parent's threads: a pool that had some would wait for them without end."""
    for module in [
        found for name, found in sys.modules.items() if name.split(".")[0] in ("webapp", "training", "envs")
    ]:
        for name, value in list(vars(module).items()):
            if isinstance(value, ThreadPoolExecutor):
                setattr(module, name, ThreadPoolExecutor(value._max_workers))
    if asgi := sys.modules.get("asgiref.sync"):  # else each async test with a database ends at its limit of time
        asgi.SyncToAsync.single_thread_executor = ThreadPoolExecutor(max_workers=1)


def empty_database(session: pytest.Session) -> None:
    """Take away the rows of a test that could not clean up after itself: all tests after it would fail."""
    from django.core.management import call_command

    from webapp.people.teams.models import Team

    with session.config.stash[blocking_manager_key].unblock():
        if Team.objects.exists():
            call_command("flush", interactive=False, verbosity=0)
