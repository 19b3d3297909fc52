"""Two databases and two data folders, compared table by table and file by file."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import psycopg
from psycopg import sql

Tables = dict[str, dict[str, list[str | None]]]
"""Of each table of each column the values as text, in one order of rows for all columns of the table."""


def tables_of(url: str) -> Tables:
    """All tables of a database with all of their values."""
    found: Tables = {}
    with psycopg.connect(url) as connection:
        query = "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = 'public'"
        for table, column in connection.execute(f"{query} ORDER BY 1, 2").fetchall():
            found.setdefault(table, {})[column] = []
        for table, columns in found.items():
            texts = sql.SQL(", ").join(sql.SQL("{}::text").format(sql.Identifier(name)) for name in columns)
            rows = connection.execute(sql.SQL("SELECT {} FROM {}").format(texts, sql.Identifier(table))).fetchall()
            for name, values in zip(columns, zip(*rows, strict=True) if rows else (), strict=False):
                columns[name] = list(values)
    return found


def differences(before: Tables, after: Tables) -> dict[str, str]:
    """What of ``before`` is not in ``after``, by table or table.column; new ones do not count."""
    found: dict[str, str] = {}
    for table, columns in before.items():
        if table not in after:
            found[table] = "gone"
            continue
        kept = [name for name in columns if name in after[table]]
        found |= {f"{table}.{name}": "gone" for name in columns if name not in kept}
        was, now = (Counter(_rows(each[table], kept)) for each in (before, after))
        lost, new = was - now, now - was
        if not (lost or new):
            continue
        changed = [name for name in kept if Counter(columns[name]) != Counter(after[table][name])]
        where = (
            {f"{table}.{name}" for name in changed} if sum(was.values()) == sum(now.values()) and changed else {table}
        )
        found |= {name: f"{lost.total()} rows changed or gone, {new.total()} new" for name in where}
    return found


def _rows(columns: dict[str, list[str | None]], names: list[str]) -> list[tuple[str | None, ...]]:
    return list(zip(*(columns[name] for name in names), strict=True))


def files_of(folder: Path, counts: Callable[[Path], bool]) -> dict[str, str]:
    """The SHA-256 of each file below a folder that counts, by its path there."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.is_symlink() and counts(path.relative_to(folder)):
            found[path.relative_to(folder).as_posix()] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found
