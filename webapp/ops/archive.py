"""The file of a backup: a tar that is written and read as a stream, so that it can go through a pipe.

1. ``backup.json``: which release made it, when, and which migrations its database had.
2. ``tiltyard.dump``: the database, in PostgreSQL's custom format.
3. ``files/…``: the data folder.
4. ``end.json``: a digest of all that came before. An archive without it was cut off.

The database comes first: journals only grow, so the files hold everything that the dump refers to.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import stat
import tarfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

HEAD_NAME, DUMP_NAME, FILES_NAME, END_NAME = "backup.json", "tiltyard.dump", "files", "end.json"
CHUNK_BYTES = 1 << 20
MODES = 0o755  # no mode in an archive lets other users write


class ArchiveError(Exception):
    """The archive is no complete backup; the message says why."""


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
