"""Raw values of components over a set, computed by a limited child process where nobody recorded them.

1. A request loads the columns of its components; those with values that nobody has computed become one ``Job``.
2. The job's child (``python -m training.rewards.lab``) computes them and keeps them in the set's folder. Requests for
   the same values share a job; at most ``MAX_JOBS`` children run at once, the others wait for their turn.
3. A request waits ``WAIT_S`` for its job. Then it answers with the progress, and the page asks again.
4. A job that failed is remembered for ``REMEMBER_S``: until then its values are missing, with its sentence.
"""

from __future__ import annotations

import json
import logging
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

from django.utils.translation import gettext as _

from training.child_env import bare_env
from training.config import RewardComponent
from training.limited import limited_child
from training.rewards.custom import SWITCH_VARIABLE
from training.rewards.lab.scoring import is_asked, wanted
from training.rewards.lab.table import Table, table_load
from training.rewards.lab.values import Column, column_of, component_key
from webapp.rewards.lab.cache import cache
from webapp.rewards.models import RolloutSet
from webapp.teams.switches import custom_rewards_on
from webapp.text import os_words

logger = logging.getLogger(__name__)
WAIT_S = 4.0
LIMIT_S = 900.0
REMEMBER_S = 60.0
MAX_JOBS = 2
MAX_WAITING = 8
MEMORY_BYTES = 4 << 30
_turns = threading.BoundedSemaphore(MAX_JOBS)
_lock = threading.Lock()
_jobs: dict[tuple[UUID, frozenset[str]], Job] = {}


class Values(NamedTuple):
    """Columns by component; ``computed`` are those that had to be computed anew; ``pending`` while they still are."""

    columns: dict[str, Column]
    computed: list[str]
    pending: Job | None
    failed: str


def table_of(rollout_set: RolloutSet) -> Table:
    """The set's columns. Raises ``DataError`` when its files are gone."""
    return cache.get(rollout_set.pk, lambda: table_load(rollout_set.folder))


def values_of(rollout_set: RolloutSet, table: Table, components: Sequence[RewardComponent]) -> Values:
    """The raw values of all components, waiting a little for those that must be computed."""
    lacking = [item for item in components if _lacks(rollout_set, table, item)]
    job = _job(rollout_set, lacking) if lacking else None
    pending, failed = None, ""
    if job is not None:
        if not job.done.wait(WAIT_S):
            pending = job
        failed = job.error
        for item in lacking:
            cache.drop((rollout_set.pk, component_key(item)))
    columns = known_columns(rollout_set, table, components)
    return Values(columns, [item.name for item in lacking], pending, failed)


def known_columns(rollout_set: RolloutSet, table: Table, components: Sequence[RewardComponent]) -> dict[str, Column]:
    """What is known of all components now."""
    return {item.name: _column(rollout_set, table, item) for item in components}


def _lacks(rollout_set: RolloutSet, table: Table, component: RewardComponent) -> bool:
    if not is_asked(component):
        return False
    return bool(wanted(table, component, _column(rollout_set, table, component)).any())


def _column(rollout_set: RolloutSet, table: Table, component: RewardComponent) -> Column:
    return cache.get((rollout_set.pk, component_key(component)), lambda: column_of(table, component))


def _job(rollout_set: RolloutSet, components: list[RewardComponent]) -> Job:
    """The job that computes these, a new one where none does or did lately."""
    key = (rollout_set.pk, frozenset(component_key(item) for item in components))
    with _lock:
        for old in [old for old, job in _jobs.items() if job.ended and time.monotonic() - job.ended > REMEMBER_S]:
            del _jobs[old]
        known = _jobs.get(key)
        if known is not None and (not known.ended or known.error):
            return known
        _jobs[key] = job = Job(rollout_set.folder, components)
        full = sum(not job.ended for job in _jobs.values()) > MAX_JOBS + MAX_WAITING
    job.refuse(_("Too much is being scored now; try again in a minute.")) if full else job.start()
    return job


class Job:
    """One child and what it has told so far."""

    def __init__(self, folder: Path, components: list[RewardComponent]) -> None:
        self._folder = folder
        self._request = json.dumps([item.model_dump(mode="json") for item in components])
        self._environment = _environment()  # asks the database, which the thread of a job has no business with
        self.progress = {"done": 0, "total": 0}
        self.names = [item.name for item in components]
        self.done = threading.Event()
        self.ended = 0.0
        self.error = ""
        # The sentences of a failure, in the language of whoever asked first.
        self._late = _("Scoring took longer than %(s)g seconds.") % {"s": LIMIT_S}
        self._died = _("The scoring process ended early; it may have had too little memory.")

    def start(self) -> None:
        """Run the child in a thread that follows it."""
        threading.Thread(target=self._follow, name="lab-scoring", daemon=True).start()

    def refuse(self, sentence: str) -> None:
        """End the job before it begins."""
        self._end(sentence)

    def _end(self, error: str) -> None:
        self.error, self.ended = error, time.monotonic()
        self.done.set()

    def _follow(self) -> None:
        error = self._died
        try:
            with _turns:
                error = self._run()
        except OSError as exc:
            logger.exception("scoring could not start")
            error = f"{self._died} ({os_words(exc)})"
        finally:
            self._end(error)

    def _run(self) -> str:
        """Run the child to its end; what went wrong, or ""."""
        error = ""
        with tempfile.TemporaryFile() as request:
            request.write(self._request.encode())
            request.seek(0)
            with limited_child(
                [sys.executable, "-P", "-m", "training.rewards.lab", str(self._folder)],
                wall_s=LIMIT_S,
                env=self._environment,
                limits={"RLIMIT_AS": MEMORY_BYTES},
                stdin=request,
                stderr=None,
            ) as child:
                for line in child.lines():
                    error = self._read(line) or error
                in_time = child.wait()
        if child.code == 0:
            return ""
        logger.warning("scoring ended with %s", child.code, extra={"folder": self._folder.name})
        return error or (self._died if in_time else self._late)

    def _read(self, line: bytes) -> str:
        with suppress(ValueError, TypeError, AttributeError):
            reply: dict[str, Any] = json.loads(line)
            if "error" in reply:
                return str(reply["error"])
            self.progress = {"done": int(reply["done"]), "total": int(reply["total"])}
        return ""


def _environment() -> dict[str, str]:
    """One thread for each child."""
    custom = {SWITCH_VARIABLE: "true"} if custom_rewards_on() else {}
    return bare_env(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", **custom)
