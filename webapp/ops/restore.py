"""``manage.py restore``: a backup into an empty data folder and an empty database.

1. Refuse a folder or a database that holds anything.
2. Unpack into a folder of its own, and check all of it: the digest, the release, the dump.
3. Move the files to their places, then the database in one transaction. If that fails, the files go again.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import IO, Any

from django.db import connection
from django.db.migrations.loader import MigrationLoader

from webapp.ops.archive import DUMP_NAME, FILES_NAME, ArchiveError, unpack
from webapp.ops.backup import MADE_AGAIN, BackupError, Held, connected, held_here, notes_processes, postgres_program

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
