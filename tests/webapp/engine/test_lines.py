"""Lines of a journal and the rows that they become: offsets, numbers, and rollouts that no attempt will finish."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from envs.wire import Message
from training import journal
from training import journal as j
from webapp.common.storage import attempt_dir
from webapp.engine import projection
from webapp.engine.history import Lease, LeaseLost
from webapp.engine.projection import Line, Projector, close_rows, parse_line, read_lines, rollouts_close
from webapp.runs.metrics.models import MetricPoint
from webapp.runs.models import Attempt, Run, RunEvent
from webapp.runs.registry.models import Checkpoint
from webapp.runs.rollouts.models import Rollout, RolloutGroup, Turn

MIB = 1 << 20


def test_whole_lines_are_read_after_an_offset(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    assert read_lines(path, 0, 0) == []
    path.write_bytes(b"one\ntwo\nthree\nto")
    assert read_lines(path, 0, 0) == [Line(1, 4, b"one\n"), Line(2, 8, b"two\n"), Line(3, 14, b"three\n")]
    assert read_lines(path, 4, 1) == [Line(2, 8, b"two\n"), Line(3, 14, b"three\n")]
    assert read_lines(path, 14, 3) == []


def test_a_batch_has_a_limit_of_lines_and_of_bytes(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_bytes(b"x\n" * 5001)
    assert len(read_lines(path, 0, 0)) == 5000 and read_lines(path, 10_000, 5000) == [Line(5001, 10_002, b"x\n")]
    path.write_bytes((b"y" * 999 + b"\n") * 3000)
    assert len(read_lines(path, 0, 0)) == 1049  # the line that passes 1 MiB is the last one
    assert len(read_lines(path, 1_000_000, 1000)) == 1049
    path.write_bytes((b"y" * 1023 + b"\n") * 1025)
    assert len(read_lines(path, 0, 0)) == 1024  # exactly 1 MiB is enough


def test_a_line_beyond_16_mib_is_passed(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    long = b"z" * (18 * MIB) + b"\n"
    path.write_bytes(b"one\n" + long + b"two\n")
    assert read_lines(path, 4, 1) == [Line(2, 4 + len(long), None)]
    assert read_lines(path, 4 + len(long), 2) == [Line(3, 8 + len(long), b"two\n")]
    assert parse_line(Line(2, 9, None)) == "it is longer than 16 MiB"
    path.write_bytes(b"one\n" + long[:-1])  # its end is still to come
    assert read_lines(path, 4, 1) == []


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b'{"type":"metrics","step":"x","values":{}}', "metrics.step: Input should be a valid integer"),
        (b'{"type":"what"}', "Input tag 'what' found using 'type' does not match any of the expected tags"),
        (b"{", "Invalid JSON: EOF while parsing an object at line 1 column 1"),
    ],
)
def test_why_a_line_is_no_event(data: bytes, reason: str) -> None:
    found = parse_line(Line(1, 1, data))
    assert isinstance(found, str) and found.startswith(reason) and len(found) <= 300


def test_why_a_line_is_no_event_is_reported_in_300_characters() -> None:
    found = parse_line(Line(1, 1, b'{"type":"metrics","step":1,"values":{"%s":"x"}}' % (b"n" * 400)))
    assert isinstance(found, str) and found == "metrics.values." + "n" * 285
    found = parse_line(Line(1, 1, b'{"type":"%s"}' % (b"n" * 400)))
    assert isinstance(found, str) and found == "Input tag '" + "n" * 289


def test_text_that_json_refuses_is_read_with_what_can_be_shown() -> None:
    found = parse_line(Line(1, 1, b'{"type":"log","message":"half \\ud83d, nul \\u0000, \xff"}'))
    assert isinstance(found, journal.LogLine) and found.message == "half \ufffd, nul \u2400, \ufffd"
    plain = parse_line(Line(1, 1, b'{"type":"log","message":"whole \xe2\x82\xac","level":"error"}'))
    assert isinstance(plain, journal.LogLine) and (plain.message, plain.level) == ("whole €", "error")


@pytest.mark.django_db
def test_rows_are_numbered_in_the_order_in_which_readers_need_them(written: Any) -> None:
    """Rollouts before their turns, then groups, checkpoints, points and events, one after another."""
    w = written()
    before = Run.objects.get(pk=w.run.pk).seq
    messages = [Message(role="assistant", content="x")]
    w.write(
        journal.LogLine(message="first"),
        journal.Metrics(step=1, values={"reward": 1.0, "loss": 2.0}),
        journal.RolloutStarted(rollout="a", step=1, group=0, index=0),
        journal.RolloutStarted(rollout="b", step=1, group=0, index=1),
        journal.TurnAdded(rollout="a", turn=0, messages=messages),
        journal.GroupScored(
            step=1, group=0, rollouts=["a"], advantages=[0.0], reward_mean=0, reward_std=0, zero_variance=True
        ),
        journal.CheckpointSaved(step=1, path="checkpoint-1", bytes=3),
        journal.LogLine(message="last"),
    )
    w.project()
    rows = [
        *Rollout.objects.order_by("index").values_list("seq", flat=True),
        Turn.objects.get().seq,
        RolloutGroup.objects.get().seq,
        Checkpoint.objects.get().seq,
        *MetricPoint.objects.order_by("seq").values_list("seq", flat=True),
        *RunEvent.objects.filter(kind="log").order_by("seq").values_list("seq", flat=True),
    ]
    assert rows == list(range(before + 1, before + 10))
    # running comes after what the batch holds
    assert w.run.seq == before + 10
    log = RunEvent.objects.filter(kind="log").order_by("seq")
    assert [(event.payload["message"], event.attempt) for event in log] == [("first", 1), ("last", 1)]
    points = MetricPoint.objects.values_list("name", "step", "attempt", "value")
    assert set(points) == {("reward", 1, 1, 1.0), ("loss", 1, 1, 2.0)}


@pytest.mark.django_db
def test_what_is_written_again_replaces_what_was(written: Any) -> None:
    w = written()
    w.write(
        journal.Metrics(step=1, values={"reward": 1.0}), journal.CheckpointSaved(step=1, path="checkpoint-1", bytes=3)
    )
    w.project()
    first = MetricPoint.objects.get().seq
    w.write(
        journal.Metrics(step=1, values={"reward": 4.0}), journal.CheckpointSaved(step=1, path="checkpoint-1", bytes=5)
    )
    w.project()
    point, checkpoint = MetricPoint.objects.get(), Checkpoint.objects.get()
    assert point.value == 4.0 and point.seq > first and checkpoint.bytes == 5


@pytest.mark.django_db
def test_the_attempt_and_the_run_are_moved_with_the_rows(written: Any) -> None:
    w = written()
    w.write(journal.Metrics(step=3, values={"reward": 1.0}), journal.RunFinished(status="paused", step=3))
    before = timezone.now()
    w.project()
    row = Attempt.objects.get()
    assert (row.journal_line, row.last_step, row.outcome["status"]) == (2, 3, "paused")
    assert w.run.last_event_at >= before and w.run.step == 3
    assert w.projector.run is not None and w.projector.run.step == 3 and w.projector.run.state == "running"


@pytest.mark.django_db
@pytest.mark.parametrize("clock_s", [0.0, 3600.0, -90.0])
def test_times_are_put_right_by_the_clock_of_the_attempts_host(written: Any, clock_s: float) -> None:
    """Whoever projects them: the host itself, or another after it was lost."""
    w = written()
    Attempt.objects.filter(run=w.run).update(clock_s=clock_s)
    at = timezone.now().replace(microsecond=250_000)
    there = (at + timedelta(seconds=clock_s)).timestamp()
    w.write(journal.RolloutStarted(rollout="a", step=1, group=0, index=0, row=0, task="t"))
    w.write(journal.CheckpointSaved(step=1, path="checkpoints/1", bytes=1))
    path, lines = attempt_dir(w.run.pk, 1) / "journal.jsonl", []
    for line in path.read_text().splitlines():  # the writer has put its own time there
        lines.append(json.dumps(json.loads(line) | {"t": there}))
    path.write_text("\n".join(lines) + "\n")
    w.project()
    assert Rollout.objects.get().started_at == Checkpoint.objects.get().created_at == at


@pytest.mark.django_db
@pytest.mark.parametrize(("found_s", "kept_s"), [(0.0, 0.0), (3597.0, 3600.0), (-7.0, -7.0)])
def test_a_clock_that_is_set_during_the_attempt_counts_from_then_on(
    written: Any, found_s: float, kept_s: float
) -> None:
    """By its own host, and by another that projects what follows. A difference of seconds is none."""
    w = written()
    Attempt.objects.filter(run=w.run).update(clock_s=3600.0)
    ahead_s, at = 3600.0, timezone.now().replace(microsecond=250_000)
    w.projector.ahead_s = lambda: ahead_s

    def write(index: int, there_s: float) -> None:
        w.write(journal.RolloutStarted(rollout=str(index), step=1, group=0, index=index, row=0, task="t"))
        path = attempt_dir(w.run.pk, 1) / "journal.jsonl"
        *before, last = path.read_text().splitlines(keepends=True)
        moved = json.loads(last) | {"t": (at + timedelta(seconds=there_s)).timestamp()}
        path.write_text("".join([*before, json.dumps(moved) + "\n"]))

    write(0, 3600.0)
    w.project()
    ahead_s = found_s
    write(1, kept_s)
    w.project()
    assert Attempt.objects.get().clock_s == kept_s
    write(2, kept_s)
    Projector(w.lease).drain()
    assert list(Rollout.objects.order_by("index").values_list("started_at", flat=True)) == [at, at, at]


@pytest.mark.django_db
def test_lines_of_an_earlier_attempt_leave_the_run_as_it_is(written: Any) -> None:
    w = written()
    w.write(journal.Metrics(step=3, values={"reward": 1.0}))
    Run.objects.update(attempt=2)
    Attempt.objects.create(run=w.run, number=2, owner=w.lease.owner, started_at=timezone.now())
    Projector(Lease(w.run.pk, 2, w.lease.owner), attempt=1).drain()
    run = Run.objects.get()
    assert (run.step, run.state, run.last_event_at) == (0, "preparing", None)
    assert MetricPoint.objects.get().attempt == 1 and Attempt.objects.get(number=1).last_step == 3


@pytest.mark.django_db
def test_another_folder_can_be_read(written: Any, tmp_path: Path) -> None:
    w = written()
    other = j.Journal(tmp_path)
    other.write(journal.Metrics(step=8, values={"reward": 1.0}))
    other.close()
    Projector(w.lease, folder=tmp_path).drain()
    assert MetricPoint.objects.get().step == 8
    Run.objects.all().delete()
    with pytest.raises(LeaseLost, match=r"^The run has gone\.$"):
        Projector(w.lease, folder=tmp_path).drain()


@pytest.mark.django_db
def test_nothing_is_read_where_nothing_was_added(written: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    w = written()
    w.write(journal.LogLine(message="a"))
    assert w.projector.step() and not w.projector.step()
    monkeypatch.setattr(projection, "read_lines", lambda *_: pytest.fail("nothing was added"))
    assert not w.projector.step()


@pytest.mark.django_db
def test_rollouts_in_flight_are_closed_with_their_attempt(written: Any) -> None:
    w = written()
    w.write(*(journal.RolloutStarted(rollout=name, step=1, group=0, index=at) for at, name in enumerate("abc")))
    w.write(journal.RolloutFinished(rollout="c", status="completed", reward=1.0))
    w.project()
    Rollout.objects.filter(index=1).update(attempt=2)
    before = Run.objects.get().seq
    rollouts_close(w.lease, upto=1)
    rows = {row.index: row for row in Rollout.objects.all()}
    assert [rows[at].status for at in (0, 1, 2)] == ["excluded", "running", "completed"]
    assert rows[0].error == {
        "code": "attempt_ended",
        "boundary": "trainer",
        "message": "The attempt ended while this rollout was in flight.",
        "hint": "",
    }
    assert rows[0].seq == before + 1 == Run.objects.get().seq and rows[0].finished_at is not None
    at = datetime(2024, 1, 2, tzinfo=UTC)
    close_rows(w.run.pk, [rows[1]], at)
    assert Rollout.objects.get(index=1).finished_at == at
    close_rows(w.run.pk, [])
    assert Run.objects.get().seq == before + 2
    with pytest.raises(LeaseLost):
        rollouts_close(Lease(w.run.pk, 1, "another"), upto=1)


@pytest.mark.django_db
def test_calls_and_cost_are_kept_and_empty_where_they_were_not_counted(written: Any) -> None:
    w = written()
    w.write(*(journal.RolloutStarted(rollout=name, step=1, group=0, index=at) for at, name in enumerate("ab")))
    w.write(journal.RolloutFinished(rollout="a", status="completed", calls=3, failed_calls=1, cost=0.25))
    w.write(journal.RolloutFinished(rollout="b", status="completed"))
    w.project()
    rows = Rollout.objects.order_by("index").values_list("calls", "failed_calls", "cost")
    assert list(rows) == [(3, 1, 0.25), (None, None, None)]


@pytest.mark.django_db
def test_before_the_first_line_there_is_nothing(written: Any, tmp_path: Path) -> None:
    w = written()
    projector = Projector(w.lease, folder=tmp_path / "not-there")
    assert not projector.step() and Projector(w.lease).run is None
    w.write(journal.LogLine(message="a line that begins nothing"))
    w.project()
    assert (w.run.state, Projector(w.lease).run) == ("preparing", None)


@pytest.mark.django_db
def test_two_runs_are_projected_apart(written: Any) -> None:
    """Their attempts have the same number and are at the same offset."""
    first, second = written(), written()
    for w in (first, second):
        w.write(journal.RolloutStarted(rollout="a", step=1, group=0, index=0))
    second.project()
    assert list(Rollout.objects.values_list("run", flat=True)) == [second.run.pk]
    assert Attempt.objects.get(run=first.run).journal_offset == 0
    first.project()
    rollouts_close(second.lease, upto=1)
    assert {row.run_id: row.status for row in Rollout.objects.all()} == {
        first.run.pk: "running",
        second.run.pk: "excluded",
    }


@pytest.mark.django_db
def test_a_projector_that_was_overtaken_writes_nothing(written: Any) -> None:
    """It still holds the offset at which it stopped, and would write the lines after it a second time."""
    w = written()
    w.write(journal.LogLine(message="first"))
    w.project()
    w.write(journal.LogLine(message="second"))
    Projector(w.lease).drain()
    with pytest.raises(LeaseLost, match=r"^Another projector has moved on\.$"):
        w.projector.step()
    assert RunEvent.objects.filter(kind="log").count() == 2


@pytest.mark.django_db
def test_viewers_get_the_newest_number_after_the_commit(
    written: Any, monkeypatch: pytest.MonkeyPatch, django_capture_on_commit_callbacks: Any
) -> None:
    nudges: list[tuple[Any, int]] = []
    monkeypatch.setattr(projection, "nudge", lambda run_id, seq: nudges.append((run_id, seq)))
    w = written()
    before = Run.objects.get().seq
    w.write(*(journal.RolloutStarted(rollout=name, step=1, group=0, index=at) for at, name in enumerate("abc")))
    with django_capture_on_commit_callbacks(execute=True):
        w.project()
        assert nudges == []
    with django_capture_on_commit_callbacks(execute=True):
        rollouts_close(w.lease, upto=1)
    assert nudges == [(w.run.pk, before + 3), (w.run.pk, before + 6)]
