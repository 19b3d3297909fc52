"""Raw values of components over a set, computed by a limited child process where they were not recorded.

1. A request loads the columns of its components; those with values that are not computed yet become one ``Job``.
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
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar
from uuid import UUID

from django.utils.translation import gettext as _

from training.children import NO_LIMITS, bare_env, limited_child
from training.config import RewardComponent
from training.rewards import lab
from training.rewards.custom import SWITCH_VARIABLE
from webapp.common.text import os_words
from webapp.people.teams.services import custom_rewards_on
from webapp.rewards.models import RolloutSet

# --- Cache ----------------------------------------------------------------------------------------------------------
# Loaded tables and columns of this process: at most ``MAX_BYTES`` of them, those used last.

MAX_BYTES = 256 << 20


class Sized(Protocol):
    """Something that knows how much memory it takes."""

    @property
    def nbytes(self) -> int: ...


S = TypeVar("S", bound=Sized)


class Cache:
    """A bounded store; an item larger than the limit is returned and not kept."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._max = max_bytes
        self._held: OrderedDict[Any, Sized] = OrderedDict()
        self._lock = threading.Lock()
        self.bytes = 0

    def get(self, key: Any, make: Callable[[], S]) -> S:
        """The item of a key; made by ``make`` where there is none. Two threads may both make it."""
        with self._lock:
            if key in self._held:
                self._held.move_to_end(key)
                return self._held[key]  # type: ignore[return-value]
        made = make()
        with self._lock:
            if key not in self._held:
                self._held[key] = made
                self.bytes += made.nbytes
            while self.bytes > self._max:
                self.bytes -= self._held.popitem(last=False)[1].nbytes
        return made

    def drop(self, key: Any) -> None:
        """Drop the item of a key."""
        with self._lock:
            gone = self._held.pop(key, None)
            self.bytes -= gone.nbytes if gone is not None else 0


cache = Cache()


# --- Child ----------------------------------------------------------------------------------------------------------
# The process that scores a folder of recorded episodes: ``python -m training.rewards.lab``, with limits.

logger = logging.getLogger(__name__)
MEMORY_BYTES = 4 << 30
ONE_THREAD: Mapping[str, str] = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


class ScoringFailed(Exception):
    """The process failed. ``said`` is its own sentence, if it had one; ``late``: it took too long."""

    def __init__(self, said: str, late: bool) -> None:
        super().__init__(said)
        self.said, self.late = said, late


def computing_env() -> dict[str, str]:
    """The environment of a process that asks no judge or model. It reads the database, so threads may not call it."""
    custom = {SWITCH_VARIABLE: "true"} if custom_rewards_on() else {}
    return bare_env(**ONE_THREAD, **custom)


def score_in_child(
    folder: Path,
    components: Sequence[RewardComponent],
    on_progress: Callable[[int, int], None],
    *,
    env: dict[str, str],
    wall_s: float,
    ask: bool = False,
    loads_model: bool = False,
) -> None:
    """Have the values computed and kept in the folder. ``on_progress`` gets how many rollouts are done, and of how
    many; what it raises ends the process. Raises ``ScoringFailed``, and ``OSError`` where no process can be started."""
    # The libraries of models reserve far more addresses than they use, so a limit on these would end them at once.
    failure, limits = "", NO_LIMITS if loads_model else {"RLIMIT_AS": MEMORY_BYTES}
    with tempfile.TemporaryFile() as request:
        request.write(json.dumps([item.model_dump(mode="json") for item in components]).encode())
        request.seek(0)
        command = [sys.executable, "-P", "-m", "training.rewards.lab", str(folder), *([lab.ASK] if ask else [])]
        with limited_child(command, wall_s=wall_s, env=env, limits=limits, stdin=request, stderr=None) as child:
            for line in child.lines():
                failure = _read_progress(line, on_progress) or failure
            in_time = child.wait()
    if child.code:
        logger.warning("scoring ended with %s", child.code, extra={"folder": folder.name})
        raise ScoringFailed(failure, late=not in_time)


