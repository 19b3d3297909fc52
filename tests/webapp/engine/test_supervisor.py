"""One attempt with a real child process: it succeeds, fails, dies, loops, stops, resumes."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.services import alive, wait_until
from tests.chaos.truth import assert_exact
from tests.webapp.engine.conftest import in_thread, stand_in
from webapp.common.storage import attempt_dir
from webapp.engine import supervisor, trainer
from webapp.engine.services import run_pause, run_resume, run_stop
from webapp.engine.supervisor import supervise
from webapp.environments.models import Environment
from webapp.runs.models import Attempt, Run, RunEvent
from webapp.runs.registry.models import Checkpoint, RegisteredModel
from webapp.runs.rollouts.models import Rollout
from webapp.runs.states import RunState

pytestmark = pytest.mark.django_db(transaction=True)


def _group_of(run: Run) -> int:
    return int(json.loads((attempt_dir(run.pk, run.attempt) / "trainer.json").read_text())["pid"])


def _in_state(run: Run, *states: RunState, within_s: float = 10) -> None:
    def reached() -> bool:
        run.refresh_from_db()
        return run.state in states

    wait_until(reached, within_s, what=f"state {states}")


def _group_alive(pgid: int) -> bool:
    for stat in os.listdir("/proc"):
        if stat.isdigit():
            try:
                fields = Path(f"/proc/{stat}/stat").read_text().rsplit(")", 1)[1].split()
            except OSError:
                continue
            if int(fields[2]) == pgid and fields[0] not in "ZX":
                return True
    return False


def test_a_run_succeeds_and_its_model_is_registered(queued: Any) -> None:
    run = queued("sleep-1", steps=15, save_every=5)
    supervise(run.pk)
    run.refresh_from_db()
    assert (run.state, run.step, run.total_steps, run.error) == (RunState.SUCCEEDED, 15, 15, None)
    assert_exact(run)
    model = RegisteredModel.objects.get(project=run.project)
    assert (model.name, model.checkpoint.path) == (run.name, "1/model")
    assert Checkpoint.objects.filter(run=run).count() == 4
    supervise(run.pk)
    assert Attempt.objects.filter(run=run).count() == 1


def test_baselines_that_were_not_known_at_launch_are_kept_when_the_run_starts(queued: Any) -> None:
    early, late = queued("sleep-1", steps=2), queued("sleep-1", steps=2)
    rules = {"name": "rules", "reward": 0.791, "success": 0.58, "episodes": 300}
    known = [{**rules, "reward": 0.5}]
    assert early.baselines == []
    Run.objects.filter(pk=late.pk).update(baselines=known)
    Environment.objects.filter(project=early.project).update(health={"baselines": [rules], "version": "1.4.2"})
    for run, wanted in ((early, [rules]), (late, known)):
        supervise(run.pk)
        run.refresh_from_db()
        assert (run.state, run.baselines, run.environment_version) == (RunState.SUCCEEDED, wanted, "1.4.2")


def test_a_typed_failure_ends_the_run(queued: Any) -> None:
    run = queued("mode-fail/at-3")
    supervise(run.pk)
    run.refresh_from_db()
    assert (run.state, run.error["code"]) == (RunState.FAILED, "environment_unreachable")


def test_a_trainer_killed_from_outside_is_named_and_resumed(queued: Any) -> None:
    run = queued("mode-kill/at-8/sleep-1", steps=12, save_every=3)
    supervise(run.pk)
    run.refresh_from_db()
    assert (run.state, run.attempt) == (RunState.QUEUED, 1)
    died = Attempt.objects.get(run=run)
    assert died.error["code"] == "trainer_killed" and "from outside" in died.error["message"]
    assert Rollout.objects.get(run=run, task="unfinished").error["code"] == "attempt_ended"
    supervise(run.pk)
    run.refresh_from_db()
    assert (run.state, run.attempt, run.step) == (RunState.SUCCEEDED, 2, 12)
    assert Attempt.objects.get(run=run, number=2).first_step == 6
    assert_exact(run)


def test_a_crash_loop_ends_with_the_last_lines(queued: Any) -> None:
    run = queued("mode-crash")
    for _ in range(5):
        supervise(run.pk)
    run.refresh_from_db()
    assert (run.state, run.error["code"], run.attempt) == (RunState.FAILED, "crash_loop", 3)
    assert "137" in run.error["message"]
    lines = [event.payload["message"] for event in RunEvent.objects.filter(run=run, kind="log")]
    assert any("out of luck" in line for line in lines) and not any("supersecret123" in line for line in lines)


@pytest.mark.parametrize(("script", "at"), [("mode-prepare", RunState.PREPARING), ("mode-hang/at-3", RunState.RUNNING)])
def test_a_hung_trainer_is_gone_within_ten_seconds_of_a_stop(queued: Any, script: str, at: RunState) -> None:
    run = queued(script)
    thread = in_thread(run)
    _in_state(run, at)
    pid = wait_until(lambda: _group_of(run))
    began = time.monotonic()
    run_stop(run=run)
    _in_state(run, RunState.CANCELLED)
    assert time.monotonic() - began < 10
    thread.join(10)
    assert not _group_alive(pid)
    assert_exact(run)


def test_a_stop_between_steps_lets_the_trainer_say_so(queued: Any) -> None:
    run = queued("sleep-20", steps=10_000)
    thread = in_thread(run)
    _in_state(run, RunState.RUNNING)
    run_stop(run=run)
    _in_state(run, RunState.CANCELLED)
    thread.join(10)
    assert Attempt.objects.get(run=run).outcome["status"] == "stopped"
    states = [e.payload["to"] for e in RunEvent.objects.filter(run=run, kind="state").order_by("seq")]
    assert states[-2:] == ["stopping", "cancelled"]


def test_a_paused_run_continues_from_its_checkpoint(queued: Any) -> None:
    """It may not end before the pause arrives, however slow the machine is: so it gets few steps only after."""
    run = queued("sleep-10", steps=100_000, save_every=5)
    thread = in_thread(run)
    wait_until(lambda: Checkpoint.objects.filter(run=run).exists(), 60)
    run_pause(run=run)
    _in_state(run, RunState.PAUSED, within_s=60)
    thread.join(30)
    run.config["run"]["max_steps"] = Checkpoint.objects.filter(run=run).latest("step").step + 8
    run.save(update_fields=["config"])
    run_resume(run=run)
    supervise(run.pk)
    run.refresh_from_db()
    assert run.state == RunState.SUCCEEDED and Attempt.objects.get(run=run, number=2).first_step >= 5
    assert_exact(run)


def test_a_trainer_that_saves_for_long_is_let_finish(queued: Any, settings: Any) -> None:
    """A save that took longer than the fixed grace was killed halfway, and all since the last one was lost."""
    settings.STOP_GRACE_S = 0.5
    options = {"save_every": 5, "fields": {"health": {"save_seconds": 1.5}}}
    run = queued("sleep-10/save-1500", steps=100_000, **options)
    thread = in_thread(run)
    wait_until(lambda: Checkpoint.objects.filter(run=run).exists(), 60)
    run_pause(run=run)
    _in_state(run, RunState.PAUSED, within_s=60)
    thread.join(30)
    attempt = Attempt.objects.get(run=run)
    assert attempt.outcome["status"] == "stopped"
    assert Checkpoint.objects.filter(run=run).latest("step").step == attempt.outcome["step"]


@pytest.mark.parametrize(
    ("save_s", "update_s", "grace_s"), [(None, None, 8), (20, 10, 71.5), (0.1, 120, 121.8), (400, 9, 299.5)]
)
def test_the_grace_is_the_trainers_own_and_a_moment_for_its_last_words(
    save_s: float | None, update_s: float | None, grace_s: float, settings: Any
) -> None:
    """The trainer allowed an update of two minutes, its supervisor half a minute: it was always killed in it."""
    settings.STOP_GRACE_S = 8
    known = {"save_seconds": save_s, "update_seconds": update_s}
    health = {name: value for name, value in known.items() if value}
    run = Run(health=health, step_seconds=9.0, config={})
    assert supervisor.grace_of(run) == pytest.approx(grace_s)


def test_a_run_by_verl_ends_between_its_steps_so_a_whole_one_counts(settings: Any) -> None:
    settings.STOP_GRACE_S = 8
    run = Run(health={"save_seconds": 1.0, "update_seconds": 2.0}, step_seconds=90.0)
    run.config = {"data": {"train": "x"}, "hardware": {"devices": 2}}
    assert supervisor.grace_of(run) == pytest.approx(3 * 1.0 + 90.0 + 1.5)
    run.step_seconds = None
    assert supervisor.grace_of(run) == pytest.approx(8)


@pytest.mark.parametrize(("script", "saved"), [("busy-1500", True), ("busy-60000", False)])
def test_a_trainer_that_works_gets_more_time_to_save_up_to_a_limit(
    queued: Any, settings: Any, monkeypatch: pytest.MonkeyPatch, script: str, saved: bool
) -> None:
    """On a busy machine an update took 9 s in place of one, and eight steps were lost without a word."""
    settings.STOP_GRACE_S = 0.5
    monkeypatch.setattr(trainer, "patience", lambda grace_s: 20.0 if saved else 3.0)
    run = queued(f"sleep-10/save-1/{script}", steps=100_000)
    thread = in_thread(run)
    wait_until(lambda: Run.objects.get(pk=run.pk).step >= 3, 60)
    run_pause(run=run)
    _in_state(run, RunState.PAUSED, within_s=60)
    thread.join(30)
    run.refresh_from_db()
    attempt, checkpoint = Attempt.objects.get(run=run), Checkpoint.objects.filter(run=run).first()
    assert bool(attempt.outcome) is saved and (checkpoint is not None) is saved
    if checkpoint is not None:
        assert checkpoint.step == attempt.outcome["step"] == run.step


def test_a_fenced_supervisor_kills_its_trainer_and_writes_nothing(queued: Any) -> None:
    run = queued("sleep-20", steps=10_000)
    thread = in_thread(run)
    _in_state(run, RunState.RUNNING)
    pid = _group_of(run)
    Run.objects.filter(pk=run.pk).update(lease_owner="another")
    thread.join(5)
    assert not thread.is_alive() and not alive(pid)
    run.refresh_from_db()
    seq = run.seq
    assert (run.state, stand_in(run).owner) == (RunState.RUNNING, "another")
    time.sleep(0.3)
    run.refresh_from_db()
    assert run.seq == seq


def test_a_closing_worker_hands_its_run_back(queued: Any) -> None:
    run = queued("sleep-20", steps=10_000)
    thread = in_thread(run)
    _in_state(run, RunState.RUNNING)
    try:
        supervisor.worker_closing()
        thread.join(10)
    finally:
        supervisor._closing[0] = 0
    run.refresh_from_db()
    assert run.state == RunState.QUEUED
    assert Attempt.objects.get(run=run).error["code"] == "worker_closing"


def test_a_reference_that_has_gone_fails_the_run_by_name(queued: Any) -> None:
    run = queued()
    run.project.datasets.all().delete()
    supervise(run.pk)
    run.refresh_from_db()
    assert (run.state, run.error["code"]) == (RunState.FAILED, "config_invalid")
    assert run.error["message"].startswith("data.train: ")


def test_the_trainer_sees_no_secrets_of_ours_and_what_it_needs_to_fetch_a_model(
    queued: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Token and proxies did not reach it, so that a gated model could not be trained."""
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "canary")
    needed = {"HF_TOKEN": "hf_mine", "HTTPS_PROXY": "http://proxy:3128", "no_proxy": "localhost"}
    for name, value in needed.items():
        monkeypatch.setenv(name, value)
    from webapp.engine.trainer import trainer_env

    env = trainer_env(3)
    assert "canary" not in str(env) and "DATABASE_URL" not in env and "REDIS_URL" not in env
    assert {name: env.get(name) for name in needed} == needed


def test_an_earlier_attempts_tail_is_projected_before_the_next_begins(queued: Any) -> None:
    run = queued("mode-kill/at-4/sleep-1", steps=6)
    lease = supervisor.claim(run.pk)
    folder = attempt_dir(run.pk, lease.attempt)
    folder.mkdir(parents=True)
    (folder / "journal.jsonl").write_text('{"type":"metrics","step":1,"t":1,"values":{"reward":0.1}}\n')
    Run.objects.filter(pk=run.pk).update(state=RunState.QUEUED)
    supervise(run.pk)
    run.refresh_from_db()
    assert (run.state, run.attempt) == (RunState.SUCCEEDED, 2)
    assert run.points.filter(attempt=1).count() == 1
    assert Attempt.objects.filter(run=run, ended_at=None).count() == 0
    assert_exact(run)
