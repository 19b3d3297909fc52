"""The runs that trackers keep: Trackio's and MLflow's databases, MLflow's files, and TensorBoard's events."""

from __future__ import annotations

import json
import re
import sqlite3
import struct
import sys
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from training.data.files.sniff import open_regular
from training.data.problems import MAX_LINE_BYTES
from training.errors import DataError
from training.event_files import masked_crc
from training.imports.base import (
    MAX_NAME_CHARS,
    MAX_STEP,
    BadRow,
    Figures,
    Item,
    Notes,
    Reader,
    number_of,
    one_run,
    shown,
    step_of,
)
from training.words import _, sentence

# Trackio's and MLflow's SQLite databases, opened for reading alone; nothing in their schema is trusted.
#
# Trackio keeps a row a step (``metrics``: run, step, time, the figures as JSON), MLflow a row a figure. MLflow writes
# NaN as a flag, and an infinite number as the largest one.

MAGIC = b"SQLite format 3\0"
TRACKIO = frozenset({"run_name", "step", "metrics", "timestamp"})
MLFLOW = frozenset({"run_uuid", "step", "key", "value", "is_nan", "timestamp"})
_MAX_TABLES = 200


def is_database(path: Path) -> bool:
    """Whether the file is an SQLite database."""
    with open_regular(path) as file:
        return file.read(len(MAGIC)) == MAGIC


def _open(path: Path) -> sqlite3.Connection:
    """The database, immutable: no journal next to it is read and none is written. Raises ``DataError``."""
    try:
        found = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True)
        found.executescript("PRAGMA trusted_schema=OFF; PRAGMA query_only=ON; PRAGMA cell_size_check=ON;")
        found.text_factory = lambda data: data.decode("utf-8", "replace")
    except sqlite3.Error as exc:
        raise _damaged(exc) from exc
    return found


def _damaged(exc: sqlite3.Error) -> DataError:
    return DataError(sentence(_("The database cannot be read: {problem}."), problem=str(exc)[:200]))


def _tables(database: sqlite3.Connection) -> dict[str, frozenset[str]]:
    """The columns of each plain table; views and virtual tables may compute anything, and are none."""
    listed = database.execute(
        "SELECT name FROM sqlite_master WHERE type = 'table' AND sql LIKE 'CREATE TABLE%' LIMIT ?", [_MAX_TABLES]
    )
    names = [str(name) for (name,) in listed]
    columns = "SELECT name FROM pragma_table_info(?)"
    return {name: frozenset(str(row[0]) for row in database.execute(columns, [name])) for name in names}


def _kind(path: Path, columns: frozenset[str]) -> bool:
    """Whether the database has a table ``metrics`` with these columns. Raises ``DataError`` for one that is damaged."""
    if not is_database(path):
        return False
    with closing(_open(path)) as database:
        try:
            return columns <= _tables(database).get("metrics", frozenset())
        except sqlite3.Error as exc:
            raise _damaged(exc) from exc


def refuse(path: Path) -> None:
    """Raise ``DataError`` that says what an SQLite database holds which is neither of the two."""
    with closing(_open(path)) as database:
        try:
            names = ", ".join(sorted(_tables(database)))
        except sqlite3.Error as exc:
            raise _damaged(exc) from exc
    raise DataError(
        sentence(
            _("It is an SQLite database of neither Trackio nor MLflow; its tables are {tables}."), tables=names[:200]
        ),
        hint=_("Give the metrics as CSV or JSON Lines."),
    )


def _rows(path: Path, query: str, *given: str) -> Iterator[tuple[Any, ...]]:
    """The rows that a query finds. Raises ``DataError``."""
    with closing(_open(path)) as database:
        try:
            yield from database.execute(query, given)
        except sqlite3.Error as exc:
            raise _damaged(exc) from exc


def _numbered(path: Path, query: str, run: str) -> Iterator[tuple[int, int, tuple[Any, ...]]]:
    """Number, offset and cells of each row of one run; how many there are is not known, so the offset is a guess."""
    size = path.stat().st_size
    for number, row in enumerate(_rows(path, query, run), 1):
        yield number, size * number // (number + 1000), row


def _read_trackio(path: Path, notes: Notes) -> Iterator[Item]:
    runs = [str(name) for (name,) in _rows(path, "SELECT DISTINCT run_name FROM metrics ORDER BY 1")]
    query = "SELECT step, timestamp, metrics FROM metrics WHERE run_name = ? ORDER BY step, timestamp, id"
    for number, offset, (step, at, metrics) in _numbered(path, query, one_run(runs, notes.run)):
        try:
            yield Item(number, offset, Figures(step_of(step), _figures(metrics, notes), _moment(at)))
        except BadRow as exc:
            yield Item(number, offset, reason=exc.sentence)


