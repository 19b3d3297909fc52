"""Which encoding a table's text is in: UTF-8, or GB18030 (with GBK and GB2312), as Chinese spreadsheets save CSV."""

from __future__ import annotations

import codecs
import json
from pathlib import Path
from typing import Any, NamedTuple

from training.data.files.sniff import open_regular
from training.data.limits import MAX_LINE_BYTES
from training.data.problems import RowError
from training.data.strict import check_tree

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
