"""The kind of a file and the encoding of its text, both read from its bytes and never from its name."""

from __future__ import annotations

import codecs
import csv
import json
import os
import re
import stat
from pathlib import Path
from typing import Any, BinaryIO, Literal, NamedTuple

from training.data.problems import MAX_LINE_BYTES, RowError
from training.data.strict import check_tree
from training.errors import DataError
from training.plain import os_reason
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
"""Names of columns that make a header also where they are alone."""
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
    """The kind of a file, and the sentences that say why."""

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
    """The separator of the names of a CSV header; a comma for one name of ``ALONE``; ``None`` when the line is none."""
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


# Which encoding a table's text is in: UTF-8, or GB18030 (with GBK and GB2312), as Chinese spreadsheets save CSV.

UTF8, GB18030 = "utf-8", "gb18030"
_PIECE_BYTES = 1 << 20
_USUAL_FIRST, _USUAL_LAST = 0xB0, 0xD7
"""Lead bytes of the 3,755 most common characters of GB2312; a text of another encoding that is read so has few."""
_PUNCTUATION = 0xA1A1, 0xA3FE
"""Codes of GB2312's punctuation and full-width letters."""


class Guess(NamedTuple):
    """An encoding and, where it is not UTF-8, how many of the text's characters are common Chinese ones."""

    encoding: str
    characters: int = 0
    common: int = 0


def guess(path: Path) -> Guess:
    """UTF-8 unless the whole file is valid GB18030, not UTF-8, and most of what is not ASCII is common Chinese.

    One broken byte in a UTF-8 file does not make it GB18030: its other lines are valid UTF-8 then.
    """
    if _decodes(path, UTF8) or not _decodes(path, GB18030):
        return Guess(UTF8)
    characters = common = lines = utf8_lines = 0
    with open_regular(path) as file:
        while line := file.readline(_PIECE_BYTES):
            if not line.isascii():
                marks = [mark for mark in line.decode(GB18030, "replace") if not mark.isascii()]
                lines, utf8_lines = lines + 1, utf8_lines + _is_utf8(line)
                characters, common = characters + len(marks), common + sum(map(_is_common, marks))
    is_chinese = characters and common * 2 >= characters and utf8_lines * 2 < lines
    return Guess(GB18030, characters, common) if is_chinese else Guess(UTF8)


def _decodes(path: Path, encoding: str) -> bool:
    decoder = codecs.getincrementaldecoder(encoding)()
    try:
        with open_regular(path) as file:
            while piece := file.read(_PIECE_BYTES):
                decoder.decode(piece)
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    return True


def _is_utf8(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True


def _is_common(mark: str) -> bool:
    code = mark.encode(GB18030, "replace")
    if len(code) != 2:
        return False
    is_character = _USUAL_FIRST <= code[0] <= _USUAL_LAST and code[1] >= 0xA1
    return is_character or _PUNCTUATION[0] <= int.from_bytes(code, "big") <= _PUNCTUATION[1]


# --- Encode ---------------------------------------------------------------------------------------------------------
# A row as a line of JSON that every reader here takes again.

to_json = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode


def encoded(normal: dict[str, Any], *, known: bool = False) -> str:
    """The line of a row. Raises ``RowError`` where normalising made it break a limit.

    ``known``: nothing of it was made here, so that what passed the reader needs no second look.
    """
    if not known:
        check_tree(normal)
    line = to_json(normal) + "\n"
    if len(line) > MAX_LINE_BYTES // 4 and len(line.encode()) > MAX_LINE_BYTES:
        raise RowError("row_long", limit=MAX_LINE_BYTES >> 20)
    return line
