"""Rows of text files, streamed in constant memory: JSON Lines, lists of JSON objects, CSV and TSV."""

from __future__ import annotations

import codecs
import csv
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from training.data.files.sniff import UTF8, WRAPPER, delimiter_of, open_regular
from training.data.problems import MAX_COLUMNS, MAX_DEPTH, MAX_LINE_BYTES, Ignored, RowError
from training.data.schema import Raw
from training.data.strict import DECODER, LENIENT, check_decoded, check_tree, row_loads, usable
from training.errors import DataError
from training.plain import csv_reason, json_reason
from training.words import _, sentence

# Stream JSON Lines in constant memory: one JSON object per line, UTF-8, BOM and CRLF accepted.

BOM = b"\xef\xbb\xbf"


def read_values_lines(path: Path) -> Iterator[Raw]:
    """Yield a row for each line that is not blank. Raises ``DataError`` when the file cannot be opened."""
    with open_regular(path) as file:
        number = offset = 0
        while line := file.readline(MAX_LINE_BYTES + 2):
            number += 1
            start, ended = offset, line.endswith(b"\n")
            offset += len(line)
            if not ended and len(line) > MAX_LINE_BYTES:
                while rest := file.readline(MAX_LINE_BYTES):
                    offset += len(rest)
                    if rest.endswith(b"\n"):
                        break
                yield Raw(number, offset, None, RowError("line_long", limit=MAX_LINE_BYTES >> 20))
                continue
            if number == 1 and line.startswith(BOM):
                line, start = line[len(BOM) :], len(BOM)
            if not line.strip():
                continue
            try:
                text = decoded(line, start).strip()
                value, ignored = _parse_object(text)
                yield Raw(number, offset, value, None, "" if "\r" in text or ignored else text, ignored)
            except RowError as exc:
                yield Raw(number, offset, None, RowError("cut_off") if not ended and exc.code == "json" else exc)


def _parse_object(text: str) -> tuple[dict[str, Any], tuple[Ignored, ...]]:
    """One line as an object, and what was kept out of it. Raises ``RowError``."""
    value, ignored = row_loads(text)
    if not isinstance(value, dict):
        raise RowError("not_object")
    return value, ignored


def decoded(line: bytes, start: int) -> str:
    """Bytes from byte ``start`` of the file as text. Raises ``RowError``."""
    if b"\0" in line:
        raise RowError("nul_byte", byte=start + line.index(0))
    try:
        return line.decode()
    except UnicodeDecodeError as exc:
        raise RowError("utf8", byte=start + exc.start) from None


# Stream JSON objects in constant memory: items of one list, objects one after the other, or rows under `data`.
#
# 1. Bytes become text chunk by chunk; what is not UTF-8 becomes a lone surrogate, which no row may hold.
# 2. An item is decoded where it begins in the buffer; one that does not end there waits for the next chunk.
# 3. An item that can never be decoded is skipped by counting brackets outside of texts, so that the next one is found.
# 4. An object such as ``{"version": 1, "data": [{…}, …]}`` is a wrapper: its items are the rows, its other keys are
#    reported as ignored.

CHUNK_BYTES = 1 << 18
_SPACE = re.compile(r"[ \t\r\n]*")
_IN_TEXT = re.compile(r'["\\]')
_OUTSIDE = re.compile(r'["\[\]{},]')
_KEY = re.compile(r'"([^"\\]{1,100})"\s*:')
_ESCAPED = re.compile("[\udc80-\udcff]")


