"""The Celery application. Queues are pools of places (``webapp/common/work.py``): `train` has one for each device,
`endpoint` those of runs and chats that ask an endpoint alone, `short` and `long` those of people's work."""

from __future__ import annotations

import gc
import os
from contextlib import ExitStack
from typing import Any

from celery import Celery, Task
from celery.signals import before_task_publish, import_modules, setup_logging, task_postrun, task_prerun

from training.garbage import freeze
from webapp.common.logs import about, log_about

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "webapp.settings")
# Django's checks of the code would import every page into every worker; a test makes them.
os.environ.setdefault("CELERY_SKIP_CHECKS", "true")


class SharedClockTask(Task):
    """The base of all tasks: hosts may have wrong clocks."""

    Request = "webapp.common.workers.requests:SharedClockRequest"


# --- The imports of a worker ----------------------------------------------------------------------------------------
# The signal calls in the order of these lines: what is between the two functions imports Django, our apps and tasks.


@import_modules.connect
def begin_imports(**_signal: Any) -> None:
    """Nothing of what is imported is garbage: to walk it again and again as it grows took a sixth of a start."""
    gc.disable()


app = Celery("tiltyard", task_cls=SharedClockTask)
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
app.autodiscover_tasks(["webapp.rewards.lab"], related_name="sets")  # below an app
app.autodiscover_tasks(["webapp.common"], related_name="work")


@import_modules.connect
def end_imports(**_signal: Any) -> None:
    """Children are forked with all of it, and share its memory as long as no collection of theirs walks it."""
    freeze()
    gc.enable()


# --- Logs -----------------------------------------------------------------------------------------------------------
# A message carries the id of the request that asked for it, and the lines of its task carry it too.

ASKED_BY = "tiltyard_request_id"


@setup_logging.connect
def keep_logging(**_signal: Any) -> None:
    """Leave the logging as the settings have it: Celery would add handlers with a format of its own."""


@before_task_publish.connect
def note_request(headers: dict[str, Any] | None = None, **_signal: Any) -> None:
    """The header of a message that is sent while a request is answered."""
    if headers is not None and (asked_by := log_about().get("request_id")):
        headers[ASKED_BY] = asked_by


@task_prerun.connect
def begin_lines(task: Any = None, task_id: str = "", **_signal: Any) -> None:
    """What the lines of a task carry. One that is run on the spot belongs to the request that runs it."""
    asked_by = str(task.request.get(ASKED_BY) or "")
    task.request.log_lines = lines = ExitStack()
    here = {} if task.request.is_eager and not asked_by else {"request_id": asked_by[:64]}
    lines.enter_context(about(task=task.name, task_id=task_id, **here))


@task_postrun.connect
def end_lines(task: Any = None, **_signal: Any) -> None:
    """The next task of this process has lines of its own."""
    lines = getattr(task.request, "log_lines", None)
    if lines is not None:
        lines.close()
