"""A batch's rows are made before the transaction that locks the run begins, and arrive as they were."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
from django.db import connection, models

from envs.wire import Message
from training import journal
from webapp.engine.batch import Batch, statements_of, write_rows
from webapp.runs.metrics.models import DeviceStep, MetricPoint
from webapp.runs.models import Run, RunEvent
from webapp.runs.registry.models import Checkpoint
from webapp.runs.rollouts.models import Rollout, RolloutGroup, Turn

pytestmark = pytest.mark.django_db
ODD = """ "quoted" 'single' \\ back {a,b} [1] $1 %s %(x)s null 你好 😀 \u2028\ttab\nline"""
AT = datetime(2026, 11, 27, 9, 30, 1, 123456, tzinfo=UTC)


def _value(field: Any) -> Any:
    """An odd value that the column can hold."""
    if isinstance(field, models.JSONField):
        return {"text": ODD, "n": [1, 2.5, None, True], "none": None, "nested": {"a": []}}
    if isinstance(field, models.DateTimeField):
        return AT
    if isinstance(field, models.BooleanField):
        return True
    if isinstance(field, models.FloatField):
        return 0.1 + 0.2
    if isinstance(field, models.IntegerField):
        return 2_000_000_000
    return {"words": [-2_147_483_648, 0, 2_147_483_647], "tools": [ODD, "a,b", ""]}.get(field.name) or ODD[
        : field.max_length
    ]


def _filled(model: type[models.Model], **fields: Any) -> Any:
    plain = [field for field in model._meta.concrete_fields if not field.is_relation and not field.primary_key]
    return model(**{field.name: _value(field) for field in plain} | fields)


def _as_it_is(row: models.Model) -> dict[str, Any]:
    return {field.attname: getattr(row, field.attname) for field in row._meta.concrete_fields if field.name != "seq"}


@pytest.fixture
def full(make_run: Callable[..., Run]) -> Batch:
    """A batch with a row of each table in whose columns are odd values."""
    run = make_run()
    batch = Batch(run, 1, functions={})
    rollout = _filled(Rollout, run=run, attempt=1, step=1, group=2, index=3)
    batch.rollouts[rollout.pk] = rollout
    batch.turns[rollout.pk, 1] = _filled(Turn, rollout=rollout, run=run, number=1)
    batch.groups[1, 2] = _filled(RolloutGroup, run=run, attempt=1, step=1, group=2)
    batch.checkpoints["c"] = _filled(Checkpoint, run=run, project=run.project, attempt=1, path="c")
    batch.devices[1, "a", "0"] = _filled(DeviceStep, run=run, step=1, host="a", device="0")
    batch.points["loss", 1], batch.points["grad", 1] = float("inf"), -1e300
    batch.events.append(("log", {"message": ODD}, AT))
    return batch


def test_every_column_arrives_as_it_was(full: Batch) -> None:
    write_rows(statements_of(full), 100)
    kinds = (full.rollouts, full.turns, full.groups, full.checkpoints)
    for place, (row,) in enumerate((kind.values() for kind in kinds), start=100):
        there = type(row).objects.get()
        row.pk = there.pk
        assert _as_it_is(there) == _as_it_is(row)
        assert there.seq == place
    (device,) = full.devices.values()
    assert _as_it_is(DeviceStep.objects.get()) == _as_it_is(device) and len(full) == 7
    points = dict(MetricPoint.objects.values_list("name", "value"))
    assert points == {"loss": float("inf"), "grad": -1e300}
    assert sorted(MetricPoint.objects.values_list("seq", flat=True)) == [104, 105]
    event = RunEvent.objects.get()
    assert (event.seq, event.kind, event.payload, event.at, event.attempt) == (106, "log", {"message": ODD}, AT, 1)


def test_what_is_empty_stays_empty(make_run: Callable[..., Run]) -> None:
    run = make_run()
    batch = Batch(run, 1, functions={})
    row = Rollout(run=run, attempt=1, step=1, group=0, index=0, started_at=AT)
    batch.rollouts[row.pk] = row
    batch.turns[row.pk, 0] = Turn(rollout=row, run=run, number=0, messages=[])
    write_rows(statements_of(batch), 1)
    there = Rollout.objects.get()
    assert _as_it_is(there) == _as_it_is(row) and there.error is None and there.parts == {} and there.tools == []
    assert Rollout.objects.filter(error__isnull=True, reward=None, finished_at=None, row=None).count() == 1, (
        "NULL, not JSON's null"
    )
    assert Turn.objects.values_list("words", "parse_error", "policy_step").get() == (None, "", None)


def test_a_row_that_is_there_gets_the_newer_columns(full: Batch) -> None:
    write_rows(statements_of(full), 1)
    key = next(iter(full.turns))
    full.rollouts[key[0]].reward, full.turns[key].tokens, full.points["loss", 1] = 0.25, 7, 0.5
    full.events.clear()
    write_rows(statements_of(full), 50)
    assert Rollout.objects.values_list("reward", "seq").get() == (0.25, 50)
    assert Turn.objects.values_list("tokens", "seq").get() == (7, 51)
    assert MetricPoint.objects.get(name="loss").value == 0.5
    assert (RolloutGroup.objects.count(), Checkpoint.objects.count(), RunEvent.objects.count()) == (1, 1, 1)


@pytest.mark.parametrize("odd", [math.nan, math.inf, -math.inf])
def test_a_reward_that_is_no_number_stays_what_it_is(full: Batch, odd: float) -> None:
    next(iter(full.rollouts.values())).reward = odd
    write_rows(statements_of(full), 1)
    assert repr(Rollout.objects.get().reward) == repr(odd)


def test_a_number_that_no_column_of_json_holds_costs_its_line_alone(full: Batch) -> None:
    next(iter(full.rollouts.values())).parts = {"a": float("nan")}
    with pytest.raises(ValueError, match="JSON compliant"):
        statements_of(full)


@contextmanager
def computed_inside() -> Iterator[dict[str, float]]:
    """Processor seconds of this thread from the first statement of the transaction to its last, but for ``COMMIT``."""
    found = {"began": 0.0, "ended": 0.0, "statements": 0}

    def look(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        inside = sql.startswith("UPDATE runs_run SET seq") or found["statements"]
        if not found["began"] and inside:
            found["began"] = time.thread_time()
        try:
            return execute(sql, params, many, context)
        finally:
            if inside:
                found["statements"] += 1
                found["ended"] = time.thread_time()

    with connection.execute_wrapper(look):
        yield found


def test_the_transaction_computes_next_to_nothing(written: Any) -> None:
    """Python made SQL of a thousand turns while the run's row was locked: two thirds of a batch's time."""
    w, dice = written(), random.Random(3)
    words = [f"word{number}" for number in range(500)]
    w.write(journal.RunStarted(kind="grpo", total_steps=1))
    for index in range(40):
        name = f"a1-s1-g0-i{index}"
        w.write(journal.RolloutStarted(rollout=name, step=1, group=0, index=index))
        for turn in range(20):
            messages = [Message(role="assistant", content=" ".join(dice.choices(words, k=40)))]
            w.write(journal.TurnAdded(rollout=name, turn=turn, messages=messages, tokens=40))
    with computed_inside() as inside:
        began = time.thread_time()
        assert w.projector.step()
        whole = time.thread_time() - began
    assert Turn.objects.count() == 800 and inside["statements"] >= 4
    assert inside["ended"] - inside["began"] < whole / 5


def test_all_statements_are_there_before_the_first_runs(written: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    w, order = written(), list[str]()
    made = statements_of

    def noted(batch: Batch) -> Any:
        order.append("made")
        return made(batch)

    monkeypatch.setattr("webapp.engine.projection.statements_of", noted)
    w.write(journal.RolloutStarted(rollout="a", step=1, group=0, index=0), journal.LogLine(message="hello"))

    def look(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        order.append(sql.split("(")[0].strip()[:24])
        return execute(sql, params, many, context)

    w.projector._attempt_row()
    with connection.execute_wrapper(look):
        assert w.projector.step()
    wrote = [place for place, what in enumerate(order) if what.startswith(("UPDATE", "INSERT"))]
    assert order.count("made") == 1 and order.index("made") < wrote[0]
