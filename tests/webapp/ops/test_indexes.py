"""The indexes of large tables: none does what another one does already."""

from __future__ import annotations

import pytest
from django.db import connection

INDEXES = """
SELECT t.relname, i.relname, x.indkey::int2[], x.indisunique, x.indclass::oid[]
FROM pg_index x JOIN pg_class i ON i.oid = x.indexrelid JOIN pg_class t ON t.oid = x.indrelid
JOIN pg_am a ON a.oid = i.relam
WHERE t.relnamespace = 'public'::regnamespace AND x.indpred IS NULL AND x.indexprs IS NULL AND a.amname = 'btree'
"""
LARGE = {"rollouts_rollout", "rollouts_turn", "rollouts_rolloutgroup", "metrics_metricpoint", "runs_runevent"}
"""Tables that get rows with every step of every run."""


@pytest.mark.django_db
def test_no_index_of_a_large_table_is_the_beginning_of_another() -> None:
    """Of five million rollouts such indexes took 0.7 GB, and each row was written into all of them."""
    with connection.cursor() as cursor:
        cursor.execute(INDEXES)
        found = [(table, name, keys, unique, kinds) for table, name, keys, unique, kinds in cursor.fetchall()]
    assert {table for table, *_rest in found} >= LARGE
    needless = [
        f"{table}: {name} of {other}"
        for table, name, keys, unique, kinds in found
        for elsewhere, other, longer, _unique, others in found
        if table in LARGE and table == elsewhere and name != other and not unique
        if longer[: len(keys)] == keys and others[: len(kinds)] == kinds
        if len(longer) > len(keys) or other > name
    ]
    assert not needless, "\n".join(needless)
