"""Files of attempts between hosts with different data folders, by ``webapp.common.objects``; with ``TILTYARD_FILES``.

1. While an attempt runs, its *courier*, two threads of the supervisor, ships the journal in stretches and publishes
   each checkpoint and model. What retention removed goes from the store too. A store that is away delays, and ends
   nothing. On a host with a cache the database gets only lines that were shipped: it never knows more than the files.
2. When the trainer has ended, the courier sends the rest before the outcome is read, so a run that succeeded has a
   model that every host can fetch. A store that stays away pauses the run.
3. Before an attempt, the journals of earlier ones and the newest whole checkpoint are brought here.
4. The clock's host, which has the site's own data folder, copies what other hosts published (``copy_home``): pages,
   downloads, exports and backups read that folder.

A host that dies loses what it made since the last pass: the last lines of the journal, checkpoints that were not sent
yet, and the trainer's printed output.
"""

from __future__ import annotations

import logging
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import connection
from django.db.models import F, Q
from django.db.models.functions import Now

from training.algorithms.checkpoints import MANIFEST
from training.errors import FilesAway, FilesFull, FilesMissing, FilesRefused, FilesTorn, StorageFull, TiltyardError
from training.journal import JOURNAL_NAME
from training.words import _, sentence
from webapp.common import objects
from webapp.common.errors import DATABASE_AWAY
from webapp.common.storage import attempt_dir
from webapp.common.workers.beating import training_problem
from webapp.common.workers.models import DataFolder
from webapp.datasets.models import Dataset
from webapp.engine.history import LeaseLost
from webapp.runs.models import Attempt, Run
from webapp.runs.registry.models import Checkpoint, CheckpointState

logger = logging.getLogger(__name__)
STORE_FAULTS = (FilesAway, FilesRefused, FilesFull)
EVERY_S, AGAIN_MAX_S = 1.0, 60.0
NOTED_EVERY_S = 5.0  # that there is something to copy home
LATE_S = 15.0  # without the newest lines, until it is reported: a store that is restarted passes unnoticed
FINISH_S = 600.0  # for sending the rest, while the store is away
NO_ANSWER = _("The store of files has not taken this run's journal for {n} s.")
REST = ".files"
"""Ending of the key under which the small files of an ended attempt are published together."""


def whole_folders(folder: Path) -> list[Path]:
    """The checkpoints and models of an attempt that are whole: they appear by a rename, with their manifest."""
    found = (path.parent for depth in ("*", "*/*") for path in folder.glob(f"{depth}/{MANIFEST}"))
    return sorted(place for place in found if place.suffix not in {".staging", ".removed", ".torn", ".old"})


class Repeating(threading.Thread):
    """Does something every ``EVERY_S``, further apart while the store is away, until ``done`` is set. ``fault`` is what
    kept it from that last."""

    def __init__(self, name: str, action: Callable[[], None]) -> None:
        super().__init__(name=name, daemon=True)
        self.action, self.done = action, threading.Event()
        self.fault: TiltyardError | None = None

    def run(self) -> None:
        """Again and again."""
        pause = EVERY_S
        while not self.done.wait(pause):
            try:
                self.action()
                pause, self.fault = EVERY_S, None
            except (*STORE_FAULTS, OSError) as exc:
                pause = min(pause * 2, AGAIN_MAX_S)
                self.fault = exc if isinstance(exc, TiltyardError) else None
                logger.warning("files not sent yet", extra={"action": "courier", "error": str(exc)[:200]})
            except DATABASE_AWAY:
                connection.close()
            except LeaseLost:  # the supervisor finds out by itself
                break
        connection.close()