def _figures(text: Any, notes: Notes) -> dict[str, float]:
    """The numbers of one step; pictures, tables and texts are named as left out. Raises ``BadRow``."""
    try:
        found = json.loads(text)
    except (ValueError, TypeError, RecursionError):
        raise BadRow(_("its metrics are not valid JSON")) from None
    values: dict[str, float] = {}
    for name, given in found.items() if isinstance(found, dict) else ():
        try:
            value = number_of(given)
        except BadRow:
            notes.left_out.setdefault(name[:MAX_NAME_CHARS], _("its values are not numbers"))
            continue
        if value is not None:
            values[name[:MAX_NAME_CHARS]] = value
    if not values:
        raise BadRow(_("it holds no figure"))
    return values


def _moment(text: Any) -> float | None:
    """A time in ISO 8601; without a zone it is taken as UTC."""
    try:
        found = datetime.fromisoformat(str(text))
    except ValueError:
        return None
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()


def _read_mlflow(path: Path, notes: Notes) -> Iterator[Item]:
    found = _rows(path, "SELECT run_uuid, name FROM runs WHERE run_uuid IN (SELECT run_uuid FROM metrics)")
    named = {str(key): str(name or "") for key, name in found}
    ids = {name: key for key, name in named.items() if name and list(named.values()).count(name) == 1}
    known = [next((name for name, key in ids.items() if key == each), each) for each in named]
    chosen = one_run([*known, *(key for key in named if notes.run == key and key not in known)], notes.run)
    query = "SELECT step, timestamp, key, value, is_nan FROM metrics WHERE run_uuid = ? ORDER BY step, timestamp"
    for number, offset, (step, at, name, value, is_nan) in _numbered(path, query, ids.get(chosen, chosen)):
        try:
            yield Item(
                number,
                offset,
                Figures(step_of(step), {_name(name): _figure_database(value, is_nan)}, _milliseconds(at)),
            )
        except BadRow as exc:
            yield Item(number, offset, reason=exc.sentence)


def _name(name: Any) -> str:
    if not isinstance(name, str) or not 0 < len(name) <= MAX_NAME_CHARS:
        raise BadRow(sentence(_("its metric is {name}, which is no name"), name=shown(name)))
    return name


def _figure_database(value: Any, is_nan: Any) -> float:
    number = number_of(value)
    if number is None and not is_nan:
        raise BadRow(_("it holds no figure"))
    if is_nan or number is None:
        return float("nan")
    return number * float("inf") if abs(number) >= sys.float_info.max else number


def _milliseconds(value: Any) -> float | None:
    return value / 1000 if isinstance(value, int) and 9e11 < value < 5e12 else None


TRACKIO_READER = Reader(
    name="trackio",
    title=_("Trackio's database"),
    tool="",
    about="The SQLite database of a project (`<project>.db`): every number that was logged is a figure of its step. "
    "One with several runs asks which one is meant.",
    recognise=lambda path: "It is an SQLite database with Trackio's table of metrics." if _kind(path, TRACKIO) else "",
    read=_read_trackio,
)
MLFLOW_DATABASE_READER = Reader(
    name="mlflow_database",
    title=_("MLflow's database"),
    tool="",
    about="`mlflow.db`, SQLite: the figures of one run, by its name or id. One with several runs asks which one is "
    "meant.",
    recognise=lambda path: "It is an SQLite database with MLflow's table of metrics." if _kind(path, MLFLOW) else "",
    read=_read_mlflow,
)


# MLflow's metric files, ``mlruns/<experiment>/<run>/metrics/<name>``: lines of time (ms), value and step.
#
# A metric's name is the path below ``metrics``. What else lies in a run's folder holds no figures and is passed over.

FOLDER = "metrics"
OTHER_FOLDERS = ("params", "tags", "artifacts", "inputs", "outputs", "traces")
KIND = "mlflow_other"
_LINE = re.compile(rb"\d{12,14} [-+.\w]{1,40} \d{1,10}\r?\n?")


def _parts(name: str) -> tuple[str, str]:
    """The run's folder and the metric of a file by its name."""
    folder, found, metric = f"/{name}".rpartition(f"/{FOLDER}/")
    return (folder, metric) if found else ("", name.rsplit("/", 1)[-1])


def is_next_to_metrics(name: str, names: list[str]) -> bool:
    """Whether a file lies in the folder of an MLflow run, next to its metrics."""
    runs = {_parts(each)[0] for each in names if f"/{FOLDER}/" in f"/{each}"}
    folder, _slash, rest = f"/{name}".rpartition("/")
    inside = any(f"/{name}".startswith(f"{run}/{kind}/") for run in runs for kind in OTHER_FOLDERS)
    above = {run.rpartition("/")[0] for run in runs}
    return inside or (rest == "meta.yaml" and folder in runs | above)


