"""Lets a process report that it is ready and then that it lives, in a file.

`manage.py up` waits for the file instead of guessing from logs; a container's healthcheck looks at its age.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from webapp.common.host.embedded import write_private

READY_VARIABLE = "TILTYARD_READY_FILE"


def say_ready(**_signal: Any) -> None:
    """Write our pid into the file that is watched, if one is; from now on it is touched as long as we work.

    A Celery worker sends a heartbeat every two seconds, but none while its broker is away.
    """
    from celery.signals import heartbeat_sent  # here: `up` needs the variable's name alone

    path = os.environ.get(READY_VARIABLE)
    if path:
        # A disk that cannot be written ends no program: only a start of `up` waits for the file, and checks the disk.
        with suppress(OSError):
            write_private(Path(path), str(os.getpid()))
        heartbeat_sent.connect(say_alive, dispatch_uid="ops.heartbeat_sent")


def say_alive(**_signal: Any) -> None:
    """Touch the file."""
    path = os.environ.get(READY_VARIABLE)
    if path:
        with suppress(OSError):
            os.utime(path)
