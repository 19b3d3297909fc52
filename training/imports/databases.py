"""Trackio's and MLflow's SQLite databases, opened for reading alone; nothing in their schema is trusted.

Trackio keeps a row a step (``metrics``: run, step, time, the figures as JSON), MLflow a row a figure. MLflow writes NaN
as a flag, and an infinite number as the largest one.
"""

from __future__ import annotations

import json
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from training.data.files.sniff import open_regular
from training.errors import DataError
from training.imports.base import MAX_NAME_CHARS, BadRow, Figures, Item, Notes, Reader, number_of, shown, step_of
from training.imports.choice import one_run
from training.words import _, sentence

MAGIC = b"SQLite format 3\0"
TRACKIO = frozenset({"run_name", "step", "metrics", "timestamp"})
MLFLOW = frozenset({"run_uuid", "step", "key", "value", "is_nan", "timestamp"})
_MAX_TABLES = 200


def is_database(path: Path) -> bool:
    """Whether the file is an SQLite database."""
    with open_regular(path) as file:
        return file.read(len(MAGIC)) == MAGIC


def _open(path: Path) -> sqlite3.Connection:
    """The database, immutable: no journal beside it is read and none is written. Raises ``DataError``."""
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
            yield Item(number, offset, Figures(step_of(step), {_name(name): _figure(value, is_nan)}, _milliseconds(at)))
        except BadRow as exc:
            yield Item(number, offset, reason=exc.sentence)


def _name(name: Any) -> str:
    if not isinstance(name, str) or not 0 < len(name) <= MAX_NAME_CHARS:
        raise BadRow(sentence(_("its metric is {name}, which is no name"), name=shown(name)))
    return name


def _figure(value: Any, is_nan: Any) -> float:
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
MLFLOW_READER = Reader(
    name="mlflow_database",
    title=_("MLflow's database"),
    tool="",
    about="`mlflow.db`, SQLite: the figures of one run, by its name or id. One with several runs asks which one is "
    "meant.",
    recognise=lambda path: "It is an SQLite database with MLflow's table of metrics." if _kind(path, MLFLOW) else "",
    read=_read_mlflow,
)
