"""The journal in the database: every line once, whatever it holds."""

from __future__ import annotations

import math
import time
import uuid
from typing import Any

import pytest
from django.db import OperationalError, connection
from django.test.utils import CaptureQueriesContext

from envs.wire import Message
from training import journal
from training import journal as j
from training.errors import ErrorInfo
from webapp.common.storage import attempt_dir
from webapp.engine import attempts as leases
from webapp.engine.batch import rollout_id
from webapp.engine.history import LeaseLost
from webapp.engine.projection import Projector
from webapp.runs.metrics.models import MetricPoint
from webapp.runs.metrics.selectors import curves, last_values, metric_names, newest_values, sparklines
from webapp.runs.models import Attempt, RunEvent
from webapp.runs.rollouts.models import Rollout, Turn
from webapp.runs.states import RunState

pytestmark = pytest.mark.django_db


def _warnings(run: Any) -> list[str]:
    return [event.payload["message"] for event in RunEvent.objects.filter(run=run, kind="warning")]


def test_events_become_rows_once(written: Any) -> None:
    w, name = written(), str(uuid.uuid4())
    w.write(
        journal.RunStarted(kind="grpo", total_steps=20),
        journal.PhaseChanged(phase="generating", step=1),
        journal.RolloutStarted(rollout=name, step=1, group=0, index=0, row=3, task="sum"),
        journal.TurnAdded(rollout=name, turn=0, messages=[Message(role="user", content="2+3?")]),
        journal.TurnAdded(rollout=name, turn=1, messages=[Message(role="assistant", content="5")], tokens=4),
    )
    w.project()
    rollout = Rollout.objects.get(run=w.run)
    assert (rollout.status, rollout.turns, rollout.tokens, rollout.row) == ("running", 1, 4, 3)
    assert (w.run.state, w.run.phase, w.run.total_steps) == (RunState.RUNNING, "generating", 20)
    w.write(
        journal.RolloutFinished(rollout=name, status="completed", reward=0.5, parts={"a": None}, turns=1, tokens=4),
        journal.GroupScored(
            step=1, group=0, rollouts=[name], advantages=[1.5], reward_mean=0.5, reward_std=0.0, zero_variance=True
        ),
        journal.Metrics(step=1, values={"reward": 0.5, "loss": math.nan}),
        journal.CheckpointSaved(step=1, path="checkpoints/1", bytes=7),
        journal.LogLine(message="password=hunter2hunter2 fine"),
    )
    w.project()
    w.project()
    rollout.refresh_from_db()
    assert (rollout.status, rollout.reward, rollout.parts, rollout.advantage) == ("completed", 0.5, {"a": None}, 1.5)
    assert rollout.pk == rollout_id(w.run.pk, 1, name)
    assert math.isnan(MetricPoint.objects.get(run=w.run, name="loss").value)
    assert (w.run.step, w.run.last_reward) == (1, 0.5)
    assert w.run.checkpoints.get().path == "1/checkpoints/1"
    assert "hunter2" not in str(RunEvent.objects.filter(run=w.run, kind="log").get().payload)
    assert Turn.objects.filter(run=w.run).count() == 2
    assert Attempt.objects.get(run=w.run).journal_offset == w.journal.path.stat().st_size


def _turn(name: str, number: int) -> journal.TurnAdded:
    return journal.TurnAdded(rollout=name, turn=number, messages=[Message(role="assistant", content="x")], tokens=4)


@pytest.mark.parametrize("batches", [1, 2])
def test_a_rollout_that_begins_again_keeps_none_of_its_lost_turns(written: Any, batches: int) -> None:
    """Its environment was lost after turn 3, and played again it ends after turn 1."""
    w = written()
    w.write(journal.RolloutStarted(rollout="a", step=1, group=0, index=0), *(_turn("a", number) for number in range(4)))
    w.write(journal.RolloutStarted(rollout="b", step=1, group=0, index=1), _turn("b", 0))
    if batches == 2:
        w.project()
    w.write(journal.RolloutStarted(rollout="a", step=1, group=0, index=0, again=1), _turn("a", 0), _turn("a", 1))
    w.write(journal.RolloutFinished(rollout="a", status="completed", reward=1.0, turns=1, tokens=4))
    w.project()
    numbers = {
        name: list(Turn.objects.filter(rollout=rollout_id(w.run.pk, 1, name)).values_list("number", flat=True))
        for name in ("a", "b")
    }
    assert numbers == {"a": [0, 1], "b": [0]}
    assert Rollout.objects.filter(run=w.run).count() == 2
    first = Rollout.objects.get(pk=rollout_id(w.run.pk, 1, "a"))
    assert (first.status, first.turns, first.tokens, first.reward) == ("completed", 1, 4, 1.0)


