"""``manage.py backup``: database and data folder in one file, while everything runs.

1. Dump the database, then read the files (``archive`` says why in this order). What is made again at each start is left
   out, and so are notes of processes: for a copy they are processes of the original.
2. Write next to the target, under another name, and rename when all is on the disk: a backup is complete or not there.
3. Report what is in it, and the files that the database names and the folder lacks.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import IO

from django.conf import settings
from django.db import connection
from django.db.migrations.recorder import MigrationRecorder
from django.utils import timezone

from training.journal import JOURNAL_NAME
from training.policy.vllm_server import SERVER_NAME
from webapp.common.env import database_from_url
from webapp.common.storage import attempt_dir
from webapp.datasets.models import Dataset, DatasetState
from webapp.engine.trainer import PROCESS_NAME
from webapp.ops.archive import DUMP_NAME, FILES_NAME, Writer
from webapp.ops.database import database, postgres_env
from webapp.people.teams.models import User
from webapp.runs.models import Attempt, Run
from webapp.runs.registry.models import Checkpoint, CheckpointState

# Made again at each start, or on its way in or out.
MADE_AGAIN = {"postgres", "redis", "static", "ready", "logs", "uploads", "trash", "up.lock", "services.json"}
PROCESS_NOTES = (
    "processes.json",
    "supervisord.*",
    "environments/processes.json",
    f"runs/*/{PROCESS_NAME}",
    f"runs/*/{SERVER_NAME}",
)
NAMED_AT_MOST = 5


class BackupError(Exception):
    """There is no backup, or no restored installation; the message says why."""


@dataclass(frozen=True)
class Held:
    """How much an installation holds."""

    runs: int
    datasets: int
    people: int
    checkpoints: int
    missing: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return f"{self.runs} runs, {self.datasets} datasets, {self.people} people, {self.checkpoints} checkpoints"


def backup(data: Path, target: Path | IO[bytes]) -> Held:
    """Write a backup into a file that is not there yet, or into a stream. Raises ``BackupError``, ``OSError``."""
    if not isinstance(target, Path):
        return _write_backup(data, target)
    if target.exists():
        raise BackupError(f"{target} is there already: name a file that is not.")
    if target.resolve().is_relative_to(data.resolve()):
        raise BackupError(f"{target} lies in the data folder: name a file elsewhere, best on another disk.")
    fresh = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            held = _write_backup(data, file)
            file.flush()
            os.fsync(file.fileno())
        fresh.rename(target)
    finally:
        fresh.unlink(missing_ok=True)
    return held


def _write_backup(data: Path, stream: IO[bytes]) -> Held:
    with connected(data) as url, tempfile.TemporaryDirectory(prefix="backup-", dir=data / "uploads") as scratch:
        applied = sorted(MigrationRecorder(connection).applied_migrations())
        dump = Path(scratch) / DUMP_NAME
        postgres_program(url, "pg_dump", "--format", "custom", "--file", str(dump))
        held = held_here()
        head = {"version": settings.PRODUCT_VERSION, "made_at": timezone.now().isoformat(), "migrations": applied}
        writer = Writer(stream, head)
        writer.add(dump, DUMP_NAME)
        for path in kept(data):
            writer.add(path, f"{FILES_NAME}/{path.relative_to(data).as_posix()}")
        writer.end()
    return held


@contextmanager
def connected(data: Path) -> Iterator[str]:
    """The URL of the database, with Django's connection on it too: settings were read before it was started."""
    with database(data) as url:
        connection.settings_dict.update(database_from_url(url))
        try:
            yield url
        finally:
            connection.close()


def postgres_program(url: str, *command: str) -> None:
    """Run one of PostgreSQL's programs. Raises ``BackupError`` with its message."""
    done = subprocess.run(command, env=postgres_env(url), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    if done.returncode:
        raise BackupError(f"{command[0]} failed: {done.stderr.decode(errors='replace').strip()[-800:]}")


def kept(data: Path) -> Iterator[Path]:
    """The paths of a data folder that a backup has, folders before their contents."""
    for folder, folders, names in os.walk(data):
        here = Path(folder)
        if here == data:
            folders[:] = [name for name in folders if name not in MADE_AGAIN]
            names = [name for name in names if name not in MADE_AGAIN]
        folders.sort()
        yield from (here / name for name in folders)
        yield from (path for name in sorted(names) if not notes_processes(data, path := here / name))


def notes_processes(data: Path, path: Path) -> bool:
    """Whether a file of the data folder notes processes."""
    relative = path.relative_to(data).as_posix()
    return any(fnmatchcase(relative, pattern) for pattern in PROCESS_NOTES)


def held_here() -> Held:
    """The counts of the database, and the files that it names and the data folder lacks."""
    datasets = Dataset.objects.filter(state=DatasetState.READY)
    missing = [f"dataset {one.name}" for one in datasets if not one.rows_path.is_file()]
    for one in Attempt.objects.filter(journal_offset__gt=0).select_related("run"):
        journal = attempt_dir(one.run_id, one.number) / JOURNAL_NAME
        if not journal.is_file() or journal.stat().st_size < one.journal_offset:
            missing.append(f"journal of run {one.run.name}, attempt {one.number}")
    whole = Checkpoint.objects.filter(state=CheckpointState.WHOLE).select_related("run")
    return Held(
        runs=Run.objects.count(),
        datasets=datasets.count(),
        people=User.objects.filter(is_machine=False).count(),
        checkpoints=sum(one.folder.is_dir() for one in whole),
        missing=missing,
    )


def lacking(held: Held) -> str:
    """The sentence about what is missing; empty where nothing is."""
    if not held.missing:
        return ""
    more = len(held.missing) - NAMED_AT_MOST
    names = ", ".join(held.missing[:NAMED_AT_MOST]) + (f" and {more} more" if more > 0 else "")
    return f"The database names files that are not in the data folder: {names}."
