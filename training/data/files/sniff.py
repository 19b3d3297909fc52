"""Tell what a file is by its first bytes, never by its name."""

from __future__ import annotations

import csv
import os
import re
import stat
from pathlib import Path
from typing import BinaryIO, Literal, NamedTuple

from training.errors import DataError
from training.reasons import os_reason
from training.words import _, sentence

HEAD_BYTES = 4096
MAX_NAME_CHARS = 100
"""A longer cell is no column name."""
BINARY_HEAD_BYTES = 16
"""A NUL this early means a binary file; one further on is the fault of its line."""
_UNPACK = _("Unpack it and upload the file inside.")
_EXPORT = _("Export the conversations as JSON Lines or parquet.")
_MAGIC: tuple[tuple[bytes, str, str], ...] = (
    (b"PK\x03\x04", _("a zip archive (or an Office document)"), _UNPACK),
    (b"PK\x05\x06", _("an empty zip archive"), _UNPACK),
    (b"\x1f\x8b", _("gzip"), _UNPACK),
    (b"BZh", _("bzip2"), _UNPACK),
    (b"\xfd7zXZ\x00", _("xz"), _UNPACK),
    (b"\x28\xb5\x2f\xfd", _("zstandard"), _UNPACK),
    (b"7z\xbc\xaf\x27\x1c", _("7-Zip"), _UNPACK),
    (b"\x89PNG\r\n", _("a PNG picture"), _EXPORT),
    (b"\xff\xd8\xff", _("a JPEG picture"), _EXPORT),
    (b"GIF8", _("a GIF picture"), _EXPORT),
    (b"%PDF", _("a PDF document"), _EXPORT),
    (b"ARROW1", _("an Arrow file"), _("Save it as parquet or JSON Lines.")),
    (b"SQLite format 3\x00", _("an SQLite database"), _EXPORT),
    (b"\x7fELF", _("a program"), _EXPORT),
    (b"MZ", _("a program"), _EXPORT),
    (b"\x80\x02", _("a Python pickle"), _EXPORT),
    (b"\x80\x04", _("a Python pickle"), _EXPORT),
    (b"\x80\x05", _("a Python pickle"), _EXPORT),
    (b"\x89HDF", _("an HDF5 file"), _EXPORT),
    (b"\xd0\xcf\x11\xe0", _("an old Office document"), _EXPORT),
)
ALONE = frozenset(
    {"text", "prompt", "question", "query", "instruction", "problem", "input"}
    | {"messages", "conversation", "conversations", "completion"}
)
"""Names of columns that make a header also where they stand alone."""
_ALONE_BYTES = frozenset(name.encode() for name in ALONE)
WRAPPER = re.compile(
    r'\{\s*((?:"[^"\\]{1,100}"\s*:\s*(?:"[^"\\]{0,1000}"|[-+.\deE]{1,40}|true|false|null)\s*,\s*){0,20})'
    r'"(?:data|rows|examples|items|records|samples|train)"\s*:\s*\[\s*'
    r'(?=\{\s*"(?!role"|from"|content"|value"))'
)
"""An object that holds its rows as a list under one key, after a few plain values. Messages are no rows."""
_UTF = (
    (b"\xff\xfe\x00\x00", "UTF-32"),
    (b"\x00\x00\xfe\xff", "UTF-32"),
    (b"\xff\xfe", "UTF-16"),
    (b"\xfe\xff", "UTF-16"),
)


class Format(NamedTuple):
    """What a file is, and the sentences that say why."""

    name: Literal["jsonl", "json", "csv", "parquet"]
    evidence: list[str]


def open_regular(path: Path) -> BinaryIO:
    """Open a regular file for reading, never a device, pipe or folder. Raises ``DataError``."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as exc:
        raise DataError(sentence(_("The file cannot be opened: {reason}."), reason=os_reason(exc))) from exc
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise DataError(_("This is not a regular file."))
    return os.fdopen(descriptor, "rb")


def sniff(path: Path) -> Format:
    """The format of a dataset file. Raises ``DataError`` that names what the file is instead, and what to do."""
    with open_regular(path) as file:
        head = file.read(HEAD_BYTES)
    if not head:
        raise DataError(_("The file is empty."), hint=_("Upload a file with one JSON object per line."))
    if head.startswith(b"PAR1"):
        return Format("parquet", [sentence(_("The file begins with the parquet mark PAR1."))])
    for magic, name, hint in _MAGIC:
        if head.startswith(magic):
            raise DataError(
                sentence(_("The file is {name}, not JSON Lines or parquet."), name=sentence(name)), hint=hint
            )
    for mark, name in _UTF:
        if head.startswith(mark):
            raise DataError(sentence(_("The file is {name} text."), name=name), hint=_("Save it as UTF-8."))
    if b"\0" in head[:BINARY_HEAD_BYTES]:
        raise DataError(
            sentence(_("The file is binary: byte {byte} is NUL."), byte=head.index(0)),
            hint=_("Save it as JSON Lines in UTF-8, or as parquet."),
        )
    evidence: list[str] = [sentence(_("The file begins with text, not with the mark of a binary format."))]
    if head.startswith(b"\xef\xbb\xbf"):
        evidence.append(sentence(_("It has a UTF-8 byte order mark, which is skipped.")))
    if b"\r\n" in head:
        evidence.append(sentence(_("Its lines end in CRLF.")))
    return _text_container(head.removeprefix(b"\xef\xbb\xbf"), evidence)


def _text_container(head: bytes, evidence: list[str]) -> Format:
    """How rows are written in a text file."""
    first, _end, rest = head.lstrip().partition(b"\n")
    first = first.rstrip()
    if first.startswith(b"["):
        return Format("json", [*evidence, sentence(_("It begins with `[`: one JSON list."))])
    if first.startswith(b"{"):
        if WRAPPER.match(head.lstrip().decode(errors="replace")) and not rest.lstrip().startswith(b"{"):
            return Format("json", [*evidence, sentence(_("It is one JSON object that holds its rows in a list."))])
        if rest.strip() and (first == b"{" or first.endswith((b"{", b"[", b",", b":"))):
            evidence.append(sentence(_("It begins with `{` and spans several lines: JSON objects.")))
            return Format("json", evidence)
        return Format("jsonl", evidence)
    delimiter = delimiter_of(first.decode(errors="replace"))
    if delimiter and rest.strip():
        if first.strip().strip(b'"').lower() in _ALONE_BYTES:
            evidence.append(sentence(_("Its first line is the name of a column and nothing else: CSV of one column.")))
            return Format("csv", evidence)
        name = sentence({",": _("commas"), ";": _("semicolons"), "\t": _("tabs")}[delimiter])
        evidence.append(sentence(_("Its first line is a header of names between {name}: CSV."), name=name))
        return Format("csv", evidence)
    return Format("jsonl", evidence)


def delimiter_of(header: str) -> str | None:
    """What separates the names of a CSV header; a comma for one name of ``ALONE``; ``None`` when the line is none."""
    if header.strip().strip('"').lower() in ALONE:
        return ","
    for delimiter in (",", "\t", ";"):
        try:
            names = next(csv.reader([header], delimiter=delimiter, strict=True), [])
        except csv.Error:
            continue
        if len(names) > 1 and all(name.strip() and len(name) <= MAX_NAME_CHARS for name in names):
            return delimiter
    return None
