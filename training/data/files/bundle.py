"""Several files as one dataset: a folder, a zip archive, or a gzip file of one.

What a file says decides its format, never its name; of several files the names decide only which are data: those with
the ending of a kind of data, and of a dataset that is cut into parts the one for training.
"""

from __future__ import annotations

import re
import shutil
import tempfile
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from training.data.files.archive import MAX_MEMBERS, Given, is_archive, is_gzip, unpack, unpack_gzip
from training.errors import DataError
from training.words import _, sentence

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
    """A folder for unpacked files that goes when nobody holds it any more."""

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
    """The part of a dataset that a name tells: its last word such as train or test; empty where it tells none."""
    found = _PARTS.findall(name.lower())
    return found[-1] if found else ""


def natural(name: str) -> list[tuple[int, str]]:
    """Sorts ``9.jsonl`` before ``10.jsonl``."""
    return [(int(part), "") if part.isdecimal() and len(part) < 19 else (0, part) for part in re.split(r"(\d+)", name)]
