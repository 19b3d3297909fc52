"""Questions to the database that are the same each time: their SQL is made once in a process.

Django takes a millisecond or more to make it, PostgreSQL a tenth of that to answer a small question.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from django.db import connection
from django.db.models import QuerySet


@cache
def _sql(question: Callable[..., QuerySet[Any, Any]], *of: str) -> tuple[str, tuple[Any, ...]]:
    return question(*of).query.sql_with_params()


def rows_of(question: Callable[..., QuerySet[Any, Any]], *of: str) -> list[tuple[Any, ...]]:
    """What ``question(*of)``, a query set with ``values_list``, finds: numbers, texts, times and intervals.

    The question is a function of a module, and depends on nothing but ``of``: no setting, no time of Python's clock.
    """
    with connection.cursor() as cursor:
        cursor.execute(*_sql(question, *of))
        return cursor.fetchall()
