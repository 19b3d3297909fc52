"""What a batch of events reads of the database: rollouts and checkpoints that earlier batches wrote."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from django.utils import timezone

from training import journal
from webapp.engine.batch import Batch, rollout_id
from webapp.runs.models import Run
from webapp.runs.registry.models import Checkpoint
from webapp.runs.rollouts.models import Rollout

pytestmark = pytest.mark.django_db
T = 1_700_000_000.5
AT = datetime(2023, 11, 14, 22, 13, 20, 500_000, UTC)


def _rollout(run: Run, name: str, attempt: int = 1) -> Rollout:
    fields: dict[str, Any] = {"step": 1, "group": 0, "index": 0, "seq": 1, "started_at": timezone.now()}
    return Rollout.objects.create(id=rollout_id(run.pk, attempt, name), run=run, attempt=attempt, **fields)


def _turn(name: str) -> journal.TurnAdded:
    return journal.TurnAdded(rollout=name, turn=1, messages=[], tokens=4, t=T)


def test_rollouts_that_events_go_on_with_are_read_in_one_query(make_run: Any, django_assert_num_queries: Any) -> None:
    """Neither those that are known, nor those that begin in the batch, nor those of another attempt or run."""
    run, other = make_run(), make_run()
    a, b = _rollout(run, "a"), _rollout(run, "b")
    for name in ("begins", "known", "silent"):
        _rollout(run, name)
    _rollout(run, "a", attempt=2)
    _rollout(other, "a")
    known = Rollout(pk=rollout_id(run.pk, 1, "known"), tokens=77)
    batch = Batch(run, 1, {known.pk: known})
    scored = journal.GroupScored(
        step=1, group=0, rollouts=["b", "known"], advantages=[1.0, 2.0], reward_mean=0, reward_std=0, zero_variance=True
    )
    begins = journal.RolloutStarted(rollout="begins", step=1, group=0, index=0)
    with django_assert_num_queries(1):
        batch.preload([journal.LogLine(message="x"), _turn("a"), scored, begins, _turn("begins"), _turn("known")])
    assert batch._known == {row.pk: row for row in (known, a, b)} and batch._known[known.pk].tokens == 77
    batch.add(_turn("a"))
    assert {row.pk: row.tokens for row in batch.rollouts.values()} == {a.pk: 4}
    with django_assert_num_queries(0):
        batch.preload([_turn("a"), journal.LogLine(message="y")])


def _checkpoint(run: Run, path: str, **over: Any) -> Checkpoint:
    fields: dict[str, Any] = {"attempt": 1, "step": 1, "bytes": 1, "seq": 1, "created_at": AT}
    return Checkpoint.objects.create(project=run.project, run=run, path=path, **fields | over)


@pytest.mark.parametrize("why", ["torn", "old"])
def test_a_checkpoint_of_an_earlier_attempt_is_marked_and_no_other(make_run: Any, why: Any) -> None:
    run, other = make_run(), make_run()
    before = datetime(2023, 1, 1, tzinfo=UTC)
    gone = _checkpoint(run, "1/checkpoint-9", torn_at=before, removed_at=before)
    _checkpoint(run, "1/checkpoint-8")
    _checkpoint(other, "1/checkpoint-9")
    batch = Batch(run, 2)
    batch.add(journal.CheckpointsRemoved(paths=["1/checkpoint-9", "checkpoint-9", "x/y", "1/a/b"], why=why, t=T))
    (row,) = batch.checkpoints.values()
    assert row == gone and row.state == ("torn" if why == "torn" else "removed")
    assert (row.torn_at, row.removed_at) == ((AT, before) if why == "torn" else (before, AT))
    assert batch.events == [
        ("checkpoints_removed", {"why": why, "paths": ["1/checkpoint-9", "2/checkpoint-9", "2/x/y", "1/a/b"]}, AT)
    ]
