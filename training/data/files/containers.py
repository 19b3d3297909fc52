"""How rows are stored in a file or in several, and how they come out of it, whatever they say."""

from __future__ import annotations

import json
import tempfile
from array import array
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

from training.data.files import parquet
from training.data.files.sniff import GB18030, UTF8, guess, sniff, to_json
from training.data.files.sources import Bundle, Given, is_bundle, open_bundle
from training.data.files.text import read_values_csv, read_values_lines, read_values_list
from training.data.problems import CheckLimits, RowError
from training.data.schema import Raw, Sample
from training.errors import DataError
from training.words import _, sentence

SAMPLE_ROWS = 20
NAMES_SHOWN = 5
_READERS: dict[str, Callable[[Path], Iterator[Raw]]] = {
    "jsonl": read_values_lines,
    "json": read_values_list,
    "parquet": parquet.read_values,
}


class Opened(NamedTuple):
    """A file whose container is known, or several. ``total`` is what the offsets of its rows run to."""

    path: Path
    container: str
    evidence: list[str]
    total: int
    columns: list[str]
    encoding: str = UTF8
    members: tuple[tuple[str, Opened], ...] = ()
    """The files of a bundle by their names, in their order."""
    held: object = None

    def values(self) -> Iterator[Raw]:
        """Its rows, from the first. Raises ``DataError``.

        Rows of several files are numbered on from file to file; what is wrong with one names its file and line there.
        """
        if self.members:
            yield from _of_all(self.members)
        elif self.container == "csv":
            yield from read_values_csv(self.path, self.encoding)
        else:
            yield from _READERS[self.container](self.path)

    def sample(self) -> Sample:
        """Its first rows that can be decoded, some of each file."""
        files = [member for _name, member in self.members] or [self]
        each = -(-SAMPLE_ROWS // len(files))
        raws = [raw for file in files[:SAMPLE_ROWS] for raw in islice(file.values(), each)]
        return Sample(self.container, [raw.value for raw in raws if raw.value is not None], self.columns)


def _of_all(members: tuple[tuple[str, Opened], ...]) -> Iterator[Raw]:
    number = offset = 0
    for name, member in members:
        last = 0
        for raw in member.values():
            last, error = raw.line, raw.error
            if error is not None and len(members) > 1:
                error = _inside(error, f"{name}:{raw.line}")
            yield raw._replace(line=number + raw.line, offset=offset + raw.offset, error=error)
        number, offset = number + last, offset + member.total


def _inside(error: RowError, place: str) -> RowError:
    inner = error.values.get("inside")
    return error.within(f"{place}: {inner}" if inner else place)


def open_values(path: Path, max_rows: int = CheckLimits.max_rows) -> Opened:
    """Tell what the file is and measure it. Raises ``DataError``."""
    if is_bundle(path):
        return _opened_bundle(path, open_bundle(path), max_rows)
    found = sniff(path)
    if found.name == "parquet":
        total = parquet.measure(path, max_rows)
        return Opened(path, found.name, found.evidence, total, parquet.columns(path))
    evidence, encoding = found.evidence, UTF8
    if found.name == "csv":
        read = guess(path)
        encoding = read.encoding
        if encoding == GB18030:
            because = _(
                "Its text is not UTF-8. It is read as GB18030 (GBK), because {common} of its {characters} non-ASCII "
                "characters are then common Chinese ones."
            )
            evidence = [*evidence, sentence(because, common=read.common, characters=read.characters)]
    return Opened(path, found.name, evidence, path.stat().st_size, [], encoding)


def _opened_bundle(path: Path, bundle: Bundle, max_rows: int) -> Opened:
    members = tuple((each.name, _member(each, max_rows)) for each in bundle.files)
    first = members[0][1]
    evidence = [_which(bundle), *first.evidence]
    if bundle.left_out:
        names = _names(bundle.left_out)
        out = _("{count} other files in it are left out: {names}.")
        evidence.insert(1, sentence(out, count=len(bundle.left_out), names=names))
    columns = list(dict.fromkeys(name for _name, member in members for name in member.columns))
    total = sum(member.total for _name, member in members)
    return Opened(path, first.container, evidence, total, columns, UTF8, members, bundle.held)


def _member(given: Given, max_rows: int) -> Opened:
    try:
        return open_values(given.path, max_rows)
    except DataError as exc:
        raise DataError(sentence(_("{file}: {reason}"), file=given.name, reason=exc.message), hint=exc.hint) from exc


def _which(bundle: Bundle) -> str:
    names = _names([each.name for each in bundle.files])
    if len(bundle.files) == 1:
        return sentence(_("It is a {what}; its rows are in {names}."), what=bundle.what, names=names)
    text = _("It is a {what}; the rows of {count} files follow each other: {names}.")
    return sentence(text, what=bundle.what, count=len(bundle.files), names=names)


def _names(names: list[str]) -> str:
    return ", ".join(names[:NAMES_SHOWN]) + (", …" if len(names) > NAMES_SHOWN else "")


# --- Spool ----------------------------------------------------------------------------------------------------------
# Converted rows on disk, read again in any order: shuffling and two passes without holding the rows in memory.


class Spool(AbstractContextManager["Spool"]):
    """A temporary file of JSON lines with the place of each; 8 bytes of memory a row."""

    def __init__(self) -> None:
        self._file = cast(BinaryIO, tempfile.TemporaryFile(prefix="tiltyard-rows-"))  # noqa: SIM115 - closed on exit
        self._places = array("Q")
        self._size = 0

    def add(self, value: dict[str, Any]) -> None:
        """Append one row."""
        self._places.append(self._size)
        self._size += self._file.write(to_json(value).encode() + b"\n")

    def __len__(self) -> int:
        return len(self._places)

    def rows(self, numbers: Iterable[int]) -> Iterator[dict[str, Any]]:
        """Rows by their numbers, in that order. Nothing may be added afterwards."""
        return map(json.loads, self.lines(numbers))

    def lines(self, numbers: Iterable[int]) -> Iterator[bytes]:
        """The same as the lines that they are stored as, each with its end."""
        for number in numbers:
            self._file.seek(self._places[number])
            yield self._file.readline()

    def __exit__(self, *_: object) -> None:
        self._file.close()