def test_the_last_word_on_tokens_and_turns_is_the_rollouts_end(written: Any) -> None:
    """What was counted while it was in flight is not what stays."""
    w = written()
    w.write(journal.RolloutStarted(rollout="a", step=1, group=0, index=0), _turn("a", 1), _turn("a", 2))
    w.project()
    assert Rollout.objects.values_list("turns", "tokens").get(run=w.run) == (2, 8)
    w.write(journal.RolloutFinished(rollout="a", status="completed", reward=0.0, turns=3, tokens=13))
    w.project()
    assert Rollout.objects.values_list("turns", "tokens").get(run=w.run) == (3, 13)


def test_a_batch_after_the_first_reads_nothing(written: Any) -> None:
    w = written()
    w.write(
        journal.PhaseChanged(phase="generating", step=1), journal.RolloutStarted(rollout="a", step=1, group=0, index=0)
    )
    w.project()
    for number in (1, 2):
        w.write(_turn("a", number), journal.Metrics(step=number, values={"reward": 1.0}))
        with CaptureQueriesContext(connection) as queries:
            assert w.projector.step()
        assert [query["sql"] for query in queries if query["sql"].startswith("SELECT")] == []
    assert Rollout.objects.get(run=w.run).turns == 2


def test_a_batch_that_failed_is_read_again_and_counts_once(written: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    w = written()
    w.write(journal.RolloutStarted(rollout="a", step=1, group=0, index=0), _turn("a", 1))
    w.project()
    w.write(_turn("a", 2))
    with monkeypatch.context() as patch:

        def away(*_: Any) -> None:
            raise OperationalError("the server closed the connection")

        patch.setattr("webapp.engine.projection.write_rows", away)
        for _ in range(3):
            with pytest.raises(OperationalError):
                w.projector.step()
    w.project()
    rollout = Rollout.objects.get(run=w.run)
    assert (rollout.turns, rollout.tokens) == (2, 8)


def test_a_late_word_about_an_old_rollout_finds_it(written: Any) -> None:
    w = written()
    for step in (1, 2, 3, 4):
        w.write(journal.RolloutStarted(rollout=f"s{step}", step=step, group=0, index=0))
        w.project()
    assert len(w.projector._known) == 2  # the newest steps; what a run remembers does not grow
    w.write(_turn("s1", 1))
    w.project()
    assert Rollout.objects.get(run=w.run, step=1).turns == 1


def test_two_projectors_at_one_offset_write_it_once(written: Any) -> None:
    w = written()
    w.write(journal.Metrics(step=1, values={"reward": 1.0}), journal.LogLine(message="once"))
    Projector(w.lease).drain()
    Projector(w.lease).drain()
    assert RunEvent.objects.filter(run=w.run, kind="log").count() == 1


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (b"not json", "Invalid JSON"),
        (b"{}", "discriminator"),
        (b'{"type":"metrics","step":-1,"values":{"a":1}}', "out of range"),
        (b'{"type":"metrics","step":3000000000,"values":{"a":1}}', "out of range"),
        (b'{"type":"metrics","t":1e300,"step":1,"values":{"a":1}}', "out of range"),
        (b'{"type":"turn","rollout":"nobody","turn":0,"messages":[]}', "never started"),
        (b'{"type":"checkpoint","step":1,"path":"../../x","bytes":1}', "outside"),
        (b'{"type":"checkpoint","step":1,"path":"x","bytes":-1}', "cannot be stored"),
        (b"\xff\xfe\x00", "Invalid JSON"),
        (b"[" * 100_000, "Invalid JSON"),
    ],
)
def test_a_bad_line_is_named_and_passed(written: Any, line: bytes, says: str) -> None:
    w = written()
    w.write(journal.LogLine(message="before"))
    w.raw(line + b"\n")
    w.write(journal.Metrics(step=1, values={"reward": 1.0}))
    w.project()
    (warning,) = _warnings(w.run)
    assert "line 2" in warning and says.lower() in warning.lower()
    assert w.run.step == 1


