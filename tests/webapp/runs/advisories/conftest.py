"""Recorded runs made of the doctor's planted ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import groupby
from typing import Any
from uuid import uuid5

import pytest
from django.db import connection
from django.db.models import AutoField, Model
from django.utils import timezone
from psycopg.sql import SQL, Identifier

from training.doctor.digest import StepFacts
from webapp.runs.metrics.models import DeviceStep, MetricPoint
from webapp.runs.models import Attempt, Run
from webapp.runs.rollouts.models import Rollout, Turn
from webapp.runs.states import RunState

Record = Callable[..., None]


@pytest.fixture
def running(make_run: Any) -> Run:
    """A run of ours that trains."""
    run: Run = make_run(name="planted", state=RunState.RUNNING, attempt=1, last_event_at=timezone.now())
    return run


@pytest.fixture
def record() -> Record:
    """``record(run, steps)``: the steps as the projection leaves them, of the run's newest attempt."""

    def make(run: Run, steps: Iterable[StepFacts], *, loops: bool = False) -> None:
        now, found = timezone.now(), list(steps)
        _copy_in(
            MetricPoint(run=run, attempt=run.attempt, step=facts.step, name=name, value=value, seq=1)
            for facts in found
            for name, value in facts.metrics.items()
        )
        _copy_in(
            DeviceStep(
                run=run,
                attempt=run.attempt,
                step=facts.step,
                host=use.host,
                device=use.device,
                at=now,
                lane={"step": facts.step, **use._asdict()},
                held=False,
            )
            for facts in found
            for use in facts.devices
        )
        rows = [_row(run, facts, place) for facts in found for place in range(len(facts.rollouts))]
        _copy_in(rows)
        turn = [{"role": "assistant", "content": "", "tool_calls": [CALL] * 4}]
        _copy_in(
            Turn(rollout=row, run=run, number=number, messages=messages, seq=1)
            for row in (rows if loops else [])
            for number, messages in ((0, [{"role": "assistant", "content": "not the policy's"}]), (1, turn))
        )
        last = found[-1].step
        attempt = {"owner": "w", "started_at": now, "first_step": found[0].step - 1}
        row, _made = Attempt.objects.get_or_create(run=run, number=run.attempt, defaults=attempt)
        Attempt.objects.filter(pk=row.pk).update(last_step=last)
        Run.objects.filter(pk=run.pk).update(step=last, last_step_at=now)
        run.refresh_from_db()

    return make


def _copy_in(rows: Iterable[Model]) -> None:
    """Insert objects of one model by COPY: for the thousands of a recorded run in half the time of INSERT."""
    for model, group in groupby(rows, type):
        fields = [field for field in model._meta.concrete_fields if not isinstance(field, AutoField)]
        names = SQL(", ").join(Identifier(field.column) for field in fields)
        statement = SQL("COPY {} ({}) FROM STDIN").format(Identifier(model._meta.db_table), names)
        with connection.cursor() as cursor, cursor.copy(statement) as copy:
            for row in group:
                copy.write_row([field.get_db_prep_save(field.pre_save(row, True), connection) for field in fields])


CALL = {"id": "1", "name": "search", "arguments": {"query": "the same"}}


def _row(run: Run, facts: StepFacts, place: int) -> Rollout:
    fact, now = facts.rollouts[place], timezone.now()
    return Rollout(
        id=uuid5(run.pk, f"{run.attempt}/{fact.name}"),
        run=run,
        attempt=run.attempt,
        step=facts.step,
        group=fact.group,
        index=place,
        status="excluded" if fact.excluded else "completed",
        reward=fact.reward,
        env_parts={} if fact.success is None else {"task_success": fact.success},
        parse_errors=fact.parse_errors,
        calls=fact.calls,
        failed_calls=fact.failed_calls,
        tokens=fact.tokens,
        turns=fact.turns,
        seconds=fact.seconds,
        started_at=now,
        finished_at=now,
        seq=1,
    )
