"""Migrations of large tables: begun again after they were cut off, and the rows are the same."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection, models
from django.db.migrations.state import ModelState, ProjectState

from webapp.common.large_tables import BuildIndex, DropIndex, KeyOfFields

pytestmark = pytest.mark.django_db(transaction=True)
ROWS = [(place, number, place * 10 + number) for place in range(3) for number in range(2)]


def _state() -> ProjectState:
    state = ProjectState()
    fields = [
        ("id", models.BigAutoField(primary_key=True)),
        *((name, models.IntegerField()) for name in ("place", "number", "value")),
    ]
    once = models.UniqueConstraint(fields=["place", "number"], name="large_once")
    old = models.Index(fields=["value"], name="large_old")
    options = {"db_table": "large_thing", "constraints": [once], "indexes": [old]}
    state.add_model(ModelState("runs", "Thing", fields, options))
    return state


@pytest.fixture
def large() -> Iterator[ProjectState]:
    """A table of six rows, which goes."""
    state = _state()
    model = state.apps.get_model("runs", "Thing")
    with connection.schema_editor() as editor:
        editor.create_model(model)
    try:
        model.objects.bulk_create(model(place=place, number=n, value=value) for place, n, value in ROWS)
        yield state
    finally:
        with connection.cursor() as cursor:
            cursor.execute("DROP TABLE large_thing")


def _apply(operation: Any, state: ProjectState, *, back: bool = False) -> ProjectState:
    """The state after the operation; with ``back`` the table is taken from that state to ``state``."""
    after = state.clone()
    operation.state_forwards("runs", after)
    with connection.schema_editor(atomic=False) as editor:
        if back:
            operation.database_backwards("runs", editor, after, state)
        else:
            operation.database_forwards("runs", editor, state, after)
    return after


def _table() -> tuple[list[tuple[int, ...]], list[str], dict[str, list[str]], set[str]]:
    """Rows, columns of the primary key, unique constraints, indexes that are valid."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT place, number, value FROM large_thing ORDER BY 1, 2")
        rows = cursor.fetchall()
        key = connection.introspection.get_primary_key_columns(cursor, "large_thing")
        found = connection.introspection.get_constraints(cursor, "large_thing")
        cursor.execute(
            "SELECT indexrelid::regclass::text FROM pg_index WHERE indisvalid AND indrelid = %s::regclass",
            ["large_thing"],
        )
        valid = {name for (name,) in cursor.fetchall()}
    once = {name: each["columns"] for name, each in found.items() if each["unique"] and not each["primary_key"]}
    return rows, key, once, valid


def _cut_off(index: str) -> None:
    """What a build that was cut off leaves."""
    with connection.cursor() as cursor:
        cursor.execute(f"CREATE INDEX {index} ON large_thing (value)")
        cursor.execute("UPDATE pg_index SET indisvalid = false WHERE indexrelid = %s::regclass", [index])


def test_fields_become_the_key_and_go_back(large: ProjectState, caplog: pytest.LogCaptureFixture) -> None:
    key = KeyOfFields("Thing", ("place", "number"), "large_once")
    _cut_off("large_thing_key")
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE large_thing")
    with caplog.at_level(logging.INFO, "webapp.common.large_tables"):
        after = _apply(key, large)
    assert "Building the index large_thing_key on about 6 rows of large_thing." in caplog.text
    assert _table() == (ROWS, ["place", "number"], {}, {"large_thing_pkey", "large_old"})
    _apply(key, large)  # its end was not noted
    assert _table() == (ROWS, ["place", "number"], {}, {"large_thing_pkey", "large_old"})
    thing = after.apps.get_model("runs", "Thing")
    assert thing.objects.get(pk=(2, 1)).value == 21
    _apply(key, large, back=True)
    assert _table() == (
        ROWS,
        ["id"],
        {"large_once": ["place", "number"]},
        {"large_thing_pkey", "large_once", "large_old"},
    )
    assert len(set(large.apps.get_model("runs", "Thing").objects.values_list("pk", flat=True))) == 6
    _apply(key, large)
    assert _table()[:2] == (ROWS, ["place", "number"])


def test_an_index_is_built_and_dropped_however_often_it_is_begun(large: ProjectState) -> None:
    build = BuildIndex("Thing", models.Index(fields=["number"], name="large_new"))
    drop = DropIndex("Thing", "large_old")
    _cut_off("large_new")
    for _time in range(2):
        _apply(build, large)
        assert "large_new" in _table()[3]
    for _time in range(2):
        _apply(drop, large)
        assert "large_old" not in _table()[3]
    _apply(drop, large, back=True)
    _apply(build, large, back=True)
    assert {"large_old", "large_new"} & _table()[3] == {"large_old"}
