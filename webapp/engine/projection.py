"""From the journal to the database, exactly once.

1. Read whole lines after ``Attempt.journal_offset``, about a megabyte of them, and turn them into rows, and the rows
   into statements (``rows.py``): the transaction, which others wait for, computes nothing.
2. Open a transaction. Taking the batch's ``seq`` numbers is also the fence: it fails unless (attempt, owner) still hold
   the run.
3. Upsert the rows, move the offset by compare-and-set, update the run, commit. A crash before the commit leaves
   nothing, after it everything; either way the next reader continues at the offset.
4. After the commit, nudge the viewers.

A line that is not an event, or one that the database refuses, becomes a warning event that names its number, and is
skipped.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO
from uuid import UUID

from django.db import DataError, IntegrityError, transaction
from django.db.models.functions import Now
from pydantic import ValidationError

from training.journal import JOURNAL_NAME, Event, parse_event
from webapp.common import database
from webapp.common.storage import attempt_dir
from webapp.common.text import clean_json
from webapp.common.words import Outcome
from webapp.endpoints.spending import run_used
from webapp.engine.batch import BadEvent, Batch, statements_of, write_rows
from webapp.engine.history import Lease, LeaseLost, run_transition, seq_take
from webapp.runs.models import Attempt, Run
from webapp.runs.nudge import nudge
from webapp.runs.rollouts.figures import judge_functions
from webapp.runs.rollouts.models import Rollout, RolloutStatus
from webapp.runs.states import RunState

BATCH_BYTES = 1 << 20
BATCH_LINES = 5_000
LINE_BYTES_MAX = 16 << 20
ATTEMPT_ENDED = {
    "code": "attempt_ended",
    "boundary": "trainer",
    "message": "The attempt ended while this rollout was in flight.",
    "hint": "",
}


@dataclass(frozen=True)
class Line:
    """One line of a journal; ``data`` is ``None`` for one that is too long to be an event."""

    number: int
    end: int
    data: bytes | None


def read_lines(path: Path, offset: int, number: int, until: int | None = None) -> list[Line]:
    """The next whole lines after ``offset`` that end by ``until``; ``number`` lines lie before it. A torn last line is
    left for later."""
    lines: list[Line] = []
    if not path.exists():
        return lines
    with open(path, "rb") as file:
        file.seek(offset)
        while len(lines) < BATCH_LINES and file.tell() - offset < BATCH_BYTES:
            data: bytes | None = file.readline(LINE_BYTES_MAX)
            if data is not None and not data.endswith(b"\n"):
                if len(data) < LINE_BYTES_MAX or not _skip_line(file):
                    break
                data = None
            if until is not None and file.tell() > until:
                break
            lines.append(Line(number + len(lines) + 1, file.tell(), data))
    return lines


def _skip_line(file: BinaryIO) -> bool:
    while part := file.readline(1 << 20):
        if part.endswith(b"\n"):
            return True
    return False


class Projector:
    """Projects the journal of one attempt under a lease; ``attempt`` may be an earlier one than the lease's.

    It remembers the rows that it wrote last, since no other process writes them while the lease is valid: a batch then
    costs writes alone. After any failure it forgets them and reads again.
    """

    def __init__(self, lease: Lease, attempt: int | None = None, folder: Path | None = None) -> None:
        self.lease = lease
        self.number = lease.attempt if attempt is None else attempt
        self.path = (folder or attempt_dir(lease.run_id, self.number)) / JOURNAL_NAME
        self.shipped: Callable[[], int] | None = None
        """Up to which byte another host could read the journal, where this host may be lost: nothing beyond it is
        projected, so the database never knows of lines that no file has."""
        self.ahead_s: Callable[[], float] | None = None
        """By how many seconds the clock of the journal's writer is ahead now. Only its own host knows; it may be set
        while the attempt lasts."""
        self._size = -1
        self._forget_rows()

    def step(self) -> bool:
        """Project the next batch; ``False`` when there is no whole line left. Raises ``LeaseLost`` when fenced."""
        size = self.path.stat().st_size if self.path.exists() else 0
        until = self.shipped() if self.shipped is not None else None
        size = size if until is None else min(size, until)
        if size == self._size:
            return False
        row = self._attempt_row()
        lines = read_lines(self.path, row.journal_offset, row.journal_line, until)
        if not lines:
            self._size = size
            return False
        try:
            self._project_lines(lines)
        except BaseException:
            self._forget_rows()
            raise
        return True

    def drain(self) -> None:
        """Project all that is there."""
        while self.step():
            pass

    @property
    def run(self) -> Run | None:
        """The run with all that was projected last; ``None`` before the first line."""
        return self._run

    def _forget_rows(self) -> None:
        self._row: Attempt | None = None
        self._run: Run | None = None
        self._known: dict[UUID, Rollout] = {}
        self._functions: dict[str, str] | None = None

    def _attempt_row(self) -> Attempt:
        """The attempt's row; reads the run's row with it."""
        if self._row is None:
            self._row = Attempt.objects.select_related("run").filter(run=self.lease.run_id, number=self.number).first()
            if self._row is None:
                raise LeaseLost("The run has gone.")
            self._run = self._row.run
        return self._row

    def _project_lines(self, lines: list[Line]) -> None:
        """Write the lines; if the database refuses one of them, halve until it is found and leave only that one out."""
        row = self._attempt_row()
        assert self._run is not None  # noqa: S101 - it came with the attempt
        try:
            self._write_batch(row, lines, self._build_batch(self._run, row, lines))
        except (DataError, IntegrityError, ValueError) as exc:
            self._forget_rows()
            if len(lines) == 1:
                row = self._attempt_row()
                empty = Batch(self._run, self.number, functions={})
                empty.warn(lines[0].number, f"the database refused it ({type(exc).__name__})", database.now())
                self._write_batch(row, lines, empty)
                return
            half = len(lines) // 2
            self._project_lines(lines[:half])
            self._project_lines(lines[half:])

    def _build_batch(self, run: Run, row: Attempt, lines: list[Line]) -> Batch:
        if self._functions is None:
            self._functions = judge_functions(run)
        batch = Batch(run, self.number, self._known, self._functions)
        batch.attempt_changes["last_step"] = row.last_step
        events: list[tuple[int, Event | str]] = [(line.number, parse_line(line)) for line in lines]
        batch.preload([event for _, event in events if isinstance(event, Event)])
        at = database.now()
        if self.ahead_s is not None and abs((ahead := self.ahead_s()) - row.clock_s) >= database.APART_S:
            row.clock_s = batch.attempt_changes["clock_s"] = ahead  # from these lines on, also where another host reads
        for number, event in events:
            if isinstance(event, str):
                batch.warn(number, event, at)
                continue
            event.t -= row.clock_s
            try:
                batch.add(event)
            except BadEvent as exc:
                batch.warn(number, str(exc), at)
        return batch

    def _write_batch(self, row: Attempt, lines: list[Line], batch: Batch) -> None:
        run_id, end = self.lease.run_id, lines[-1]
        statements = statements_of(batch)
        changes = {"journal_offset": end.end, "journal_line": end.number, **batch.attempt_changes}
        with transaction.atomic():
            first = seq_take(run_id, len(batch), lease=self.lease)
            seq = first + len(batch) - 1
            write_rows(statements, first)
            _write_used(batch)
            if not Attempt.objects.filter(pk=row.pk, journal_offset=row.journal_offset).update(**changes):
                raise LeaseLost("Another projector has moved on.")
            if self.number == self.lease.attempt:
                # Also a hidden one: an import.
                Run.all_objects.filter(pk=run_id).update(**batch.run_changes, last_event_at=Now())
                if batch.begins and batch.run.state == RunState.PREPARING:
                    run_transition(run_id, RunState.RUNNING, sources=frozenset({RunState.PREPARING}), lease=self.lease)
            if len(batch):
                transaction.on_commit(lambda: nudge(run_id, seq))
        self._remember_rows(row, changes, batch)

    def _remember_rows(self, row: Attempt, changes: dict[str, Any], batch: Batch) -> None:
        if batch.begins:
            batch.run.state = RunState.RUNNING  # or on its way out; it will not be preparing again under this lease
        for target, values in ((row, changes), (batch.run, batch.run_changes)):
            for name, value in values.items():
                setattr(target, name, value)
        self._known |= batch.rollouts
        newest = max((rollout.step for rollout in batch.rollouts.values()), default=0)
        if newest:
            self._known = {key: rollout for key, rollout in self._known.items() if rollout.step >= newest - 1}


def _write_used(batch: Batch) -> None:
    """Write the run's use of its endpoint; the config says which one, since a worker resolved it."""
    run, name = batch.run, str(batch.run.resolved.get("endpoint", {}).get("name") or "")
    for tokens, cost, at in batch.used.values() if name else ():
        run_used(
            project_id=run.project_id,
            name=name,
            run_id=run.pk,
            run_name=run.name,
            tokens=tokens,
            cost=cost,
            at=at,
        )