def _recognise_mlflow(path: Path) -> str:
    with open_regular(path) as file:
        is_metric = _LINE.fullmatch(file.readline(200)) is not None
    return "Its lines are a time, a value and a step." if is_metric else ""


def _look(_path: Path, notes: Notes) -> None:
    run = _parts(notes.name)[0]
    if run not in notes.shared.runs:
        notes.shared.runs.append(run)


def _read_items_mlflow(path: Path, notes: Notes) -> Iterator[Item]:
    folder, metric = _parts(notes.name)
    names = [run.rsplit("/", 1)[-1] for run in notes.shared.runs]
    if len(names) > 1 and one_run(names, notes.run) != folder.rsplit("/", 1)[-1]:
        return
    offset = 0
    with open_regular(path) as file:
        for number, line in enumerate(iter(lambda: file.readline(MAX_LINE_BYTES), b""), 1):
            offset += len(line)
            if not line.strip():
                continue
            try:
                yield Item(number, offset, _figure_mlflow(line.decode("utf-8", "replace"), metric))
            except BadRow as exc:
                yield Item(number, offset, reason=exc.sentence)


def _figure_mlflow(line: str, metric: str) -> Figures:
    cells = line.split()
    if len(cells) != 3 or not 0 < len(metric) <= MAX_NAME_CHARS:
        raise BadRow(sentence(_("{value} is not a time, a value and a step"), value=shown(line.strip())))
    at, value = number_of(cells[0]), number_of(cells[1])
    if value is None:
        raise BadRow(_("it holds no figure"))
    return Figures(step_of(cells[2]), {metric: value}, at / 1000 if at is not None and 9e11 < at < 5e12 else None)


MLFLOW_FILES_READER = Reader(
    name="mlflow",
    title=_("metric file of MLflow"),
    tool="",
    about="`mlruns/<experiment>/<run>/metrics/<name>`, one file or an archive of a run's folder: lines of time, value "
    "and step. A metric's name is its path below `metrics`; parameters, tags and artifacts are passed over.",
    recognise=_recognise_mlflow,
    read=_read_items_mlflow,
    look=_look,
)


# TensorBoard's event files, read without TensorFlow: records of protocol buffers, of which the scalars are taken.
#
# A file is a list of records: length (8 bytes), its checksum (4), the data, its checksum (4). Of an event:
# ``wall_time`` = 1, ``step`` = 2, ``file_version`` = 3, ``summary`` = 5;
# of a summary's value: ``tag`` = 1, ``simple_value`` = 2, ``tensor`` = 8. Nothing is trusted: lengths are bounded,
# checksums compared, and every field that is not known is passed over.

MAX_RECORD_BYTES = 64 << 20
_HEAD = struct.Struct("<QI")
_SUM = struct.Struct("<I")
_VERSION = b"brain.Event:"
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_FLOAT, _DOUBLE, _INT32, _INT64 = 1, 2, 3, 9
"""TensorFlow's numbers of the types that a scalar has."""
_LAYOUT = {_FLOAT: "<f", _DOUBLE: "<d", _INT32: "<i", _INT64: "<q"}
_LISTED = {5: "<f", 6: "<d"}
"""Fields of a tensor that list its numbers, packed or one by one."""


class Record(NamedTuple):
    """One record, or why there is none. ``ends`` says that nothing after it can be found."""

    data: bytes
    reason: str = ""
    ends: bool = False


def records(file: BinaryIO) -> Iterator[Record]:
    """The records of a file, each checked. Lengths are believed only where their own checksum is right."""
    while head := file.read(_HEAD.size):
        if len(head) < _HEAD.size:
            yield Record(b"", sentence(_("the file ends in the middle of this record")), ends=True)
            return
        length, check = _HEAD.unpack(head)
        if masked_crc(head[:8]) != check or length > MAX_RECORD_BYTES:
            yield Record(b"", sentence(_("its length is damaged, so that nothing after it can be read")), ends=True)
            return
        data, tail = file.read(length), file.read(_SUM.size)
        if len(data) < length or len(tail) < _SUM.size:
            yield Record(b"", sentence(_("the file ends in the middle of this record")), ends=True)
            return
        if masked_crc(data) != _SUM.unpack(tail)[0]:
            yield Record(b"", sentence(_("its checksum is wrong")))
            continue
        yield Record(data)


