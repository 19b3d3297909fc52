"""An import of minutes is many short transactions, shown once it is whole; one that is cut leaves nothing."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from django.db import connection
from django.utils import timezone

from tests.working import done
from training import journal as j
from training import journal as journal_module
from training.errors import DataError
from webapp.common.storage import run_dir
from webapp.engine import projection
from webapp.engine.projection import Projector
from webapp.foreign import importing
from webapp.foreign.importing import cut_imports_discard, run_import
from webapp.ops.management.commands.run_clockwork import tidy
from webapp.people.teams.models import Project
from webapp.runs.metrics.models import MetricPoint
from webapp.runs.models import Attempt, Run
from webapp.runs.removal.models import Removal, RemovalState
from webapp.runs.rollouts.models import Rollout
from webapp.runs.states import RunState

pytestmark = pytest.mark.django_db(transaction=True)
Cut = Callable[[int], None]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run of nine batches."""
    monkeypatch.setattr(projection, "BATCH_LINES", 3)
    path = tmp_path / "long"
    journal = j.Journal(path)
    journal.write(journal_module.RunStarted(kind="grpo", total_steps=8))
    for step in range(1, 9):
        name = f"a1-s{step}-g0-i0"
        journal.write(journal_module.RolloutStarted(rollout=name, step=step, group=0, index=0))
        journal.write(journal_module.RolloutFinished(rollout=name, status="completed", reward=0.5))
        journal.write(journal_module.Metrics(step=step, values={"reward": 0.5}))
    journal.write(journal_module.RunFinished(status="succeeded", step=8))
    journal.close()
    return path


@pytest.fixture
def cut(monkeypatch: pytest.MonkeyPatch) -> Cut:
    """``cut(batch)``: the import is interrupted at this batch; 0 lets it be."""
    step, left = Projector.step, [0]

    def counted(projector: Projector) -> bool:
        left[0] -= 1
        if left[0] == 0:
            raise KeyboardInterrupt
        return step(projector)

    monkeypatch.setattr(Projector, "step", counted)
    return lambda batch: left.__setitem__(0, batch)


def killed(project: Project, folder: Path, cut: Cut, monkeypatch: pytest.MonkeyPatch) -> Run:
    """What an import leaves whose process was killed: nothing of it ran any more."""
    with monkeypatch.context() as patch:
        patch.setattr(importing, "_discard_run", lambda run: None)
        cut(4)
        with pytest.raises(KeyboardInterrupt):
            run_import(project=project, folder=folder)
        cut(0)
    return Run.all_objects.get()


def silent_for(run: Run, seconds: float) -> None:
    Run.all_objects.filter(pk=run.pk).update(last_event_at=timezone.now() - timedelta(seconds=seconds))


def nothing_is_left() -> bool:
    for removal in Removal.objects.filter(state=RemovalState.WAITING):
        assert done(removal).state == RemovalState.DONE
    kinds = (Rollout, MetricPoint, Attempt)
    return not Run.all_objects.exists() and not any(kind.objects.exists() for kind in kinds)


def test_it_is_not_visible_before_it_is_whole_and_no_transaction_spans_it(
    project: Project, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step, seen = Projector.step, list[tuple[bool, int, int]]()

    def looked(projector: Projector) -> bool:
        seen.append((connection.in_atomic_block, Run.objects.count(), Rollout.objects.count()))
        return step(projector)

    monkeypatch.setattr(Projector, "step", looked)
    run, new = run_import(project=project, folder=folder)
    assert len(seen) == 10 and not any(inside or shown for inside, shown, _rows in seen)
    assert [rows for *_, rows in seen] == [*range(9), 8], "each batch was there for good"
    assert new and (run.state, run.step, run.removed_at) == (RunState.SUCCEEDED, 8, None)
    assert Run.objects.get() == run and MetricPoint.objects.filter(run=run).count() == 8
    assert run_import(project=project, folder=folder) == (run, False)


@pytest.mark.parametrize("batch", [1, 4, 10])
def test_one_that_is_cut_leaves_nothing_and_may_begin_again(
    project: Project, folder: Path, cut: Cut, batch: int
) -> None:
    cut(batch)
    with pytest.raises(KeyboardInterrupt):
        run_import(project=project, folder=folder)
    left = Run.all_objects.get()
    assert not Run.objects.exists() and Removal.objects.get().object_id == left.pk
    cut(0)
    run, new = run_import(project=project, folder=folder)
    assert new and run.name == "long", "its name is free at once"
    done(Removal.objects.get())
    assert Run.all_objects.get() == run and Rollout.objects.exclude(run=run).count() == 0
    assert not run_dir(left.pk).exists() and run_dir(run.pk).exists()


@pytest.mark.parametrize(("seconds", "begins"), [(40, False), (50, True)])
def test_the_same_files_wait_for_one_that_is_at_work_and_not_for_a_lost_one(
    project: Project, folder: Path, cut: Cut, monkeypatch: pytest.MonkeyPatch, seconds: float, begins: bool
) -> None:
    left = killed(project, folder, cut, monkeypatch)
    silent_for(left, seconds)
    if not begins:
        with pytest.raises(DataError, match="being imported at this moment"):
            run_import(project=project, folder=folder)
        assert Run.all_objects.get() == left
        return
    run, new = run_import(project=project, folder=folder)
    assert new and run.state == RunState.SUCCEEDED
    done(Removal.objects.get())
    assert Run.all_objects.get() == run


@pytest.mark.parametrize(("minutes", "goes"), [(59, False), (61, True)])
def test_what_a_lost_import_left_goes_after_an_hour(
    project: Project, folder: Path, cut: Cut, monkeypatch: pytest.MonkeyPatch, minutes: float, goes: bool
) -> None:
    left = killed(project, folder, cut, monkeypatch)
    silent_for(left, 60 * minutes)
    tidy()
    assert Removal.objects.count() == int(goes)
    assert cut_imports_discard() == 0, "once"
    assert nothing_is_left() == goes


def test_whole_imports_and_deleted_ones_are_left_alone(project: Project, folder: Path) -> None:
    run, _new = run_import(project=project, folder=folder)
    silent_for(run, 7200)
    Run.all_objects.filter(pk=run.pk).update(removed_at=timezone.now(), idempotency_key=None)
    assert cut_imports_discard() == 0