def parse_line(line: Line) -> Event | str:
    """The line's event, or why it is none. Lone surrogates and NUL are repaired rather than refused."""
    if line.data is None:
        return f"it is longer than {LINE_BYTES_MAX >> 20} MiB"
    try:
        return parse_event(line.data)
    except ValidationError as exc:
        try:
            repaired = json.dumps(clean_json(json.loads(line.data.decode("utf-8", "replace")))).encode()
            return parse_event(repaired)
        except (ValueError, RecursionError):
            problem = exc.errors(include_url=False, include_input=False)[0]
            where = ".".join(str(part) for part in problem["loc"])
            return f"{where}: {problem['msg']}"[:300] if where else str(problem["msg"])[:300]


def rollouts_close(lease: Lease, *, upto: int) -> None:
    """Exclude the rollouts that attempts up to ``upto`` left in flight: no trainer will finish them."""
    with transaction.atomic():
        seq_take(lease.run_id, 0, lease=lease)
        rows = Rollout.objects.filter(run_id=lease.run_id, status=RolloutStatus.RUNNING, attempt__lte=upto)
        close_rows(lease.run_id, list(rows))


def close_rows(run_id: UUID, rows: list[Rollout], at: datetime | None = None) -> None:
    """Mark these rollouts as excluded because their attempt ended."""
    if not rows:
        return
    first = seq_take(run_id, len(rows))
    for number, row in enumerate(rows, start=first):
        row.status, row.error, row.seq = RolloutStatus.EXCLUDED, ATTEMPT_ENDED, number
        row.outcome, row.judged_by, row.finished_at = Outcome.EXCLUDED, "", at or database.now()
    changed = ["status", "outcome", "judged_by", "error", "seq", "finished_at"]
    Rollout.objects.bulk_update(rows, changed, batch_size=500)
    transaction.on_commit(lambda: nudge(run_id, first + len(rows) - 1))
