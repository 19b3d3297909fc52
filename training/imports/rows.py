"""Rows of JSON Lines and parquet files, streamed.

As for datasets (``training.data``), what PostgreSQL cannot store or what hides something is refused with its line: NUL,
lone surrogates, keys that occur twice, deep nesting. Other than there a text may be as long as its line, because a
rollout is one text, and NaN of a rollout is read as missing, because that is how trainers write it.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from training.data.files import parquet
from training.data.files.sniff import open_regular
from training.data.files.text import BOM, decoded
from training.data.problems import MAX_COLUMNS, MAX_DEPTH, MAX_LINE_BYTES, RowError
from training.errors import DataError
from training.imports.base import BadRow, shown
from training.plain import json_reason
from training.words import _, sentence

_SURROGATE = re.compile("[\ud800-\udfff]")
BATCH_ROWS = 64


class Row(NamedTuple):
    """One decoded row, or why it could not be decoded."""

    line: int
    offset: int
    value: dict[str, Any] | None
    reason: str = ""


def read_json_lines(path: Path, *, all_numbers: bool = False) -> Iterator[Row]:
    """Yield a row for each line that is not blank. Raises ``DataError`` when the file cannot be opened.

    With ``all_numbers``, for figures, NaN and infinite numbers stay what they are, also those that are too large;
    without it NaN is missing, and a number that is too large makes the row unusable.
    """
    decoder = _ALL_NUMBERS if all_numbers else _DECODER
    with open_regular(path) as file:
        number = offset = 0
        while line := file.readline(MAX_LINE_BYTES + 2):
            number, start, ended = number + 1, offset, line.endswith(b"\n")
            offset += len(line)
            if not ended and len(line) > MAX_LINE_BYTES:
                offset += _skip_line(file)
                yield Row(number, offset, None, RowError("line_long", limit=MAX_LINE_BYTES >> 20).sentence)
                continue
            if number == 1:
                line = line.removeprefix(BOM)
            if not line.strip():
                continue
            try:
                yield Row(number, offset, _object(line, start, decoder))
            except (BadRow, RowError) as exc:
                is_cut = not ended and isinstance(exc, RowError) and exc.code == "json"
                yield Row(
                    number,
                    offset,
                    None,
                    sentence(_("the file ends in the middle of this line")) if is_cut else exc.sentence,
                )


def _skip_line(file: Any) -> int:
    skipped = 0
    while rest := file.readline(1 << 20):
        skipped += len(rest)
        if rest.endswith(b"\n"):
            break
    return skipped


def _object(line: bytes, start: int, decoder: json.JSONDecoder) -> dict[str, Any]:
    try:
        value = decoder.decode(decoded(line, start))
    except RecursionError:
        raise RowError("deep", limit=MAX_DEPTH) from None
    except json.JSONDecodeError as exc:
        detail = sentence(_("{problem} at character {place}"), problem=json_reason(exc), place=exc.pos + 1)
        raise RowError("json", detail=detail) from None
    except (BadRow, RowError):
        raise
    except ValueError:
        raise RowError("digits") from None
    if not isinstance(value, dict):
        raise RowError("not_object")
    check(value)
    return value


def check(value: Any) -> None:
    """Refuse what cannot be stored, at any depth. Raises ``BadRow`` or ``RowError``; does not recurse."""
    stack: list[tuple[Any, int]] = [(value, 1)]
    while stack:
        node, depth = stack.pop()
        if isinstance(node, str):
            _check_text(node)
        elif isinstance(node, dict | list):
            if depth > MAX_DEPTH:
                raise RowError("deep", limit=MAX_DEPTH)
            if isinstance(node, dict):
                if depth == 1 and len(node) > MAX_COLUMNS:
                    raise RowError("columns", count=len(node), limit=MAX_COLUMNS)
                stack += [(key, depth + 1) for key in node]
            stack += [(child, depth + 1) for child in (node.values() if isinstance(node, dict) else node)]
        elif node is not None and not isinstance(node, bool | int | float):
            raise BadRow(sentence(_("holds a value of type {type}"), type=type(node).__name__))


def _check_text(text: str) -> None:
    if "\0" in text:
        raise RowError("nul")
    if not text.isascii() and _SURROGATE.search(text):
        raise RowError("surrogate")


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise RowError("key_twice", key=shown(twice))
    return result


def _float(text: str) -> float | None:
    value = float(text)
    if not math.isfinite(value):
        raise RowError("number_large")
    return value


_DECODER = json.JSONDecoder(object_pairs_hook=_pairs, parse_constant=lambda _name: None, parse_float=_float)
_ALL_NUMBERS = json.JSONDecoder(object_pairs_hook=_pairs)


def read_parquet(path: Path, max_rows: int) -> Iterator[Row]:
    """Yield each row, numbered from 1; offsets are decoded bytes. Raises ``DataError``, also for a bomb."""
    total = parquet.measure(path, max_rows)
    import pyarrow as pa
    import pyarrow.parquet as pq

    number = seen = 0
    with open_regular(path) as source:
        try:
            file = pq.ParquetFile(source, pre_buffer=False)
            for batch in file.iter_batches(batch_size=BATCH_ROWS, use_threads=False):
                share = batch.nbytes // max(1, batch.num_rows)
                for value in batch.to_pylist():
                    number, seen = number + 1, seen + share
                    yield _checked(number, min(seen, total), value)
        except pa.ArrowMemoryError as exc:
            raise MemoryError from exc
        except (pa.ArrowException, OSError, ValueError, OverflowError) as exc:
            raise DataError(
                sentence(_("The parquet file is damaged: {problem} while reading it."), problem=type(exc).__name__)
            ) from exc


def _checked(number: int, offset: int, value: dict[str, Any]) -> Row:
    try:
        check(value)
    except (BadRow, RowError) as exc:
        return Row(number, offset, None, exc.sentence)
    return Row(number, offset, value)


# --- Weights --------------------------------------------------------------------------------------------------------
# TRL's ``reward_weights``: its recorded completions hold each reward as it was, and the run summed them by weight.
#
# They are in the run's config (YAML, JSON, or what Weights & Biases keeps of it), which may be given with the other
# files. No YAML is parsed for it: the list is looked for.

MAX_BYTES = 256 << 10
MAX_WEIGHTS = 64
_LIST = re.compile(
    r"\breward_weights[\"']?\s{0,20}[:=]\s{0,20}(?:(?:desc:[^\n]{0,200}\n)?\s{0,20}[\"']?value[\"']?:\s{0,20})?"
    r"(?:\[([^\]]{1,2000})\]|((?:-[ \t]{1,8}[-+.\deE]{1,24}\s{1,20}){1,64}))"
)
KIND = "trl_config"


def weights_in(path: Path) -> list[float]:
    """The weights that a config names; none where it names none or is no text. Raises ``DataError`` for others."""
    with open_regular(path) as file:
        data = file.read(MAX_BYTES)
    found = _LIST.search(data.decode("utf-8", "replace") + "\n")
    return weights_of(found[1] or found[2]) if found else []


def weights_of(text: str) -> list[float]:
    """Weights in one text, with commas or line ends between them. Raises ``DataError``."""
    try:
        weights = [float(part.strip().removeprefix("- ")) for part in re.split(r"[,\n]", text) if part.strip()]
    except ValueError:
        weights = [math.nan]
    if not weights or len(weights) > MAX_WEIGHTS or not all(map(math.isfinite, weights)):
        raise DataError(_("`reward_weights` is not a list of numbers."), hint=_("Write it as 1.0, 0.5."))
    return weights