class _Buffer:
    """The text that has been read and not yet used, and its place in the file."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
        self.text, self.at, self.bytes, self.ended = "", 0, 0, False
        self.items = 0
        """Items that were begun."""
        self._line, self._column = 1, 1
        self.more()
        if self.text.startswith("\ufeff"):
            self.at = 1

    def more(self) -> bool:
        """Read the next chunk; whether there was one."""
        if self.ended:
            return False
        chunk = self._file.read(CHUNK_BYTES)
        self.ended = not chunk
        self._forget()
        self.text += self._decoder.decode(chunk, final=self.ended)
        self.bytes += len(chunk)
        return bool(chunk)

    def _forget(self) -> None:
        self._line, self._column = self.place(self.at)
        self.text, self.at = self.text[self.at :], 0

    def place(self, position: int) -> tuple[int, int]:
        """Line and column of a position of the buffer."""
        lines = self.text.count("\n", 0, position)
        if not lines:
            return self._line, self._column + position
        return self._line + lines, position - self.text.rfind("\n", 0, position)

    def peek(self) -> str:
        """The next character that is no space, which then is the next one; nothing at the end."""
        while True:
            self.at = _SPACE.match(self.text, self.at).end()  # type: ignore[union-attr]
            if self.at < len(self.text):
                return self.text[self.at]
            if not self.more():
                return ""


def read_values_list(path: Path) -> Iterator[Raw]:
    """Yield a row for each item or object. Raises ``DataError`` when the file cannot be opened."""
    with open_regular(path) as file:
        buffer = _Buffer(file)
        if buffer.peek() == "[":
            buffer.at += 1
            yield from _items(buffer)
            yield from _rest(buffer)
        elif found := WRAPPER.match(buffer.text, buffer.at):
            yield from _wrapped(buffer, found)
            yield from _rest(buffer)
        else:
            yield from _objects(buffer)


def _rest(buffer: _Buffer) -> Iterator[Raw]:
    if buffer.peek():
        yield Raw(buffer.items + 1, buffer.bytes, None, RowError("list_rest"))


def _objects(buffer: _Buffer) -> Iterator[Raw]:
    """Objects one after the other, with or without commas between them."""
    while True:
        item = _item(buffer, _skip_object)
        yield item
        if item.error is not None and item.error.code == "list_cut_off":
            return
        if buffer.peek() == ",":
            buffer.at += 1
        if buffer.peek() != "{":
            break
    yield from _rest(buffer)


def _wrapped(buffer: _Buffer, found: re.Match[str]) -> Iterator[Raw]:
    """The items under the wrapper's list. Its other keys are reported with the last of them."""
    ignored = [Ignored(key, "beside") for key in _KEY.findall(found[1])]
    buffer.at = found.end()
    last: Raw | None = None
    for item in _items(buffer):
        if last is not None:
            yield last
        last = item
    try:
        while buffer.peek() == ",":
            buffer.at += 1
            buffer.peek()
            ignored.append(Ignored(str(_decode(buffer, DECODER)[0])[:200], "beside"))
            if buffer.peek() == ":":
                buffer.at += 1
                buffer.peek()
                _decode(buffer, LENIENT)
    except RowError:
        pass  # what cannot be read is reported as the rest
    if buffer.peek() == "}":
        buffer.at += 1
    if last is not None:
        yield last._replace(ignored=(*last.ignored, *ignored))


def _items(buffer: _Buffer) -> Iterator[Raw]:
    """The items of a list, behind whose opening bracket the buffer is; afterwards it is behind the list."""
    if buffer.peek() == "]":
        buffer.at += 1
        return
    while True:
        item = _item(buffer, _skip)
        yield item
        if item.error is not None and item.error.code == "list_cut_off":
            return
        following = buffer.peek()
        if following == "]":
            buffer.at += 1
            return
        if following == ",":
            buffer.at += 1
            continue
        buffer.items += 1
        if not following:
            yield Raw(buffer.items, buffer.bytes, None, RowError("list_cut_off"))
            return
        yield Raw(buffer.items, buffer.bytes, None, RowError("list_comma"))
        _skip(buffer)
        if buffer.peek() == "]":
            buffer.at += 1
            return
        buffer.at += 1


def _item(buffer: _Buffer, skip: Callable[[_Buffer], bool]) -> Raw:
    """The item that begins next; afterwards the buffer is behind it. ``skip`` goes behind one that is broken."""
    buffer.items += 1
    number = buffer.items
    if not buffer.peek():
        return Raw(number, buffer.bytes, None, RowError("list_cut_off"))
    try:
        value, text, error = _decoded(buffer)
    except RowError as exc:
        whole = skip(buffer)
        return Raw(number, buffer.bytes, None, exc if whole else RowError("list_cut_off"))
    try:
        value, ignored = _checked(value, text, error)
    except RowError as exc:
        return Raw(number, buffer.bytes, None, exc)
    if not isinstance(value, dict):
        return Raw(number, buffer.bytes, None, RowError("item_not_object"))
    return Raw(number, buffer.bytes, value, ignored=ignored)


def _decoded(buffer: _Buffer) -> tuple[Any, str, RowError | None]:
    """Value and text of the next item, and what is wrong with it where it holds NaN. Raises ``RowError``."""
    try:
        return *_decode(buffer, DECODER), None
    except RowError as exc:
        if exc.code != "constant":
            raise
        return *_decode(buffer, LENIENT), exc


def _checked(value: Any, text: str, error: RowError | None) -> tuple[Any, tuple[Ignored, ...]]:
    try:
        if error is not None:
            raise error
        _check(value, text)
    except RowError as exc:
        if exc.code not in ("constant", "deep"):
            raise
        return usable(value, exc)
    return value, ()


def _decode(buffer: _Buffer, decoder: json.JSONDecoder) -> tuple[Any, str]:
    """The value at the buffer's place and its text; the buffer then is behind it.

    Raises ``RowError`` and then stays before it.
    """
    while True:
        try:
            value, end = decoder.raw_decode(buffer.text, buffer.at)
        except RecursionError:
            raise RowError("deep", limit=MAX_DEPTH) from None
        except json.JSONDecodeError as exc:
            size = len(buffer.text) - buffer.at
            if size > MAX_LINE_BYTES:
                raise RowError("row_long", limit=MAX_LINE_BYTES >> 20) from None
            line, column = buffer.place(exc.pos)
            if _may_continue(buffer, exc) and buffer.more():
                continue
            raise RowError(
                "json",
                detail=sentence(
                    _("{problem} at line {line}, column {column} of the file"),
                    problem=json_reason(exc),
                    line=line,
                    column=column,
                ),
            ) from None
        except RowError:
            raise
        except ValueError:
            raise RowError("digits") from None
        if end == len(buffer.text) and buffer.more():
            continue  # a number could continue
        text = buffer.text[buffer.at : end]
        buffer.at = end
        return value, text


