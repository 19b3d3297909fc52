"""Rows of a run that changed after a number, from indexes of blocks of numbers."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from webapp.runs.metrics.models import MetricPoint
from webapp.runs.models import Run, RunEvent
from webapp.runs.numbering import BITS, by_number, changed, changed_sql
from webapp.runs.records.selectors import LEFT_OUT, run_changes_after
from webapp.runs.rollouts.models import Rollout, RolloutGroup, Turn

pytestmark = pytest.mark.django_db
INDEXES = {
    MetricPoint: "metric_point_changed",
    Rollout: "rollout_changed",
    Turn: "turn_changed",
    RolloutGroup: "rollout_group_changed",
}
EDGE = 1 << BITS


def _rows(run: Run, numbers: list[int]) -> None:
    """A rollout, a turn, a point and a group with each of these numbers."""
    at = timezone.now()
    for place, seq in enumerate(numbers):
        rollout = Rollout.objects.create(run=run, attempt=1, step=place, group=0, index=0, started_at=at, seq=seq)
        Turn.objects.create(rollout=rollout, run=run, number=0, messages=[], seq=seq)
        MetricPoint.objects.create(run=run, attempt=1, step=place, name="reward", value=1.0, seq=seq)
        RolloutGroup.objects.create(run=run, attempt=1, step=place, group=0, zero_variance=False, seq=seq)


@pytest.mark.parametrize("model", [*INDEXES, RunEvent])
def test_what_changed_is_the_same_as_without_blocks(make_run: Any, model: Any) -> None:
    run, other = make_run(), make_run()
    numbers = [3 * EDGE, 1, EDGE + 1, EDGE - 1, 2 * EDGE, EDGE, 2 * EDGE - 1]
    for each in (run, other):
        _rows(each, numbers)
        RunEvent.objects.filter(run=each).delete()
        RunEvent.objects.bulk_create(RunEvent(run=each, seq=seq, kind="log", at=timezone.now()) for seq in numbers)
    ends = [-1, 0, *(end + more for end in (EDGE, 2 * EDGE, 3 * EDGE) for more in (-1, 0, 1))]
    for after in ends:
        for upto in ends:
            expected = sorted(seq for seq in numbers if after < seq <= upto)
            rows = by_number(changed(model.objects.filter(run=run), after, upto))
            assert list(rows.values_list("seq", flat=True)) == expected, (after, upto)
            with connection.cursor() as cursor:
                asked = {"run": run.pk, "after": after, "upto": upto}
                cursor.execute(f"SELECT seq FROM {model._meta.db_table} WHERE {changed_sql(model)}", asked)  # noqa: S608
                assert sorted(seq for (seq,) in cursor.fetchall()) == expected, (after, upto)
        found = changed(model.objects.filter(run=run), after).values_list("seq", flat=True)
        assert sorted(found) == sorted(seq for seq in numbers if seq > after)


def test_changes_come_in_order_and_are_cut_at_a_number(make_run: Any) -> None:
    run = make_run(seq=3 * EDGE)
    _rows(run, [EDGE - 1, 2 * EDGE, EDGE, 5])
    first = run_changes_after(run, 4, limit=2)
    assert (first.seq, first.more) == (EDGE - 1, True)
    assert [row.seq for row in first.rows["rollouts"]] == [row.seq for row in first.rows["turns"]] == [5, EDGE - 1]
    rest = run_changes_after(run, first.seq, limit=2)
    assert [row.seq for row in rest.rows["groups"]] == [EDGE, 2 * EDGE] and not rest.more


@pytest.mark.parametrize(("model", "index"), INDEXES.items())
def test_changes_come_from_the_index_in_its_order(make_run: Any, model: Any, index: str) -> None:
    """With a handful of rows every index costs the same, so the planner sees only the one that should do."""
    run = make_run()
    _rows(run, list(range(1, 4 * EDGE)))
    rows = changed(model.objects.filter(run_id=run.pk), EDGE, 3 * EDGE).exclude(**LEFT_OUT.get(model, {}))
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off; SET LOCAL enable_sort = off")
        cursor.execute(
            "UPDATE pg_index SET indisvalid = indexrelid::regclass::text = %s WHERE indrelid = %s::regclass",
            [index, model._meta.db_table],
        )
        cursor.execute(f"ANALYZE {model._meta.db_table}")
        plan = str(by_number(rows)[:10].explain())
    assert f"using {index}" in plan and "Presorted Key: ((" in plan, plan
    assert f"seq >> {BITS}) >= 1" in plan and f"seq >> {BITS}) <= 3" in plan, plan