class Courier:
    """Sends what one attempt writes; the journal waits for no large checkpoint. ``finish`` or ``end`` ends it."""

    def __init__(self, run_id: UUID, attempt: int, report: Callable[[TiltyardError | None], None]) -> None:
        """``report`` is called with what keeps the store from having the journal, and with ``None`` once it has it."""
        self.run_id, self.number, self.folder, self.report = run_id, attempt, attempt_dir(run_id, attempt), report
        self.shipped = 0
        """Up to which byte of the journal."""
        self._noted_at = 0.0
        self._whole_at = time.monotonic()
        self._late = False
        self._sent: set[Path] = set()
        actions = {"journal": self._send_journal, "folders": self._send_folders}
        self.threads = [Repeating(f"courier-{name}", action) for name, action in actions.items()]

    def start(self) -> None:
        """Begin to send."""
        for thread in self.threads:
            thread.start()

    def look(self) -> None:
        """Report, once, that the store has lacked a part of the journal for ``LATE_S``, and that it has all of it.

        By this a store that does not answer at all is noticed long before its request fails.
        """
        behind_s = time.monotonic() - self._whole_at
        if (behind_s >= LATE_S) == self._late:
            return
        found = (thread.fault for thread in self.threads if thread.fault is not None)
        self.report(None if self._late else next(found, FilesAway(sentence(NO_ANSWER, n=round(behind_s)))))
        self._late = not self._late

    def end(self) -> None:
        """Send nothing more: the attempt is another worker's, or over."""
        for thread in self.threads:
            thread.done.set()

    def finish(self) -> None:
        """Send the rest, once the trainer has ended. Raises ``FilesAway``, ``FilesRefused`` or ``FilesFull`` where that
        cannot be done within ``FINISH_S``."""
        self.end()
        watching = Repeating("courier-look", self.look)  # a request of ours may wait for minutes
        watching.start()
        try:
            for thread in self.threads:
                if thread.ident is not None:
                    thread.join(timeout=FINISH_S)
            self._send_all()
        finally:
            watching.done.set()
            watching.join()
        self.look()

    def _send_all(self) -> None:
        until, pause = time.monotonic() + FINISH_S, EVERY_S
        while True:
            try:
                self._send_journal()
                self._send_folders()
                self._send_rest()
                return
            except DATABASE_AWAY:
                connection.close()
            except STORE_FAULTS:
                if time.monotonic() + pause >= until:
                    raise
            time.sleep(pause)
            pause = min(pause * 2, AGAIN_MAX_S)

    def _send_journal(self) -> None:
        journal, before = self.folder / JOURNAL_NAME, self.shipped
        while journal.is_file() and (size := objects.ship(journal, self.shipped)) != self.shipped:
            self.shipped = size
        self._whole_at = time.monotonic()
        if self.shipped != before and time.monotonic() - self._noted_at > NOTED_EVERY_S:
            self._note()

    def _send_folders(self) -> None:
        there = set(whole_folders(self.folder))
        changed = there != self._sent
        for folder in sorted(there - self._sent):
            try:
                objects.publish(folder)
            except FileNotFoundError:  # retention was faster: nothing of it stays in the store
                objects.unpublish(folder)
                continue
            self._sent.add(folder)
        for folder in self._sent - there:
            objects.unpublish(folder)
            self._sent.discard(folder)
        if changed:
            self._note()

    def _note(self) -> None:
        """Have the site copy what was sent."""
        self._noted_at = time.monotonic()
        if objects.is_cache():
            Attempt.objects.filter(run=self.run_id, number=self.number).update(shipped_at=Now())

    def _send_rest(self) -> None:
        whole = whole_folders(self.folder)
        rest = [
            path
            for path in self.folder.rglob("*")
            if path.is_file()
            and path.name != JOURNAL_NAME
            and not any(path.is_relative_to(folder) for folder in whole)
            and "trainer" not in path.relative_to(self.folder).parts
        ]
        if rest:
            objects.publish(self.folder, files=rest, key=f"{objects.key_of(self.folder)}{REST}")
        if (self.folder / JOURNAL_NAME).is_file():
            objects.join_parts(self.folder / JOURNAL_NAME)
        if objects.is_cache():
            objects.mark(self.folder)
        self._note()


# --- Before an attempt ------------------------------------------------------------------------------------------------
def bring_earlier(run_id: UUID, before: int) -> None:
    """Have the journals of the attempts before here as far as they were shipped, with their small files. Raises the
    errors of ``objects``."""
    for number in range(1, before):
        folder = attempt_dir(run_id, number)
        if objects.collect(folder / JOURNAL_NAME) and objects.is_cache():
            objects.fill(folder, f"{objects.key_of(folder)}{REST}")
        objects.used(folder)


def bring_checkpoint(run: Run) -> None:
    """Have the checkpoint here that the run would resume from: its newest whole one, or its parent's. Raises the errors
    of ``objects``; one that was never sent, or is damaged, is passed over."""
    rows = Checkpoint.objects.filter(run=run, state=CheckpointState.WHOLE, final=False).order_by("-attempt", "-step")
    for row in [*rows, *([run.resume_checkpoint] if run.resume_checkpoint else [])]:
        with suppress(FilesMissing, FilesTorn):
            objects.fetch(row.folder)
            return


