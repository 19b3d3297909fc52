"""A restored copy finds the notes of its original's trainers, which are at work, and must kill none of them."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db.models import F
from django.utils import timezone

from webapp.common.storage import attempt_dir
from webapp.common.workers.beating import folder_problem
from webapp.engine import recovery
from webapp.engine.models import ReaperMark
from webapp.engine.trainer import Trainer
from webapp.runs.models import Attempt, Run
from webapp.runs.states import RunState

pytestmark = pytest.mark.django_db


@pytest.fixture
def left(written: Any, settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Trainer]:
    """The trainer of a run whose worker has been silent for long, in a data folder that is known."""
    settings.DATA_DIR = tmp_path / "original"
    settings.DATA_DIR.mkdir()
    settings.TRAINER_COMMAND = [sys.executable, "-c", "import time; time.sleep(600)"]
    assert folder_problem() == ""
    clock = recovery._database_times
    monkeypatch.setattr(recovery, "_database_times", lambda: (clock()[0], clock()[0] - timedelta(days=1)))
    ReaperMark.objects.create(pk=1, ran_at=timezone.now())
    run = written().run
    attempt_dir(run.pk, 1).mkdir(parents=True, exist_ok=True)
    trainer = Trainer(attempt_dir(run.pk, 1), [])
    Run.objects.update(lease_beat_at=F("lease_beat_at") - timedelta(minutes=5))
    yield trainer
    trainer.kill()


def judged() -> tuple[str, str]:
    """What the reaper did with the one run: its state, and why its attempt ended."""
    assert recovery.reap() == 1
    return Run.objects.values_list("state", flat=True)[0], Attempt.objects.values_list("error__code", flat=True)[0]


def test_a_copy_judges_the_lease_and_kills_no_process(left: Trainer, settings: Any, tmp_path: Path) -> None:
    shutil.copytree(tmp_path / "original", tmp_path / "copy")
    settings.DATA_DIR = tmp_path / "copy"
    assert judged() == (RunState.QUEUED, "worker_lost")
    assert left.poll() is None


@pytest.mark.parametrize("moved", [False, True])
def test_the_original_kills_its_orphan_wherever_it_was_moved(
    left: Trainer, settings: Any, tmp_path: Path, moved: bool
) -> None:
    if moved:
        settings.DATA_DIR = (tmp_path / "original").rename(tmp_path / "moved")
    assert judged() == (RunState.QUEUED, "worker_lost")
    assert left._process.wait(10) == -9
