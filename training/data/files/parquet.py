"""Stream parquet files with a cap on what they decode to.

A parquet footer cannot be trusted (10 MB of run-length codes can decode to 100 GB), so the file is decoded twice: once
only to count decoded bytes and rows, batch by batch, and then to read the rows. The cap on decoded bytes is the smaller
of 2 GB and 100 × file size + 64 MB: real text compresses at most some 10 to 20 times, and small files keep 64 MB.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from training.data.facts import Ignored
from training.data.files.sniff import open_regular
from training.data.limits import (
    MAX_COLUMNS,
    MAX_PARQUET_LEAVES,
    PARQUET_ALLOWANCE_BYTES,
    PARQUET_DECODED_BYTES,
    PARQUET_RATIO,
)
from training.data.problems import RowError
from training.data.raw import Raw
from training.data.strict import check_tree, strict_loads, usable
from training.errors import DataError
from training.words import _, sentence

if TYPE_CHECKING:
    from pyarrow.parquet import ParquetFile

BATCH_ROWS = 256
JSON_COLUMNS = b"tiltyard.json"
"""Key of the file's metadata under which our writer lists the fields that it stored as JSON text."""


def decoded_cap(file_bytes: int) -> int:
    """Bytes that a parquet file of this size may decode to."""
    return min(PARQUET_DECODED_BYTES, PARQUET_RATIO * file_bytes + PARQUET_ALLOWANCE_BYTES)


def measure(path: Path, max_rows: int) -> int:
    """Decoded bytes of the file; stops early once it has more than ``max_rows`` rows. Raises ``DataError``."""
    with _opened(path) as file:
        if len(file.schema_arrow.names) > MAX_COLUMNS or file.metadata.num_columns > MAX_PARQUET_LEAVES:
            raise DataError(sentence(_("The file has too many columns; {limit} are allowed."), limit=MAX_COLUMNS))
        cap = decoded_cap(os.path.getsize(path))
        decoded = rows = 0
        for batch in file.iter_batches(batch_size=BATCH_ROWS, use_threads=False):
            decoded += batch.nbytes + sum(_repeated(column) for column in batch.columns)
            rows += batch.num_rows
            if decoded > cap:
                raise DataError(
                    sentence(
                        _("The file decodes to more than {limit} MB, far more than its size allows."), limit=cap >> 20
                    ),
                    hint=_("Split it into smaller files, or upload it as JSON Lines."),
                )
            if rows > max_rows:
                break
        return decoded


def _repeated(column: Any) -> int:
    """Bytes of texts that a dictionary holds once and the rows many times; 0 for any other column."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not pa.types.is_dictionary(column.type) or column.type.value_type.id not in _text_types():
        return 0
    lengths = pc.binary_length(column.dictionary)
    return int(pc.sum(pc.take(lengths, column.indices)).as_py() or 0)


def _text_types() -> set[int]:
    import pyarrow as pa

    return {kind.id for kind in (pa.string(), pa.large_string(), pa.binary(), pa.large_binary())}


def columns(path: Path) -> list[str]:
    """The names of the top-level columns. Raises ``DataError``."""
    with _opened(path) as file:
        return list(file.schema_arrow.names)


def read_values(path: Path) -> Iterator[Raw]:
    """Yield each row, numbered from 1. Call ``measure`` first. Raises ``DataError``."""
    number = decoded = 0
    with _opened(path) as file:
        as_text = json_columns(file.schema_arrow.metadata or {})
        for batch in file.iter_batches(batch_size=BATCH_ROWS, use_threads=False):
            share = batch.nbytes // max(1, batch.num_rows)
            for value in batch.to_pylist():
                number += 1
                decoded += share
                try:
                    value, ignored = _checked(value)
                    for path_of in as_text:
                        _decode_at(value, path_of)
                    yield Raw(number, decoded, value, ignored=ignored)
                except RowError as exc:
                    yield Raw(number, decoded, None, exc)


def _checked(value: dict[str, Any]) -> tuple[dict[str, Any], tuple[Ignored, ...]]:
    try:
        check_tree(value)
    except RowError as exc:
        return usable(value, exc)
    return value, ()


def json_columns(metadata: dict[bytes, bytes]) -> list[list[str]]:
    """Which fields our own writer stored as JSON text, as paths of names."""
    try:
        paths = json.loads(metadata.get(JSON_COLUMNS, b"[]"))
    except ValueError:
        return []
    is_usable = isinstance(paths, list) and all(
        isinstance(path, list) and path and all(isinstance(name, str) for name in path) for path in paths
    )
    return paths if is_usable else []


def _decode_at(value: Any, path: list[str]) -> None:
    for name in path[:-1]:
        value = value.get(name) if isinstance(value, dict) else None
    if isinstance(value, dict) and isinstance(value.get(path[-1]), str):
        value[path[-1]] = strict_loads(value[path[-1]])


@contextmanager
def _opened(path: Path) -> Iterator[ParquetFile]:
    """The file opened by pyarrow, its errors as ``DataError``."""
    import pyarrow as pa  # slow to import, and only parquet needs it
    import pyarrow.parquet as pq

    pa.set_cpu_count(1)
    pa.set_memory_pool(pa.system_memory_pool())
    with open_regular(path) as source:
        try:
            with closing(pq.ParquetFile(source, pre_buffer=False)) as file:
                yield file
        except pa.ArrowMemoryError as exc:
            raise MemoryError from exc
        except (pa.ArrowException, OSError, ValueError, OverflowError) as exc:
            # pyarrow's own texts can echo data, so only their kind is told
            raise DataError(
                sentence(
                    _("The parquet file is damaged: {error} while reading it."),
                    error=type(exc).__name__,
                )
            ) from exc
