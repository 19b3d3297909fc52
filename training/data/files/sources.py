"""Where a dataset comes from: files, folders, archives, or a dataset of Hugging Face where that can be reached."""

from __future__ import annotations

import gzip
import re
import shutil
import tempfile
import weakref
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, NamedTuple

from training.data.files.sniff import open_regular
from training.data.problems import MAX_HUB_BYTES, shown
from training.errors import DataError
from training.words import _, sentence

# Archives and folders: zip and gzip unpacked as far as a cap allows, and several files as one dataset.

# Zip archives and gzip files, unpacked as far as a cap allows.

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


# Several files as one dataset: a folder, a zip archive, or a gzip file of one.

ENDINGS = (".parquet", ".jsonl", ".json", ".csv", ".tsv")
_PARTS = re.compile(r"(?:^|[^a-z])(train|training|test|testing|valid|validation|val|dev|eval)(?:[^a-z]|$)")
_TRAIN = ("train", "training")
_FACTS = {"dataset_info.json", "dataset_infos.json", "dataset_dict.json", "state.json", "package.json"}
"""Files about a dataset that hold none of its rows."""
_OFFICE = "[Content_Types].xml"


class Bundle(NamedTuple):
    """The data files in their order, and the names of those that are left out. ``held`` keeps unpacked files alive."""

    files: list[Given]
    left_out: list[str]
    what: str
    held: object = None


