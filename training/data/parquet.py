"""Stream conversation parquet files with a cap on what they decode to.

A parquet footer cannot be trusted (10 MB of run-length codes can decode to 100 GB), so the file is decoded twice: once
only to count decoded bytes and rows, batch by batch, and then to read the rows. The cap on decoded bytes is the smaller
of 2 GB and 100 × file size + 64 MB: real text compresses at most some 10 to 20 times, and small files keep 64 MB.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from training.data.jsonl import Record
from training.data.limits import (
    MAX_COLUMNS,
    MAX_PARQUET_LEAVES,
    PARQUET_ALLOWANCE_BYTES,
    PARQUET_DECODED_BYTES,
    PARQUET_RATIO,
)
from training.data.schema import CONVERSATION_KEYS, RowError, check_tree, row_from_dict
from training.data.sniff import open_regular
from training.errors import DataError

if TYPE_CHECKING:
    from pyarrow.parquet import ParquetFile

BATCH_ROWS = 256


def decoded_cap(file_bytes: int) -> int:
    """Bytes that a parquet file of this size may decode to."""
    return min(PARQUET_DECODED_BYTES, PARQUET_RATIO * file_bytes + PARQUET_ALLOWANCE_BYTES)


def measure(path: Path, max_rows: int) -> int:
    """Decoded bytes of the file; stops early once it has more than ``max_rows`` rows. Raises ``DataError``."""
    with _opened(path) as file:
        if len(file.schema_arrow.names) > MAX_COLUMNS or file.metadata.num_columns > MAX_PARQUET_LEAVES:
            raise DataError(f"The file has too many columns; {MAX_COLUMNS} are allowed.")
        if not set(CONVERSATION_KEYS) & set(file.schema_arrow.names):
            raise DataError(
                "The file has no conversation column.",
                hint=f"Name one of its columns {' or '.join(CONVERSATION_KEYS)}.",
            )
        cap = decoded_cap(os.path.getsize(path))
        decoded = rows = 0
        for batch in file.iter_batches(batch_size=BATCH_ROWS, use_threads=False):
            decoded += batch.nbytes
            rows += batch.num_rows
            if decoded > cap:
                raise DataError(
                    f"The file decodes to more than {cap >> 20} MB, far more than its size allows.",
                    hint="Split it into smaller files, or upload it as JSON Lines.",
                )
            if rows > max_rows:
                break
        return decoded


def read_parquet(path: Path) -> Iterator[Record]:
    """Yield a record for each row, numbered from 1. Call ``measure`` first. Raises ``DataError``."""
    number = decoded = 0
    with _opened(path) as file:
        for batch in file.iter_batches(batch_size=BATCH_ROWS, use_threads=False):
            share = batch.nbytes // max(1, batch.num_rows)
            for raw in batch.to_pylist():
                number += 1
                decoded += share
                try:
                    check_tree(raw)
                    yield Record(number, decoded, row_from_dict(raw))
                except RowError as exc:
                    yield Record(number, decoded, None, str(exc))


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
            raise DataError(f"The parquet file is damaged: {type(exc).__name__} while reading it.") from exc
