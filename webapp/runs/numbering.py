"""Rows of a run by ``seq``, the number of their last change, from an index a fifth as large as one of every number.

Large tables are indexed by run and by blocks of ``1 << BITS`` numbers. Many rows then have the same key, which
PostgreSQL keeps once with six bytes for each of its rows; keys of their own take forty. A question reads at most the
rest of one block more than it answers.
"""

from __future__ import annotations

from typing import Any, TypeVar

from django.db import models

BITS = 6
Rows = TypeVar("Rows", bound="models.QuerySet[Any]")


class Block(models.Func):
    """The block of a number, always written as the index has it. Another ``BITS`` needs other indexes."""

    template = f"(%(expressions)s >> {BITS})"
    arity = 1
    output_field = models.BigIntegerField()


def seq_index(name: str) -> models.Index:
    """The index of a model with ``run`` and ``seq``."""
    return models.Index(models.F("run"), Block("seq"), name=name)


def _in_blocks(model: type[models.Model]) -> bool:
    return any(isinstance(part, Block) for index in model._meta.indexes for part in index.expressions)


def changed(rows: Rows, after: int, upto: int | None = None) -> Rows:
    """The rows that changed after a number, up to another one; the caller filters by run."""
    found = rows.filter(seq__gt=after) if upto is None else rows.filter(seq__gt=after, seq__lte=upto)
    if not _in_blocks(rows.model):
        return found
    found = found.alias(block=Block("seq")).filter(block__gte=after >> BITS)
    return found if upto is None else found.filter(block__lte=upto >> BITS)


def by_number(rows: Rows) -> Rows:
    """The rows by ``seq``, in the order of their index: the first of many are read without the others."""
    return rows.order_by(Block("seq"), "seq") if _in_blocks(rows.model) else rows.order_by("seq")


def changed_sql(model: type[models.Model]) -> str:
    """``changed`` as a condition of SQL about a run, with parameters ``run``, ``after`` and ``upto``."""
    numbers = "run_id = %(run)s AND seq > %(after)s AND seq <= %(upto)s"
    blocks = f" AND seq >> {BITS} >= %(after)s::bigint >> {BITS} AND seq >> {BITS} <= %(upto)s::bigint >> {BITS}"
    return numbers + blocks if _in_blocks(model) else numbers
