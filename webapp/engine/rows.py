"""The rows of a batch as statements that are made before a transaction begins, and only run in it.

A transaction that takes a run's ``seq`` locks the run's row: others wait while it computes, and PostgreSQL ends one
that is silent for too long. So all rows of a table are one document of JSON, which PostgreSQL reads by the table's own
columns; the numbers in it count from 0, and the statement adds the first one that the transaction was given.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any
from uuid import UUID

from django.db import connection, models

from webapp.engine.batch import Batch
from webapp.runs.models import RunEvent
from webapp.runs.registry.models import Checkpoint
from webapp.runs.rollouts.models import Rollout, RolloutGroup, Turn
from webapp.runs.rollouts.numbers import NumbersField

POINTS = (
    "INSERT INTO metrics_metricpoint (run_id, attempt, step, name, value, seq)"
    " SELECT %(run)s, %(attempt)s, step, name, value, %(first)s + %(place)s + number - 1"
    " FROM unnest(%(steps)s::int[], %(names)s::text[], %(values)s::float8[]) WITH ORDINALITY"
    " AS new (step, name, value, number)"
    " ON CONFLICT (run_id, name, step, attempt) DO UPDATE SET value = excluded.value, seq = excluded.seq"
)
FORGET_TURNS = "DELETE FROM rollouts_turn WHERE rollout_id = ANY(%(rollouts)s)"


@dataclass(frozen=True)
class Statement:
    """SQL with its values, but for ``first``: the number that the transaction is given."""

    sql: str
    values: dict[str, Any]


def statements_of(batch: Batch) -> list[Statement]:
    """Everything in the batch, in the order of its numbers: rollouts first, so that their turns follow them."""
    return list(_statements(batch))


def write_rows(statements: Iterable[Statement], first: int) -> None:
    """Upsert what the statements say, numbering rows from ``first``."""
    with connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement.sql, {**statement.values, "first": first})


def _statements(batch: Batch) -> Iterator[Statement]:
    place = 0
    events = [
        RunEvent(run_id=batch.run.pk, attempt=batch.attempt, kind=kind, payload=payload, at=at)
        for kind, payload, at in batch.events
    ]
    tables: tuple[tuple[type[models.Model], Iterable[models.Model], tuple[str, ...]], ...] = (
        (Rollout, batch.rollouts.values(), ("id",)),
        (Turn, batch.turns.values(), ("rollout_id", "number")),
        (RolloutGroup, batch.groups.values(), ("run_id", "attempt", "step", "group")),
        (Checkpoint, batch.checkpoints.values(), ("run_id", "attempt", "path")),
        (RunEvent, events, ()),
    )
    for model, rows, unique in tables:
        if model is Turn and batch.begun_anew:
            yield Statement(FORGET_TURNS, {"rollouts": list(batch.begun_anew)})
        if model is RunEvent and batch.points:
            yield Statement(POINTS, {"place": place, **_point_arrays(batch)})
            place += len(batch.points)
        if document := _rows_document(model, rows, place):
            yield Statement(_upsert_sql(model, unique), {"rows": json.dumps(document, **JSON)})
        place += len(document)


def _point_arrays(batch: Batch) -> dict[str, Any]:
    """Curves are the bulk of a run: one array for each column, however many points."""
    names, steps = [key[0] for key in batch.points], [key[1] for key in batch.points]
    columns = {"names": names, "steps": steps, "values": list(batch.points.values())}
    return {"run": batch.run.pk, "attempt": batch.attempt, **columns}


def _json_default(value: object) -> str:
    """A value that JSON has no type for, as text that PostgreSQL reads. Raises ``TypeError`` for others."""
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, UUID):
        return str(value)
    raise TypeError(f"{type(value).__name__} is no value of a column")


JSON: dict[str, Any] = {"ensure_ascii": False, "allow_nan": False, "default": _json_default, "separators": (",", ":")}


def _rows_document(model: type[models.Model], rows: Iterable[models.Model], place: int) -> list[dict[str, Any]]:
    fields = _written_fields(model)
    columns = [(field.attname, field.column) for field in fields]
    document = [{column: getattr(row, attribute) for attribute, column in columns} for row in rows]
    numbers = [field for field in fields if isinstance(field, NumbersField)]
    floats = [field.column for field in fields if isinstance(field, models.FloatField)]
    for number, row in enumerate(document, start=place):
        row["seq"] = number
        row |= {name: str(row[name]) for name in floats if row[name] is not None and not math.isfinite(row[name])}
        for field in numbers:  # as one text: PostgreSQL takes long over each number of a document
            row[field.column] = field.get_db_prep_value(row[field.column], connection)
    return document


def _written_fields(model: type[models.Model]) -> list[Any]:
    """All columns but a number that PostgreSQL counts itself."""
    return [field for field in model._meta.concrete_fields if not isinstance(field, models.AutoField)]


@lru_cache
def _upsert_sql(model: type[models.Model], unique: tuple[str, ...]) -> str:
    """All rows of the document into the table; one that is there by ``unique`` gets their other columns."""
    types = {field.column: str(field.db_type(connection)) for field in _written_fields(model)}
    read = {field.column: "text" for field in _written_fields(model) if isinstance(field, NumbersField)}
    values = [f'new."{name}"::{type_}' if name in read else f'new."{name}"' for name, type_ in types.items()]
    shape = ", ".join(f'"{name}" {read.get(name, type_)}' for name, type_ in types.items())
    changed = [f'"{name}" = excluded."{name}"' for name in types if name not in {"id", *unique}]
    conflict = f" ON CONFLICT ({_quoted_columns(unique)}) DO UPDATE SET {', '.join(changed)}" if unique else ""
    return (
        f"INSERT INTO {model._meta.db_table} ({_quoted_columns(types)})"  # noqa: S608 - names of our own tables
        f" SELECT {', '.join(values)} FROM json_to_recordset(%(rows)s::json) AS new ({shape}){conflict}"
    ).replace('new."seq"', 'new."seq" + %(first)s')


def _quoted_columns(names: Iterable[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)
