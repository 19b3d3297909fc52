"""A standalone run's folder becomes a run, once."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from training import journal as j
from training import journal as journal_module
from training.config import JobConfig, config_to_yaml
from webapp.common.storage import run_dir
from webapp.results.summary import taken_by
from webapp.runs.metrics.models import MetricPoint
from webapp.runs.models import Run
from webapp.runs.registry.models import RegisteredModel
from webapp.runs.states import RunState

pytestmark = pytest.mark.django_db


def _folder(path: Path, *, end: str = "succeeded") -> Path:
    journal = j.Journal(path)
    journal.write(journal_module.RunStarted(kind="sft", total_steps=3))
    for step in (1, 2, 3):
        journal.write(journal_module.Metrics(step=step, values={"loss": 1 / step}))
    (path / "model").mkdir()
    (path / "model" / "config.json").write_text("{}")
    (path / "model" / "link").symlink_to("/etc/passwd")
    journal.write(journal_module.CheckpointSaved(step=3, path="model", bytes=2, final=True))
    journal.write(journal_module.CheckpointSaved(step=3, path="../../../etc", bytes=2))
    if end:
        journal.write(journal_module.RunFinished(status=end, step=3))
    journal.close()
    (path / "config.yaml").write_text(config_to_yaml(JobConfig(kind="sft")))
    return path


def _import(folder: Path, *more: str) -> str:
    out = StringIO()
    call_command("import_run", str(folder), "--project", "joust", *more, stdout=out)
    return out.getvalue()


def test_a_folder_is_imported_once(project: Any, tmp_path: Path) -> None:
    folder = _folder(tmp_path / "my run!")
    assert _import(folder).startswith("Imported: my run-")
    run = Run.objects.get()
    assert (run.state, run.step, run.kind, run.imported) == (RunState.SUCCEEDED, 3, "sft", True)
    assert MetricPoint.objects.filter(run=run).count() == 3
    assert (RegisteredModel.objects.get().checkpoint.folder / "config.json").is_file()
    assert not (run_dir(run.pk) / "1" / "model" / "link").exists()
    assert run.checkpoints.count() == 1
    assert _import(folder).startswith("Already imported")
    assert (Run.objects.count(), MetricPoint.objects.count()) == (1, 3)


def test_its_attempt_lasted_as_long_as_its_trainer_says(project: Any, tmp_path: Path) -> None:
    """Not as long as the import took: the page of the run shows it as the cost."""
    folder = _folder(tmp_path / "night")
    lines = (folder / j.JOURNAL_NAME).read_text().splitlines()
    began = datetime(2026, 1, 1, 22, tzinfo=UTC)
    moved = [json.loads(line) | {"t": (began + timedelta(hours=at)).timestamp()} for at, line in enumerate(lines)]
    (folder / j.JOURNAL_NAME).write_text("".join(json.dumps(line) + "\n" for line in moved))
    _import(folder)
    attempt = Run.objects.get().attempts.get()
    assert (attempt.started_at, attempt.ended_at) == (began, began + timedelta(hours=len(lines) - 1))
    assert taken_by(attempt.run).spent.device_seconds == 3600.0 * (len(lines) - 1)


def test_a_run_without_an_end_is_failed(project: Any, tmp_path: Path) -> None:
    _import(_folder(tmp_path / "cut", end=""), "--name", "cut short")
    run = Run.objects.get(name="cut short")
    assert (run.state, run.error["code"]) == (RunState.FAILED, "trainer_died")


def test_a_stopped_run_is_cancelled(project: Any, tmp_path: Path) -> None:
    _import(_folder(tmp_path / "stopped", end="stopped"))
    assert Run.objects.get().state == RunState.CANCELLED


def test_what_is_no_run_is_refused(project: Any, tmp_path: Path) -> None:
    with pytest.raises(CommandError, match=r"journal\.jsonl"):
        _import(tmp_path)
    with pytest.raises(CommandError, match="no project"):
        call_command("import_run", str(tmp_path), "--project", "nowhere")
    assert not Run.objects.exists()
