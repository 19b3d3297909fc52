"""Zip archives and gzip files, unpacked as far as a cap allows.

Names inside an archive never become paths: members are written as ``0``, ``1``, … into a folder of ours.
"""

from __future__ import annotations

import gzip
import shutil
import zipfile
import zlib
from pathlib import Path, PurePosixPath
from typing import IO, NamedTuple

from training.data.files.sniff import open_regular
from training.data.problems import shown
from training.errors import DataError
from training.words import _, sentence

MAX_MEMBERS = 5000
MAX_UNPACKED_BYTES = 8 << 30
RATIO, ALLOWANCE_BYTES = 100, 64 << 20
KEEP_FREE_BYTES = 1 << 30
"""Room on the disk that unpacking leaves."""
_PIECE_BYTES = 1 << 20
_LOOK_EVERY = 64 << 20
_NOISE = ("__MACOSX/", ".DS_Store", "Thumbs.db")


class Given(NamedTuple):
    """A file to read and the name under which the person knows it."""

    path: Path
    name: str


def is_archive(path: Path) -> bool:
    """Whether the file begins as a zip archive does."""
    with open_regular(path) as file:
        return file.read(4) in (b"PK\x03\x04", b"PK\x05\x06")


def is_gzip(path: Path) -> bool:
    """Whether the file begins as a gzip file does."""
    with open_regular(path) as file:
        return file.read(2) == b"\x1f\x8b"


def cap_of(path: Path) -> int:
    """Bytes that a packed file of this size may unpack to."""
    return min(MAX_UNPACKED_BYTES, RATIO * path.stat().st_size + ALLOWANCE_BYTES)


def unpack_gzip(given: Given, folder: Path, number: int) -> Given:
    """The one file in a gzip file, written as ``folder/<number>``. Raises ``DataError``."""
    target = folder / str(number)
    try:
        with gzip.open(given.path) as source:
            _copy(source, target, cap_of(given.path))
    except (gzip.BadGzipFile, zlib.error, EOFError) as exc:
        raise DataError(_("The gzip file is damaged or cut off."), hint=_("Pack the file again.")) from exc
    _refuse_nested(target, given.name)
    return Given(target, given.name.removesuffix(".gz"))


def unpack(given: Given, folder: Path, first: int) -> list[Given]:
    """The files of an archive, written as ``folder/<first>`` and on. Raises ``DataError``."""
    cap = cap_of(given.path)
    found: list[Given] = []
    try:
        with zipfile.ZipFile(given.path) as archive:
            members = [each for each in archive.infolist() if not each.is_dir() and not _is_noise(each.filename)]
            if len(members) > MAX_MEMBERS:
                raise DataError(
                    sentence(
                        _("The archive holds {count} files; {limit} are allowed."),
                        count=len(members),
                        limit=MAX_MEMBERS,
                    )
                )
            for member in members:
                _refuse(member)
                target = folder / str(first + len(found))
                cap -= _unpack_member(archive, member, target, cap)
                found.append(Given(target, member.filename))
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError) as exc:
        raise DataError(
            _("The zip archive is damaged or of an unsupported kind."), hint=_("Pack the files again.")
        ) from exc
    if not found:
        raise DataError(_("The zip archive holds no files."))
    return found


def _is_noise(name: str) -> bool:
    return name.startswith(_NOISE[0]) or PurePosixPath(name).name in _NOISE[1:]


def _refuse(member: zipfile.ZipInfo) -> None:
    name = member.filename
    path = PurePosixPath(name.replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts or (path.parts and path.parts[0].endswith(":")):
        raise DataError(
            sentence(_("The archive contains a path outside itself: {name}."), name=shown(name)),
            hint=_("Pack the files again."),
        )
    if (member.external_attr >> 16) & 0o170000 == 0o120000:
        raise DataError(
            sentence(_("The archive holds a link: {name}."), name=shown(name)), hint=_("Pack the files themselves.")
        )
    if member.flag_bits & 1:
        raise DataError(_("The archive is encrypted."), hint=_("Pack the files without a password."))


def _unpack_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo, target: Path, cap: int) -> int:
    """Unpack one member, counting what really comes out: its header may lie."""
    with archive.open(member) as source:
        size = _copy(source, target, cap)
    if is_archive(target):
        _refuse_nested(target, member.filename)
    return size


def _copy(source: IO[bytes] | gzip.GzipFile, target: Path, cap: int) -> int:
    size = looked = 0
    with open(target, "xb") as file:
        while piece := source.read(_PIECE_BYTES):
            size += len(piece)
            if size > cap:
                raise DataError(_("The archive unpacks to far more than its size allows."), hint=_("Give fewer files."))
            if size - looked >= _LOOK_EVERY:
                looked = size
                if shutil.disk_usage(target.parent).free < KEEP_FREE_BYTES:
                    raise DataError(_("The disk is too full to unpack the archive."), hint=_("Free some space."))
            file.write(piece)
    return size


def _refuse_nested(target: Path, name: str) -> None:
    if is_archive(target) or is_gzip(target):
        raise DataError(
            sentence(_("The archive holds another archive: {name}."), name=shown(name)),
            hint=_("Unpack it first."),
        )