def _read_progress(line: bytes, on_progress: Callable[[int, int], None]) -> str:
    """Pass progress on to ``on_progress``. Returns the sentence of a failure, or ""."""
    try:
        report: dict[str, Any] = json.loads(line)
        if "error" in report:
            return str(report["error"])
        done, total = int(report["done"]), int(report["total"])
    except (ValueError, TypeError, KeyError, AttributeError):
        return ""  # a library printed something
    on_progress(done, total)
    return ""


WAIT_S = 4.0
LIMIT_S = 900.0
REMEMBER_S = 60.0
MAX_JOBS = 2
MAX_WAITING = 8
_turns = threading.BoundedSemaphore(MAX_JOBS)
_lock = threading.Lock()
_jobs: dict[tuple[UUID, frozenset[str]], Job] = {}


class Values(NamedTuple):
    """Columns by component; ``computed`` are those that had to be computed; ``pending`` while they still are."""

    columns: dict[str, lab.Column]
    computed: list[str]
    pending: Job | None
    failed: str


def table_of(rollout_set: RolloutSet) -> lab.Table:
    """The set's columns. Raises ``DataError`` when its files are gone."""
    return cache.get(rollout_set.pk, lambda: lab.table_load(rollout_set.folder))


def values_of(rollout_set: RolloutSet, table: lab.Table, components: Sequence[RewardComponent]) -> Values:
    """The raw values of all components, waiting a little for those that must be computed."""
    lacking = [item for item in components if _has_missing(rollout_set, table, item)]
    job = _job_for(rollout_set, lacking) if lacking else None
    pending, failed = None, ""
    if job is not None:
        if not job.done.wait(WAIT_S):
            pending = job
        failed = job.error
        for item in lacking:
            cache.drop((rollout_set.pk, lab.component_key(item)))
    columns = known_columns(rollout_set, table, components)
    return Values(columns, [item.name for item in lacking], pending, failed)


def known_columns(
    rollout_set: RolloutSet, table: lab.Table, components: Sequence[RewardComponent]
) -> dict[str, lab.Column]:
    """The known columns of all components now."""
    return {item.name: _cached_column(rollout_set, table, item) for item in components}


def _has_missing(rollout_set: RolloutSet, table: lab.Table, component: RewardComponent) -> bool:
    if not lab.is_asked(component):
        return False
    return bool(lab.wanted(table, component, _cached_column(rollout_set, table, component)).any())


def _cached_column(rollout_set: RolloutSet, table: lab.Table, component: RewardComponent) -> lab.Column:
    return cache.get((rollout_set.pk, lab.component_key(component)), lambda: lab.column_of(table, component))


def _job_for(rollout_set: RolloutSet, components: list[RewardComponent]) -> Job:
    """The job that computes these, or did so lately; else a new one."""
    key = (rollout_set.pk, frozenset(lab.component_key(item) for item in components))
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
    """One child and its progress so far."""

    def __init__(self, folder: Path, components: list[RewardComponent]) -> None:
        self._folder = folder
        self._components = components
        self._environment = computing_env()  # reads the database, which the thread of a job must not use
        self.progress = {"done": 0, "total": 0}
        self.names = [item.name for item in components]
        self.done = threading.Event()
        self.ended = 0.0
        self.error = ""
        # The sentences of a failure, in the language of the person who asked first.
        self._late = _("Scoring took longer than %(s)g seconds.") % {"s": LIMIT_S}
        self._died = _("The scoring process ended early; it may have had too little memory.")

    def start(self) -> None:
        """Run the child in a thread that follows it."""
        threading.Thread(target=self._follow, name="lab-scoring", daemon=True).start()

    def refuse(self, sentence: str) -> None:
        """End the job before it begins."""
        self._finish(sentence)

    def _finish(self, error: str) -> None:
        self.error, self.ended = error, time.monotonic()
        self.done.set()

    def _follow(self) -> None:
        error = self._died
        try:
            with _turns:
                score_in_child(self._folder, self._components, self._on_progress, env=self._environment, wall_s=LIMIT_S)
            error = ""
        except ScoringFailed as exc:
            error = exc.said or (self._late if exc.late else self._died)
        except OSError as exc:
            logger.exception("scoring could not start")
            error = f"{self._died} ({os_words(exc)})"
        finally:
            self._finish(error)

    def _on_progress(self, done: int, total: int) -> None:
        self.progress = {"done": done, "total": total}
