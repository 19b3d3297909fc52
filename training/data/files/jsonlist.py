"""Stream the items of one JSON list, or one JSON object over several lines, in constant memory.

1. Bytes become text chunk by chunk; what is not UTF-8 becomes a lone surrogate, which no row may hold.
2. An item is decoded where it begins in the buffer; one that does not end there waits for the next chunk.
3. An item that can never be decoded is skipped by counting brackets outside of texts, so that the next one is found.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from training.data.files.sniff import open_regular
from training.data.files.strict import DECODER, check_decoded
from training.data.limits import MAX_DEPTH, MAX_LINE_BYTES
from training.data.problems import RowError
from training.data.raw import Raw
from training.words import _, told

CHUNK_BYTES = 1 << 18
_SPACE = re.compile(r"[ \t\r\n]*")
_IN_TEXT = re.compile(r'["\\]')
_OUTSIDE = re.compile(r'["\[\]{},]')
_ESCAPED = re.compile("[\udc80-\udcff]")


class _Buffer:
    """The text that has been read and not yet used, and where it stands in the file."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
        self.text, self.at, self.bytes, self.ended = "", 0, 0, False
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


def read_values(path: Path) -> Iterator[Raw]:
    """Yield a row for each item of the list. Raises ``DataError`` when the file cannot be opened."""
    with open_regular(path) as file:
        buffer = _Buffer(file)
        if buffer.peek() != "[":
            yield _item(buffer, 1)
            if buffer.peek():
                yield Raw(2, buffer.bytes, None, RowError("list_rest"))
            return
        buffer.at += 1
        yield from _items(buffer)


def _items(buffer: _Buffer) -> Iterator[Raw]:
    number = 0
    if buffer.peek() == "]":
        buffer.at += 1
    else:
        while True:
            number += 1
            item = _item(buffer, number)
            yield item
            if item.error is not None and item.error.code == "list_cut_off":
                return
            following = buffer.peek()
            if following == "]":
                buffer.at += 1
                break
            if following == ",":
                buffer.at += 1
                continue
            if not following:
                yield Raw(number + 1, buffer.bytes, None, RowError("list_cut_off"))
                return
            number += 1
            yield Raw(number, buffer.bytes, None, RowError("list_comma"))
            _skip(buffer)
            if buffer.peek() == "]":
                buffer.at += 1
                break
            buffer.at += 1
    if buffer.peek():
        yield Raw(number + 1, buffer.bytes, None, RowError("list_rest"))


def _item(buffer: _Buffer, number: int) -> Raw:
    """The item that begins next; afterwards the buffer stands behind it."""
    if not buffer.peek():
        return Raw(number, buffer.bytes, None, RowError("list_cut_off"))
    try:
        value = _decode(buffer)
    except RowError as exc:
        whole = _skip(buffer)
        return Raw(number, buffer.bytes, None, exc if whole else RowError("list_cut_off"))
    if not isinstance(value, dict):
        return Raw(number, buffer.bytes, None, RowError("item_not_object"))
    return Raw(number, buffer.bytes, value)


def _decode(buffer: _Buffer) -> Any:
    """Decode the item at the buffer's place and step behind it. Raises ``RowError`` and then stays before it."""
    while True:
        try:
            value, end = DECODER.raw_decode(buffer.text, buffer.at)
        except RecursionError:
            raise RowError("deep", limit=MAX_DEPTH) from None
        except json.JSONDecodeError as exc:
            size = len(buffer.text) - buffer.at
            if size > MAX_LINE_BYTES:
                raise RowError("row_long", limit=MAX_LINE_BYTES >> 20) from None
            line, column = buffer.place(exc.pos)
            if _may_go_on(buffer, exc) and buffer.more():
                continue
            raise RowError(
                "json",
                detail=told(
                    _("{problem} at line {line}, column {column} of the file"),
                    problem=told(exc.msg),
                    line=line,
                    column=column,
                ),
            ) from None
        except RowError:
            raise
        except ValueError:
            raise RowError("digits") from None
        if end == len(buffer.text) and buffer.more():
            continue  # a number could go on
        text = buffer.text[buffer.at : end]
        _check(value, text)
        buffer.at = end
        return value


def _may_go_on(buffer: _Buffer, exc: json.JSONDecodeError) -> bool:
    """Whether the error may only mean that the item goes on in the next chunk."""
    return not buffer.ended and (len(buffer.text) - exc.pos < 16 or exc.msg.startswith("Unterminated string"))


def _check(value: Any, text: str) -> None:
    if len(text) > MAX_LINE_BYTES // 4 and len(text.encode(errors="surrogateescape")) > MAX_LINE_BYTES:
        raise RowError("row_long", limit=MAX_LINE_BYTES >> 20)
    if not text.isascii() and _ESCAPED.search(text):
        raise RowError("utf8_row")
    check_decoded(value, text)


def _skip(buffer: _Buffer) -> bool:
    """Go to the comma or bracket that ends the item here; ``False`` when the file ends first."""
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