def _may_continue(buffer: _Buffer, exc: json.JSONDecodeError) -> bool:
    """Whether the error may only mean that the item continues in the next chunk."""
    return not buffer.ended and (len(buffer.text) - exc.pos < 16 or exc.msg.startswith("Unterminated string"))


def _check(value: Any, text: str) -> None:
    if len(text) > MAX_LINE_BYTES // 4 and len(text.encode(errors="surrogateescape")) > MAX_LINE_BYTES:
        raise RowError("row_long", limit=MAX_LINE_BYTES >> 20)
    if not text.isascii() and _ESCAPED.search(text):
        raise RowError("utf8_row")
    check_decoded(value, text)


def _skip_object(buffer: _Buffer) -> bool:
    """Go behind the bracket that closes the object here; ``False`` when the file ends first."""
    return _skip(buffer, alone=True)


def _skip(buffer: _Buffer, alone: bool = False) -> bool:
    """Go to the comma or bracket that ends the item here, or behind it where it is ``alone``.

    ``False`` when the file ends first.
    """
    depth, in_text = 0, False
    while True:
        found = (_IN_TEXT if in_text else _OUTSIDE).search(buffer.text, buffer.at)
        if found is None or (found[0] == "\\" and found.end() == len(buffer.text)):
            buffer.at = len(buffer.text) if found is None else found.start()
            if not buffer.more():
                return False
            continue
        mark, buffer.at = found[0], found.end()
        if in_text:
            in_text = mark != '"'
            buffer.at += mark == "\\"
        elif mark == '"':
            in_text = True
        elif mark in "[{":
            depth += 1
        elif depth == 0 and mark in ",]":
            buffer.at -= 1
            return True
        elif depth and mark in "]}":
            depth -= 1
            if alone and not depth:
                return True


# Stream a CSV or TSV file in constant memory: each row an object of its header's names, every value text.


class _Lines:
    """The lines of the file as text. What cannot be decoded becomes a lone surrogate, which no row may hold."""

    def __init__(self, file: BinaryIO, encoding: str) -> None:
        self.file, self.encoding = file, encoding
        self.bytes = self.number = 0
        self.size = 0
        """Bytes of the row that is being read."""

    def __iter__(self) -> _Lines:
        return self

    def __next__(self) -> str:
        line = self.file.readline(MAX_LINE_BYTES)
        if not line:
            raise StopIteration
        self.bytes += len(line)
        self.size += len(line)
        self.number += 1
        if self.size > MAX_LINE_BYTES:
            raise csv.Error("the row is too long; is a quote never closed?")
        return line.decode(self.encoding, errors="surrogateescape")


def read_values_csv(path: Path, encoding: str = UTF8) -> Iterator[Raw]:
    """Yield a row for each row below the header. Raises ``DataError`` for a file without a usable header."""
    csv.field_size_limit(MAX_LINE_BYTES)  # a long field must not end a row in its middle; it is judged with the others
    with open_regular(path) as file:
        first = file.readline(MAX_LINE_BYTES)
        delimiter = delimiter_of(first.removeprefix(BOM).decode(encoding, errors="replace"))
        file.seek(len(BOM) if first.startswith(BOM) else 0)
        lines = _Lines(file, encoding)
        reader = csv.reader(lines, delimiter=delimiter or ",", strict=True)
        header = _header(reader)
        while True:
            lines.size = 0
            line = lines.number + 1
            try:
                cells = next(reader)
            except StopIteration:
                return
            except csv.Error as exc:
                yield Raw(line, lines.bytes, None, RowError("csv", detail=csv_reason(exc)))
                continue
            if cells:
                yield _row(header, cells, line, lines.bytes)


def _header(reader: Iterator[list[str]]) -> list[str]:
    try:
        header = next(reader)
    except (StopIteration, csv.Error) as exc:
        raise DataError(
            sentence(_("The first line is not the header of a CSV file: {reason}."), reason=csv_reason(exc))
        ) from exc
    names = [name.strip() for name in header]
    if len(names) > MAX_COLUMNS:
        raise DataError(
            sentence(
                _("The file has {count} columns; {limit} are allowed."),
                count=len(names),
                limit=MAX_COLUMNS,
            )
        )
    if len(set(names)) != len(names) or not all(names):
        raise DataError(_("Two columns of the header have one name, or one has none."), hint=_("Name every column."))
    return names


def _row(header: list[str], cells: list[str], line: int, offset: int) -> Raw:
    if len(cells) != len(header):
        return Raw(line, offset, None, RowError("csv_cells", count=len(cells), expected=len(header)))
    value = dict(zip(header, cells, strict=True))
    try:
        check_tree(value)
    except RowError as exc:
        return Raw(line, offset, None, RowError("utf8_row") if exc.code == "surrogate" else exc)
    return Raw(line, offset, value)
