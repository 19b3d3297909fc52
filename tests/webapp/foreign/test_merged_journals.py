"""A run whose journal was merged of several processes', on hosts with other clocks, is imported as any run."""

from __future__ import annotations

from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command

from tests.training.verl_backend.test_merger import Process, begin, end, scored, turn
from training.config import JobConfig, config_to_yaml
from training.journal import Journal, Metrics, PhaseChanged, RunFinished, RunStarted
from training.verl_backend.merger import Merger
from webapp.runs.metrics.models import MetricPoint
from webapp.runs.models import Run
from webapp.runs.rollouts.models import Rollout, RolloutGroup
from webapp.runs.states import RunState

pytestmark = pytest.mark.django_db


def test_a_merged_journal_is_imported_whole(project: Any, tmp_path: Path) -> None:
    folder = tmp_path / "merged"
    trainer, players = Process(folder, "a-1"), [Process(folder, "b-2", late=500), Process(folder, "c-3", late=-500)]
    began = 1_700_000_000.0
    trainer.say(began, RunStarted(kind="grpo", total_steps=2))
    for step in (1, 2):
        at = began + 100 * step
        trainer.say(at, PhaseChanged(phase="generating", step=step))
        for group, process in enumerate(players):
            names = [f"a1-s{step}-g{group}-i{index}" for index in (0, 1)]
            process.say(at + 1, *(begin(name) for name in names), *(turn(name, 0) for name in names))
            process.say(at + 5, *(end(name, reward=0.25 * step) for name in names), scored(step, group, *names))
        trainer.say(at + 9, Metrics(step=step, values={"reward": 0.25 * step}))
    trainer.say(began + 300, RunFinished(status="succeeded", step=2))
    journal = Journal(folder)
    merger = Merger(journal, 4)
    merger.merge(over=True)
    assert merger.last_word is not None
    journal.write(merger.last_word)
    journal.close()
    (folder / "config.yaml").write_text(config_to_yaml(JobConfig()))
    out = StringIO()
    call_command("import_run", str(folder), "--project", "joust", stdout=out)
    assert out.getvalue().startswith("Imported: merged")
    run = Run.objects.get()
    assert (run.state, run.step, run.kind) == (RunState.SUCCEEDED, 2, "grpo")
    rollouts = Rollout.objects.filter(run=run)
    assert rollouts.count() == 8 and {(rollout.step, rollout.reward) for rollout in rollouts} == {(1, 0.25), (2, 0.5)}
    assert RolloutGroup.objects.filter(run=run).count() == 4
    points = MetricPoint.objects.filter(run=run, name="reward").order_by("step").values_list("step", "value")
    assert list(points) == [(1, 0.25), (2, 0.5)]
    assert not run.events.filter(payload__code="journal_line").exists(), "no line was left out"