class _Folder:
    """A folder for unpacked files that is removed when it is no longer held."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="tiltyard-unpacked-"))
        self._end = weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)


@contextmanager
def together(paths: list[Path]) -> Iterator[Path]:
    """One path for several files: a folder of links to them, numbered so that their order and names stay."""
    if len(paths) == 1:
        yield paths[0]
        return
    with tempfile.TemporaryDirectory(prefix="tiltyard-files-") as name:
        for number, path in enumerate(paths):
            target = Path(name) / f"{number}-{path.name}"
            try:
                target.hardlink_to(path.resolve())
            except OSError:  # on another disk
                shutil.copyfile(path, target)
        yield Path(name)


def is_bundle(path: Path) -> bool:
    """Whether a path is a folder, a zip archive or a gzip file."""
    return path.is_dir() or is_archive(path) or is_gzip(path)


def open_bundle(path: Path) -> Bundle:
    """The data files of a folder or archive. Raises ``DataError`` where there are none."""
    if path.is_dir():
        files, what, held = _files_of(path), sentence(_("folder")), None
    else:
        held = _Folder()
        if is_gzip(path):
            files, what = [unpack_gzip(Given(path, path.name), held.path, 0)], sentence(_("gzip file"))
            return Bundle(files, [], what, held)
        files, what = unpack(Given(path, path.name), held.path, 0), sentence(_("zip archive"))
    if any(each.name == _OFFICE for each in files):
        raise DataError(_("The file is an Office document."), hint=_("Save the table as CSV in UTF-8."))
    chosen, left_out = _chosen(files)
    if not chosen:
        raise DataError(
            sentence(_("The {what} holds no {endings} file."), what=what, endings=", ".join(ENDINGS)),
            hint=_("Add the file with the rows."),
        )
    return Bundle([_unpacked(each, number, held) for number, each in enumerate(chosen)], left_out, what, held)


def _unpacked(given: Given, number: int, held: _Folder | None) -> Given:
    """The file itself, unpacked where it is a gzip file inside."""
    if not is_gzip(given.path):
        return given
    folder = (held or _Folder()).path
    return unpack_gzip(given, folder, MAX_MEMBERS + number)


def _files_of(folder: Path) -> list[Given]:
    found = [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
    if len(found) > MAX_MEMBERS:
        raise DataError(
            sentence(_("The folder holds {count} files; {limit} are allowed."), count=len(found), limit=MAX_MEMBERS)
        )
    return [Given(path, path.relative_to(folder).as_posix()) for path in found]


def _chosen(files: list[Given]) -> tuple[list[Given], list[str]]:
    """The data files in their natural order and the names of the others."""
    data = [each for each in files if _is_data(each.name)]
    parts = {each.name: part_of(each.name) for each in data}
    if len(set(parts.values())) > 1 and set(parts.values()) & set(_TRAIN):
        data = [each for each in data if parts[each.name] in _TRAIN]
    kept = {each.name for each in data}
    return sorted(data, key=lambda each: natural(each.name)), [each.name for each in files if each.name not in kept]


def _is_data(name: str) -> bool:
    path = PurePosixPath(name.lower().removesuffix(".gz"))
    hidden = any(part.startswith(".") for part in path.parts)
    return path.suffix in ENDINGS and path.name not in _FACTS and not hidden


def part_of(name: str) -> str:
    """The part of a dataset that a name gives: its last word such as train or test; empty where it gives none."""
    found = _PARTS.findall(name.lower())
    return found[-1] if found else ""


def natural(name: str) -> list[tuple[int, str]]:
    """Sorts ``9.jsonl`` before ``10.jsonl``."""
    return [(int(part), "") if part.isdecimal() and len(part) < 19 else (0, part) for part in re.split(r"(\d+)", name)]


# Where a dataset comes from: a file, a folder of files, or a dataset of Hugging Face where that can be reached.
#
# A hub's own code is never run: the files of the dataset are fetched and read here like any upload.

TIMEOUT_S = 20.0
_ID = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}")
_SPLITS = ("train", "")


@contextmanager
def resolved(source: str, split: str = "") -> Iterator[Path]:
    """The file or folder to read; of a hub's dataset the file of ``split``, or of training where none is named.

    Raises ``DataError`` with a sentence about what is not there.
    """
    path = Path(source).expanduser()
    if path.exists() or not _ID.fullmatch(source):
        yield path
    else:
        folder = Path(tempfile.mkdtemp(prefix="tiltyard-hub-"))
        try:
            yield _fetched(source, folder, split)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def pick(names: list[str], where: str, split: str = "") -> str:
    """One of the names: the only one of the split (training, where none is named). Raises ``DataError``."""
    data = [name for name in names if name.endswith(ENDINGS)]
    for word in (split,) if split else _SPLITS:
        found = [name for name in data if word in (name if "/" in word else Path(name).name)]
        if len(found) == 1:
            return found[0]
    if not data:
        raise DataError(sentence(_("{where} holds no {endings} file."), where=where, endings=", ".join(ENDINGS)))
    some = ", ".join(data[:5])
    raise DataError(
        sentence(_("{where} holds {count} files, such as {some}."), where=where, count=len(data), some=some),
        hint=_("Name one of them."),
    )


def _fetched(name: str, folder: Path, split: str) -> Path:
    from huggingface_hub import HfApi, hf_hub_download
    from huggingface_hub.errors import RepositoryNotFoundError

    from training.connections import CLIENT_ERRORS

    unreachable: tuple[type[Exception], ...] = (*CLIENT_ERRORS, ValueError, RuntimeError)

    try:
        info = HfApi().dataset_info(name, timeout=TIMEOUT_S, files_metadata=True)
        sizes = {entry.rfilename: int(entry.size or 0) for entry in info.siblings or []}
        picked = pick(sorted(sizes), name, split)
        if sizes[picked] > MAX_HUB_BYTES:
            raise DataError(
                sentence(
                    _("{picked} of {name} is larger than {limit} GB."),
                    picked=picked,
                    name=name,
                    limit=MAX_HUB_BYTES >> 30,
                )
            )
        hf_hub_download(name, picked, repo_type="dataset", revision=info.sha, local_dir=folder, etag_timeout=TIMEOUT_S)
    except DataError:
        raise
    except RepositoryNotFoundError as exc:
        raise DataError(
            sentence(_("Hugging Face has no public dataset {name}."), name=name),
            hint=_("Check the name, or give a file."),
        ) from exc
    except unreachable as exc:
        raise DataError(
            sentence(
                _("There is no file {name}, and the dataset {name} of Hugging Face cannot be reached ({error})."),
                name=name,
                error=type(exc).__name__,
            ),
            hint=_("Give a file, or try again with a connection."),
        ) from exc
    return folder / picked