def test_a_line_the_database_refuses_costs_only_itself(written: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    w = written()
    monkeypatch.setattr("webapp.engine.batch.checked_int", lambda value, what: value)
    w.write(
        journal.LogLine(message="a"),
        journal.Metrics(step=2**40, values={"reward": 1.0}),
        journal.Metrics(step=2, values={"r": 2.0}),
    )
    w.project()
    assert _warnings(w.run) == ["Journal line 2 was left out: the database refused it (DataError)"]
    assert MetricPoint.objects.filter(run=w.run).count() == 1


def test_a_torn_last_line_waits_for_its_end(written: Any) -> None:
    w = written()
    w.raw(b'{"type":"log","message":"ha')
    w.project()
    assert not RunEvent.objects.filter(run=w.run, kind="log").exists()
    w.raw(b'lf"}\n')
    w.project()
    assert RunEvent.objects.get(run=w.run, kind="log").payload["message"] == "half"


def test_text_is_made_storable(written: Any) -> None:
    w = written()
    w.write(journal.RolloutStarted(rollout="r", step=1, group=0, index=0, task="nul \x00 here"))
    w.raw(b'{"type":"turn","rollout":"r","turn":0,"messages":[{"role":"user","content":"half \\ud83d and \\u0000"}]}\n')
    w.project()
    assert Rollout.objects.get(run=w.run).task == "nul \u2400 here"
    assert Turn.objects.get(run=w.run).messages[0]["content"] == "half \ufffd and \u2400"


def test_a_fenced_writer_changes_nothing(written: Any) -> None:
    w = written()
    w.write(journal.Metrics(step=1, values={"reward": 1.0}))
    w.run.__class__.objects.filter(pk=w.run.pk).update(lease_owner="another")
    before = w.run.seq
    with pytest.raises(LeaseLost):
        w.project()
    w.run.refresh_from_db()
    assert not MetricPoint.objects.filter(run=w.run).exists() and w.run.seq >= before
    assert Attempt.objects.get(run=w.run).journal_offset == 0


def test_the_later_attempt_counts_from_its_first_step_on(written: Any) -> None:
    """The page of a run that had begun again at step 0 kept showing the reward of step 72, of a training that was
    lost; so did its tiles and the list of runs."""
    w = written()
    w.write(*[journal.Metrics(step=step, values={"reward": float(step)}) for step in range(1, 6)])
    w.project()
    w.run.__class__.objects.filter(pk=w.run.pk).update(state=RunState.QUEUED)
    again = leases.claim(w.run.pk)
    assert again is not None
    second = j.Journal(attempt_dir(w.run.pk, again.attempt))
    second.write(journal.RunStarted(kind="grpo", total_steps=9, from_step=2))
    Projector(again).drain()
    assert curves(w.run)["reward"]["steps"] == [1, 2, 3, 4, 5]  # nothing has taken their place yet
    second.write(journal.Metrics(step=3, values={"reward": 30.0}))
    second.close()
    Projector(again).drain()
    assert curves(w.run)["reward"] == {"steps": [1, 2, 3], "values": [1.0, 2.0, 30.0], "attempts": [1, 1, 2]}
    assert curves(w.run, span=(2, 2))["reward"]["steps"] == [2] and curves(w.run, [], span=(2, 2)) == {}
    assert newest_values(w.run, ["reward", "loss"], 2) == {"reward": [2.0, 30.0]}
    assert last_values(w.run) == {"reward": 30.0}
    assert sparklines([w.run.pk]) == {w.run.pk: [1.0, 2.0, 30.0]}
    assert metric_names(w.run) == ["reward"]


def test_curves_are_thinned_but_keep_spikes(written: Any) -> None:
    w = written()
    values = [0.0] * 5000
    values[3333], values[4999] = 99.0, 7.0
    w.write(*[journal.Metrics(step=step, values={"a": value}) for step, value in enumerate(values, 1)])
    w.project()
    curve = curves(w.run, ["a"], max_points=200)["a"]
    assert len(curve["steps"]) <= 201 and 99.0 in curve["values"] and curve["values"][-1] == 7.0


def test_excluded_rollouts_keep_their_error(written: Any) -> None:
    w = written()
    error = ErrorInfo(code="environment_timeout", boundary="environment", message="slow")
    w.write(
        journal.RolloutStarted(rollout="r", step=1, group=0, index=0),
        journal.RolloutFinished(rollout="r", status="excluded", error=error),
    )
    w.project()
    found = Rollout.objects.get(run=w.run)
    assert (found.reward, found.error["code"]) == (None, "environment_timeout")


def test_ten_thousand_points_a_second(written: Any) -> None:
    """On one core 60,000 points are in the database within six seconds (measured: about one)."""
    w = written()
    names = [f"m/{number}" for number in range(60)]
    w.write(*[journal.Metrics(step=step, values=dict.fromkeys(names, 1.0)) for step in range(1, 1001)])
    began = time.perf_counter()
    w.project()
    took = time.perf_counter() - began
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM metrics_metricpoint WHERE run_id = %s", [w.run.pk])
        assert cursor.fetchone() == (60_000,)
    print(f"projection: {60_000 / took:,.0f} points/s")
    assert took < 6
