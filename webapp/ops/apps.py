"""Lets a Celery process say that it is ready: `manage.py up` waits for that instead of guessing from logs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from celery.signals import beat_init, worker_ready
from django.apps import AppConfig

from webapp.ops.embedded import write_private

READY_VARIABLE = "TILTYARD_READY_FILE"


def say_ready(**_signal: Any) -> None:
    """Write our pid into the file that `up` watches, if it watches one."""
    path = os.environ.get(READY_VARIABLE)
    if path:
        write_private(Path(path), str(os.getpid()))


class OpsConfig(AppConfig):
    """Operating one machine."""

    name = "webapp.ops"

    def ready(self) -> None:
        """Hear Celery's workers and beat."""
        worker_ready.connect(say_ready, dispatch_uid="ops.worker_ready")
        beat_init.connect(say_ready, dispatch_uid="ops.beat_init")