def fields(data: bytes) -> Iterator[tuple[int, int, Any]]:
    """Number, wire type and value of each field of a message. Raises ``BadRow`` where it breaks off."""
    place = 0
    while place < len(data):
        key, place = _varint(data, place)
        kind = key & 7
        if kind == _VARINT:
            value, place = _varint(data, place)
            yield key >> 3, kind, value
            continue
        size = {_FIXED64: 8, _FIXED32: 4}.get(kind)
        if kind == _BYTES:
            size, place = _varint(data, place)
        if size is None or place + size > len(data):
            raise BadRow(_("the event cannot be read"))
        yield key >> 3, kind, data[place : place + size]
        place += size


def _varint(data: bytes, place: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if place >= len(data):
            break
        byte = data[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, place
    raise BadRow(_("the event cannot be read"))


def figures_of(data: bytes, notes: Notes) -> Figures | None:
    """The scalars of one event; ``None`` for an event without any. Raises ``BadRow``."""
    at, step = None, 0
    values: dict[str, float] = {}
    for number, kind, value in fields(data):
        if (number, kind) == (1, _FIXED64):
            at = struct.unpack("<d", value)[0]
        elif (number, kind) == (2, _VARINT):
            step = value
        elif (number, kind) == (5, _BYTES):
            values |= _scalars(value, notes)
    if not values:
        return None
    if step > MAX_STEP:
        raise BadRow(sentence(_("its step is {step}, not a whole number from 0"), step=step))
    return Figures(step, values, at if at is not None and 9e8 < at < 5e9 else None)


def _scalars(summary: bytes, notes: Notes) -> dict[str, float]:
    values: dict[str, float] = {}
    for number, kind, value in fields(summary):
        if (number, kind) != (1, _BYTES):
            continue
        tag, scalar = _tag_and_scalar(value)
        if scalar is None:
            notes.left_out.setdefault(tag, _("its values are not numbers"))
        elif tag:
            values[tag] = scalar
    return values


def _tag_and_scalar(data: bytes) -> tuple[str, float | None]:
    """Tag and scalar of one value of a summary; ``None`` for texts, pictures and histograms."""
    tag, scalar = "", None
    for number, kind, value in fields(data):
        if (number, kind) == (1, _BYTES):
            text = value.decode("utf-8", "replace").replace("\0", "")
            tag = "".join(mark if mark.isprintable() else " " for mark in text)[:MAX_NAME_CHARS]
        elif (number, kind) == (2, _FIXED32):
            scalar = struct.unpack("<f", value)[0]
        elif (number, kind) == (8, _BYTES):
            scalar = _tensor(value)
    return tag, scalar


def _tensor(data: bytes) -> float | None:
    """The number of a tensor that holds one."""
    layout, found = "", []
    for number, kind, value in fields(data):
        if (number, kind) == (1, _VARINT):
            layout = _LAYOUT.get(value, "")
        elif (number, kind) == (4, _BYTES) and layout and len(value) == struct.calcsize(layout):
            found.append(struct.unpack(layout, value)[0])
        elif number in _LISTED and kind in (_BYTES, _FIXED32, _FIXED64):
            size = struct.calcsize(_LISTED[number])
            if len(value) == size:
                found.append(struct.unpack(_LISTED[number], value)[0])
        elif number in (7, 10) and kind == _VARINT:
            found.append(value - (1 << 64) if value >> 63 else value)
    return float(found[0]) if len(found) == 1 else None


def _recognise_tensorboard(path: Path) -> str:
    with open_regular(path) as file:
        head = file.read(_HEAD.size + 64)
    if len(head) <= _HEAD.size:
        return ""
    length, check = _HEAD.unpack(head[: _HEAD.size])
    is_events = length <= 64 and masked_crc(head[:8]) == check and _VERSION in head
    return "It begins as TensorBoard's event files do." if is_events else ""


def _read_items_tensorboard(path: Path, notes: Notes) -> Iterator[Item]:
    with open_regular(path) as file:
        for number, record in enumerate(records(file), 1):
            offset = file.tell()
            if record.reason:
                yield Item(number, offset, reason=record.reason)
                continue
            try:
                found = figures_of(record.data, notes)
            except BadRow as exc:
                yield Item(number, offset, reason=exc.sentence)
            else:
                if found is not None:
                    yield Item(number, offset, found)


READER = Reader(
    name="tensorboard",
    title=_("TensorBoard events"),
    tool="",
    about="`events.out.tfevents.*`, as TensorBoard, verl and Hugging Face's Trainer write them: every scalar is a "
    "figure of its step. Checksums are compared; texts, pictures and histograms are named and left out.",
    recognise=_recognise_tensorboard,
    read=_read_items_tensorboard,
)
