"""Backups: database and data folder in one file, written while everything runs, and restored into empty ones."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import stat
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import IO, Any

from django.conf import settings
from django.db import connection
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder
from django.utils import timezone

from training.journal import JOURNAL_NAME
from training.sessions import SERVER_NOTE
from webapp.common.env import database_from_url
from webapp.common.storage import attempt_dir
from webapp.datasets.models import Dataset, DatasetState
from webapp.engine.trainer import PROCESS_NAME
from webapp.ops.database import database, postgres_env
from webapp.people.teams.models import User
from webapp.runs.models import Attempt, Run
from webapp.runs.registry.models import Checkpoint, CheckpointState

# The file of a backup: a tar that is written and read as a stream, so that it can go through a pipe.
#
# 1. ``backup.json``: which release made it, when, and which migrations its database had.
# 2. ``tiltyard.dump``: the database, in PostgreSQL's custom format.
# 3. ``files/…``: the data folder.
# 4. ``end.json``: a digest of all that came before. An archive without it was cut off.
#
# The database comes first: journals only grow, so the files hold everything that the dump refers to.

HEAD_NAME, DUMP_NAME, FILES_NAME, END_NAME = "backup.json", "tiltyard.dump", "files", "end.json"
CHUNK_BYTES = 1 << 20
MODES = 0o755  # no mode in an archive lets other users write


class ArchiveError(Exception):
    """The archive is not a complete backup; the message says why."""


class _Content:
    """A file's bytes, as many as it had when it was opened, also if it changes meanwhile.

    A journal grows, and its new part belongs to the next backup. A log that was cut short is filled with empty lines.
    """

    def __init__(self, file: IO[bytes], digest: Any) -> None:
        self._file, self._digest = file, digest

    def read(self, size: int) -> bytes:
        """Exactly ``size`` bytes."""
        data = self._file.read(size)
        data += b"\n" * (size - len(data))
        self._digest.update(data)
        return data


class Writer:
    """Writes an archive into a stream; call ``end`` when all is in it."""

    def __init__(self, stream: IO[bytes], head: dict[str, Any]) -> None:
        self._tar = tarfile.open(fileobj=stream, mode="w|", format=tarfile.PAX_FORMAT)  # noqa: SIM115 - `end` closes it
        self._digest = hashlib.sha256()
        self._seen: dict[tuple[int, ...], str] = {}
        self._put_json(HEAD_NAME, head)

    def add(self, path: Path, name: str) -> None:
        """A file, a folder without what is in it, or a link; sockets and what has gone meanwhile are left out."""
        with suppress(FileNotFoundError):
            status = path.lstat()
            if stat.S_ISREG(status.st_mode):
                self._add_file(path, name)
            elif stat.S_ISDIR(status.st_mode) or stat.S_ISLNK(status.st_mode):
                member = _member_of(name, status)
                if stat.S_ISLNK(status.st_mode):
                    member.type, member.linkname = tarfile.SYMTYPE, os.readlink(path)
                else:
                    member.type = tarfile.DIRTYPE
                self._put_member(member)

    def end(self) -> None:
        """Seal it."""
        self._put_json(END_NAME, {"sha256": self._digest.hexdigest()})
        self._tar.close()

    def _add_file(self, path: Path, name: str) -> None:
        with open(path, "rb") as file:
            status = os.fstat(file.fileno())
            member = _member_of(name, status)
            # The inode number of a file that is deleted meanwhile is used again, but with other times.
            key = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
            if status.st_nlink > 1 and key in self._seen:
                member.type, member.linkname = tarfile.LNKTYPE, self._seen[key]
                return self._put_member(member)
            self._seen[key] = name
            member.size = status.st_size
            return self._put_member(member, file)

    def _put_member(self, member: tarfile.TarInfo, file: IO[bytes] | None = None) -> None:
        self._digest.update(_signature(member))
        self._tar.addfile(member, _Content(file, self._digest) if file is not None else None)  # type: ignore[arg-type]

    def _put_json(self, name: str, value: dict[str, Any]) -> None:
        data = json.dumps(value).encode()
        member = tarfile.TarInfo(name)
        member.mode, member.size = 0o600, len(data)
        self._put_member(member, io.BytesIO(data))


def _member_of(name: str, status: os.stat_result) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.mode, member.mtime = stat.S_IMODE(status.st_mode) & MODES, int(status.st_mtime)
    return member


def _signature(member: tarfile.TarInfo) -> bytes:
    return f"{member.name}\0{member.type!r}\0{member.linkname}\0{member.size}\0{member.mode}\0".encode(
        errors="surrogateescape"
    )


def unpack(stream: IO[bytes], target: Path) -> dict[str, Any]:
    """Unpack a whole archive below an empty folder and return its head. Raises ``ArchiveError``."""
    head: dict[str, Any] | None = None
    try:
        with tarfile.open(fileobj=stream, mode="r|") as tar:
            for name, data in _unpack_members(tar, target):
                head = json.loads(data) if name == HEAD_NAME else head
    except (tarfile.TarError, EOFError, ValueError, KeyError) as exc:
        raise ArchiveError(f"This is no whole backup of Tiltyard: {exc}") from exc
    if head is None or not (target / DUMP_NAME).is_file():
        raise ArchiveError("This is no backup of Tiltyard.")
    return head


def _unpack_members(tar: tarfile.TarFile, target: Path) -> Iterator[tuple[str, bytes]]:
    """Unpack one member after the other; yields the texts of our own. Raises ``ValueError``."""
    digest = hashlib.sha256()
    for member in tar:
        file = tar.extractfile(member) if member.isreg() else None
        if member.name == END_NAME and file is not None:
            if json.loads(file.read())["sha256"] != digest.hexdigest():
                raise ValueError("it was changed or damaged")
            return
        digest.update(_signature(member))
        if member.name == HEAD_NAME and file is not None:
            digest.update(data := file.read())
            yield member.name, data
            continue
        if member.name != DUMP_NAME and not member.name.startswith(f"{FILES_NAME}/"):
            raise ValueError(f"it has a part “{member.name[:80]}”")
        _unpack_member(member, file, target, digest)
    raise ValueError("its end is missing")


def _unpack_member(member: tarfile.TarInfo, file: IO[bytes] | None, target: Path, digest: Any) -> None:
    path = _path_below(target, member.name)
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    if member.isdir():
        path.mkdir(exist_ok=True, mode=0o700)
    elif member.issym():
        os.symlink(member.linkname, path)
    elif member.islnk():
        os.link(_path_below(target, member.linkname), path, follow_symlinks=False)
    elif file is not None:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(handle, "wb") as out:
            while data := file.read(CHUNK_BYTES):
                digest.update(data)
                out.write(data)
            os.fchmod(out.fileno(), member.mode & MODES | 0o600)
        os.utime(path, (member.mtime, member.mtime))
    else:
        raise ValueError(f"“{member.name[:80]}” is neither file nor folder")


def _path_below(target: Path, name: str) -> Path:
    """The path below the target. Raises ``ValueError`` where a link of the archive leads out of it."""
    path = target / name
    if ".." in path.parts or not path.parent.resolve().is_relative_to(target.resolve()):
        raise ValueError(f"“{name[:80]}” leaves its folder")
    return path


# ``manage.py backup``: database and data folder in one file, while everything runs.
#
# 1. Dump the database, then read the files (above it says why in this order). What is made again at each start is
#    left out, and so are notes of processes: for a copy they are processes of the original.
# 2. Write next to the target, under another name, and rename when all is on the disk: a backup is complete or not
#    there.
# 3. Report what is in it, and the files that the database names and the folder lacks.

# Made again at each start, or on its way in or out.
MADE_AGAIN = {"postgres", "redis", "static", "ready", "logs", "uploads", "trash", "locks", "up.lock", "services.json"}
PROCESS_NOTES = (
    "processes.json",
    "supervisord.*",
    "environments/processes.json",
    f"runs/*/{PROCESS_NAME}",
    f"runs/*/{SERVER_NOTE}",
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
    # The journal of an attempt on another host is copied here a little later, and the store has all of it.
    for one in Attempt.objects.filter(journal_offset__gt=0, shipped_at=None).select_related("run"):
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


# ``manage.py restore``: a backup into an empty data folder and an empty database.
#
# 1. Refuse a folder or a database that holds anything.
# 2. Unpack into a folder of its own, and check all of it: the digest, the release, the dump.
# 3. Move the files to their places, then the database in one transaction. If that fails, the files go again.

# Files of a process that only reads an empty folder.
MADE_AT_ONCE = MADE_AGAIN | {"secret_key"}
# Servers before 17 do not know it, and its value is the default.
UNKNOWN_TO_OLDER = b"SET transaction_timeout = 0;\n"
HEAD_BYTES = 4096


def restore(data: Path, source: IO[bytes]) -> tuple[dict[str, Any], Held]:
    """Restore what the stream holds; its head, and what is here now. Raises ``BackupError``, ``OSError``."""
    require_empty_folder(data)
    with connected(data) as url, tempfile.TemporaryDirectory(prefix="restore-", dir=data / "uploads") as scratch:
        require_empty_database()
        staged = Path(scratch)
        try:
            head = unpack(source, staged)
        except ArchiveError as exc:
            raise BackupError(str(exc)) from exc
        _require_known(head)
        script = _dump_as_sql(url, staged / DUMP_NAME)
        (staged / FILES_NAME).mkdir(exist_ok=True, mode=0o700)
        placed = [data / path.name for path in (staged / FILES_NAME).iterdir()]
        try:
            _move_into(staged / FILES_NAME, data)
            _restore_database(url, script)
        except BaseException:
            for path in placed:
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink(missing_ok=True)
            raise
        return head, held_here()


def require_empty_folder(data: Path) -> None:
    """Raises ``BackupError`` where a file lies in the data folder that an installation would keep."""
    for entry in sorted(data.iterdir()):
        if entry.name in MADE_AT_ONCE or entry.suffix == ".sock" or notes_processes(data, entry):
            continue
        if not entry.is_dir() or any(not path.is_dir() for path in entry.rglob("*")):
            raise BackupError(f"{data} is not empty ({entry.name}): restore into an empty folder.")


def require_empty_database() -> None:
    """Raises ``BackupError`` where it has a table."""
    if tables := connection.introspection.table_names():
        raise BackupError(f"The database is not empty ({len(tables)} tables): restore into an empty one.")


def _require_known(head: dict[str, Any]) -> None:
    known = set(MigrationLoader(None).disk_migrations)
    newer = [f"{app}.{name}" for app, name in head["migrations"] if (app, name) not in known]
    if newer:
        raise BackupError(
            f"The backup was made by a newer release ({head['version']}, with {newer[0]}): restore it with that one."
        )


def _move_into(source: Path, target: Path) -> None:
    """Move into folders that are there already, which may be other disks; other things that are there are replaced."""
    if source.is_dir() and not source.is_symlink() and target.is_dir():
        for path in source.iterdir():
            _move_into(path, target / path.name)
    else:
        shutil.move(source, target)


def _dump_as_sql(url: str, dump: Path) -> Path:
    """Write the dump as SQL next to it, which reads all of it. Raises ``BackupError`` where it is damaged."""
    script = dump.with_suffix(".sql")
    postgres_program(url, "pg_restore", "--no-owner", "--no-privileges", "--file", str(script), str(dump))
    with open(script, "r+b") as file:
        head = file.read(HEAD_BYTES)
        if (at := head.find(UNKNOWN_TO_OLDER)) >= 0:
            file.seek(at)
            file.write(b"--")
    return script


def _restore_database(url: str, script: Path) -> None:
    """All of it or nothing."""
    once = ("--single-transaction", "--set", "ON_ERROR_STOP=1")
    postgres_program(url, "psql", "--no-psqlrc", "--quiet", *once, "--file", str(script))
