"""Stream parquet files with a cap on what they decode to.

A parquet footer cannot be trusted (10 MB of run-length codes can decode to 100 GB), so the file is decoded twice: once
only to count decoded bytes and rows, batch by batch, and then to read the rows. The cap on decoded bytes is the smaller
of 2 GB and 100 × file size + 64 MB: real text compresses at most some 10 to 20 times, and small files keep 64 MB.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from training.data.files.sniff import open_regular, to_json
from training.data.problems import (
    MAX_COLUMNS,
    MAX_DEPTH,
    MAX_PARQUET_LEAVES,
    PARQUET_ALLOWANCE_BYTES,
    PARQUET_DECODED_BYTES,
    PARQUET_RATIO,
    Ignored,
    RowError,
)
from training.data.schema import Raw
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
    """The fields that our own writer stored as JSON text, as paths of names."""
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
            # pyarrow's own texts can echo data, so only their kind is given
            raise DataError(
                sentence(
                    _("The parquet file is damaged: {error} while reading it."),
                    error=type(exc).__name__,
                )
            ) from exc


# --- Parquet writer -------------------------------------------------------------------------------------------------
# Write rows as parquet so that they are read back with the same values.
#
# Parquet has one type for each field. The rows are gone through once to find each field's type, and then written. A
# field whose values have no common type (a scenario whose keys differ from row to row, an empty object) is stored as
# JSON text, and the file's metadata name it, so that our reader decodes it again. In verl's own columns a key that some
# rows lack is null there instead, because verl reads them as objects.

BATCH_CHARS = 16 << 20
INT64 = 1 << 63
OPEN_STRUCTS = {(), ("extra_info",), ("reward_model",), ("extra_info", "interaction_kwargs"), ("prompt", "[]")}
"""Objects in which rows may lack keys: the row itself, verl's own, and messages."""
JSON, NULL = "json", "null"
Path_ = tuple[str, ...]
Shape = Any  # "null", "bool", "int", "float", "text", "json", ("list", Shape) or {key: Shape}


def shape_of(value: Any, path: Path_ = ()) -> Shape:
    """The type of one value."""
    if value is None:
        return NULL
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int):
        return "int" if -INT64 <= value < INT64 else JSON
    if isinstance(value, float):
        return "float"
    if isinstance(value, str):
        return "text"
    if len(path) > MAX_DEPTH:
        return JSON
    if isinstance(value, list):
        inner: Shape = NULL
        for item in value:
            inner = merged(inner, shape_of(item, (*path, "[]")), (*path, "[]"))
        return JSON if _holds_json(inner) else ("list", inner)
    if not value and path not in OPEN_STRUCTS:
        return JSON
    return {key: shape_of(item, (*path, key)) for key, item in value.items()}


def merged(one: Shape, other: Shape, path: Path_) -> Shape:
    """A type for both, ``json`` where there is none."""
    if one == other or other == NULL:
        return one
    if one == NULL:
        return other
    if isinstance(one, tuple) and isinstance(other, tuple):
        inner = merged(one[1], other[1], (*path, "[]"))
        return JSON if _holds_json(inner) else ("list", inner)
    if isinstance(one, dict) and isinstance(other, dict) and (one.keys() == other.keys() or path in OPEN_STRUCTS):
        keys = [*one, *(key for key in other if key not in one)]
        return {key: merged(one.get(key, NULL), other.get(key, NULL), (*path, key)) for key in keys}
    return JSON


def _holds_json(shape: Shape) -> bool:
    """Whether a type has JSON text inside: below a list no place can be named, so the list itself becomes text."""
    if isinstance(shape, dict):
        return any(_holds_json(inner) for inner in shape.values())
    return shape == JSON or (isinstance(shape, tuple) and _holds_json(shape[1]))


def json_paths(shape: Shape, path: Path_ = ()) -> list[list[str]]:
    """The paths of JSON texts."""
    if shape == JSON:
        return [list(path)]
    if isinstance(shape, dict):
        return [found for key, inner in shape.items() for found in json_paths(inner, (*path, key))]
    return []


def write_parquet(path: Path, rows: Callable[[], Iterable[dict[str, Any]]]) -> int:
    """Write the rows, which are asked for twice; how many there were. Raises ``OSError``."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    shape: Shape = {}
    for row in rows():
        shape = merged(shape, shape_of(row), ())
    shape = _filled(shape)
    schema = pa.schema([pa.field(name, _arrow(inner)) for name, inner in shape.items()])
    if paths := json_paths(shape):
        schema = schema.with_metadata({JSON_COLUMNS: json.dumps(paths).encode()})
    count = 0
    temporary = path.with_name(path.name + ".part")
    with pq.ParquetWriter(temporary, schema) as writer:
        for batch in _batches(rows()):
            plain = [_fitted(row, shape) for row in batch]
            writer.write_table(pa.Table.from_pylist(plain, schema=schema))
            count += len(batch)
    temporary.replace(path)
    return count


def _filled(shape: Shape, path: Path_ = ()) -> Shape:
    """The type without empty objects, which parquet cannot hold: verl's ``extra_info`` gets an index that is null."""
    if not isinstance(shape, dict):
        return shape
    if not shape and path:
        return {"index": NULL} if path == ("extra_info",) else JSON
    return {key: _filled(inner, (*path, key)) for key, inner in shape.items()}


def _batches(rows: Iterable[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Rows in groups that fit into memory, however long a row is."""
    batch: list[dict[str, Any]] = []
    chars = 0
    for row in rows:
        batch.append(row)
        chars += len(str(row))
        if len(batch) == BATCH_ROWS or chars > BATCH_CHARS:
            yield batch
            batch, chars = [], 0
    if batch:
        yield batch


def _fitted(value: Any, shape: Shape) -> Any:
    """The value with JSON text where its type says so."""
    if shape == JSON:
        return to_json(value)
    if isinstance(shape, dict) and isinstance(value, dict):
        return {key: _fitted(value[key], inner) for key, inner in shape.items() if key in value}
    return value


def _arrow(shape: Shape) -> Any:
    import pyarrow as pa

    if isinstance(shape, tuple):
        return pa.list_(_arrow(shape[1]))
    if isinstance(shape, dict):
        return pa.struct([pa.field(key, _arrow(inner)) for key, inner in shape.items()])
    names = {NULL: pa.null(), "bool": pa.bool_(), "int": pa.int64(), "float": pa.float64()}
    return names.get(shape, pa.string())
