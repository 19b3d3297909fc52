"""Write rows as parquet so that they are read back with the same values.

Parquet has one type for each field. The rows are gone through once to find each field's type, and then written. A field
whose values have no common type (a scenario whose keys differ from row to row, an empty object) is stored as JSON text,
and the file's metadata name it, so that our reader decodes it again. In verl's own columns a key that some rows lack is
null there instead, because verl reads them as objects.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from training.data.files.encode import to_json
from training.data.files.parquet import JSON_COLUMNS
from training.data.limits import MAX_DEPTH

BATCH_ROWS = 256
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
    """Where JSON text stands."""
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