def model_lost(run_id: UUID) -> bool:
    """Whether the finished model of a run is neither here nor in the store: its host died before it was sent."""
    final = Checkpoint.objects.filter(run=run_id, final=True).order_by("-attempt", "-step").first()
    if not objects.enabled() or final is None or final.folder.is_dir():
        return False
    try:
        return not objects.is_published(final.folder)
    except STORE_FAULTS:  # training again from the last checkpoint costs time, a run without its model would be wrong
        return True


def sweep() -> None:
    """Delete from a cache what belongs to runs and datasets that were deleted."""
    for name, model in (("runs", Run.all_objects), ("datasets", Dataset.objects)):
        found = {path.name: path for path in (Path(settings.DATA_DIR) / name).glob("*-*-*-*-*") if path.is_dir()}
        known = {str(pk) for pk in model.filter(pk__in=list(found)).values_list("pk", flat=True)}
        for key in found.keys() - known:
            shutil.rmtree(found[key], ignore_errors=True)


# --- The database names the paths of the site ------------------------------------------------------------------------
def site_paths(value: Any) -> Any:
    """A resolved config with the paths of the site's data folder in place of this host's."""
    home = DataFolder.objects.filter(pk=1).values_list("path", flat=True).first()
    here = str(settings.DATA_DIR)
    return value if not home or home == here else _moved(value, f"{here}/", f"{home}/")


def _moved(value: Any, here: str, home: str) -> Any:
    if isinstance(value, dict):
        return {name: _moved(each, here, home) for name, each in value.items()}
    if isinstance(value, list):
        return [_moved(each, here, home) for each in value]
    return home + value.removeprefix(here) if isinstance(value, str) and value.startswith(here) else value


# --- Home -------------------------------------------------------------------------------------------------------------
def copy_home() -> int:
    """Copy what hosts with other data folders have published since the last look into the site's folder. Returns of how
    many attempts.

    The first look writes the site's identity into the store: the site's own host may have no worker that trains.
    """
    if not objects.enabled() or objects.is_cache() or training_problem():
        return 0
    newer = Q(copied_at=None) | Q(copied_at__lt=F("shipped_at"))
    rows = Attempt.objects.filter(newer, shipped_at__isnull=False).select_related("run").order_by("shipped_at")
    count = 0
    for attempt in rows:
        try:
            _copy_attempt(attempt)
        except STORE_FAULTS:  # the others would wait for it as long
            return count
        except (FilesMissing, FilesTorn, StorageFull) as exc:
            what = {"action": "copy_home", "run_id": attempt.run_id, "error": str(exc)[:200]}
            logger.warning("files not copied", extra=what)
            continue
        Attempt.objects.filter(pk=attempt.pk).update(copied_at=attempt.shipped_at)
        count += 1
    return count


def _copy_attempt(attempt: Attempt) -> None:
    folder = attempt_dir(attempt.run_id, attempt.number)
    objects.collect(folder / JOURNAL_NAME)
    for place in objects.published_below(folder):
        with suppress(FilesMissing):  # retention was faster
            objects.fetch(place)
    objects.fill(folder, f"{objects.key_of(folder)}{REST}")
    for removed in _removed_here(attempt):
        shutil.rmtree(removed, ignore_errors=True)


def _removed_here(attempt: Attempt) -> Iterator[Path]:
    gone = Checkpoint.objects.filter(run=attempt.run_id, attempt=attempt.number).exclude(state=CheckpointState.WHOLE)
    return (row.folder for row in gone if row.folder.is_dir())


# --- Files of before --------------------------------------------------------------------------------------------------
def publish_all() -> Iterator[str]:
    """Publish the datasets and checkpoints of the site's folder that the store lacks; their names, as they are sent."""
    for dataset in Dataset.objects.filter(state="ready").order_by("created_at"):
        if dataset.rows_path.is_file() and objects.publish(dataset.rows_path):
            yield str(dataset)
    for row in Checkpoint.objects.filter(state=CheckpointState.WHOLE).select_related("run").order_by("created_at"):
        if row.folder.is_dir() and objects.publish(row.folder):
            yield str(row)
