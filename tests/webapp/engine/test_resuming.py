"""Anything that has a whole checkpoint can go on: from which one, as the same run or as a child."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from training import journal as j
from training import journal as journal_module
from training.algorithms.checkpoints import write_whole
from training.config import config_load
from training.errors import ConfigError, ModelError
from webapp.common.storage import run_dir
from webapp.engine.attempts import MAX_OTHER_DEATHS, attempt_end, claim, worker_lost
from webapp.engine.services import (
    GoingOn,
    branch_point,
    can_resume,
    check_child,
    newest_checkpoint,
    pin_used,
    resume_from,
    run_create,
    run_resume,
    run_stop,
)
from webapp.engine.supervisor import Supervisor, supervise
from webapp.people.teams.models import Project
from webapp.runs.models import Attempt, Run, RunEvent
from webapp.runs.registry.models import Checkpoint
from webapp.runs.registry.selectors import checkpoints_of
from webapp.runs.registry.services import model_delete, model_register
from webapp.runs.states import RunState
from webapp.site.run_pages.page import next_act

pytestmark = pytest.mark.django_db


def _saved(run: Run, attempt: int, step: int, **over: Any) -> Checkpoint:
    """A whole checkpoint of the real layout, with its row."""
    path = f"{attempt}/checkpoint-{step}"
    write_whole(run_dir(run.pk) / path, step, lambda folder: (folder / "weights").write_bytes(b"w" * 9) and None)
    fields = {"attempt": attempt, "step": step, "path": path, "bytes": 9, "seq": 0, "created_at": timezone.now()}
    return Checkpoint.objects.create(project=run.project, run=run, **(fields | over))


def test_the_newest_checkpoint_is_that_of_the_latest_attempt(queued: Any) -> None:
    """After a damaged checkpoint sent a run back, its new steps were ordered behind the older, higher ones."""
    run = queued()
    _saved(run, 1, 40)
    newest = _saved(run, 2, 8)
    _saved(run, 2, 4)
    assert newest_checkpoint(run) == newest
    assert resume_from(run) == run_dir(run.pk)


def test_a_child_starts_at_the_newest_the_chosen_or_a_steps_checkpoint(make_run: Any) -> None:
    """Of a run that trains and is not at work; never at the final model, at a lost one, or at another run's."""
    run, other = make_run(state="paused", attempt=2, kind="grpo"), make_run(state="paused", kind="grpo")
    early, late = _saved(run, 1, 4), _saved(run, 1, 8)
    again, theirs = _saved(run, 2, 4), _saved(other, 1, 4)
    final, lost = _saved(run, 2, 9, final=True), _saved(run, 2, 6, state="torn")
    assert branch_point(run) == again
    assert [branch_point(run, step=step) for step in (4, 8, 9, 6, 0)] == [again, late, None, None, None]
    chosen = [branch_point(run, str(point.pk)) for point in (early, late, theirs, final, lost)]
    assert chosen == [early, late, None, None, None]
    assert branch_point(run, str(early.pk), step=4) == early and branch_point(run, str(early.pk), step=8) is None
    assert branch_point(run, "x") is None
    shutil.rmtree(again.folder)
    assert (branch_point(run, step=4), branch_point(run)) == (early, late)
    for fields in ({"state": "running"}, {"imported": True}, {"kind": "evaluate"}):
        Run.objects.filter(pk=run.pk).update(**{"state": "succeeded", "imported": False, "kind": "grpo"} | fields)
        run.refresh_from_db()
        assert branch_point(run, str(late.pk)) is None, fields


def test_what_something_starts_from_is_pinned_before_a_later_attempt_begins(
    project: Any, alice: Any, queued: Any, make_run: Any
) -> None:
    """A resumed run would have deleted the weights of a model that was registered from its first attempt."""
    run = queued()
    registered, branched, ended, plain = (_saved(run, 1, step) for step in (2, 4, 6, 8))
    model = model_register(project=project, user=alice, name="mine", kind="run", checkpoint=registered)
    pins = [row.folder.with_name(f"checkpoint-{row.step}.pinned") for row in (registered, branched, ended, plain)]
    assert [pin.exists() for pin in pins] == [True, False, False, False]
    pins[0].unlink()  # one that was registered before pins were known
    make_run(name="open", state="queued", resume_checkpoint=branched)
    make_run(name="over", state="succeeded", resume_checkpoint=ended)
    pin_used(run)
    assert [pin.exists() for pin in pins] == [True, True, False, False]
    model_delete(model=model)
    assert not pins[0].exists()


def test_a_damaged_checkpoint_is_marked_and_passed_over(written: Any, client_for: Any, rita: Any) -> None:
    """It stayed the newest in the database, and the page named it as one to start from."""
    w = written()
    w.write(journal_module.RunStarted(kind="grpo", total_steps=20))
    for step in (2, 4, 6):
        w.write(journal_module.CheckpointSaved(step=step, path=f"checkpoint-{step}", bytes=7))
        (run_dir(w.run.pk) / "1" / f"checkpoint-{step}").mkdir(parents=True)
    w.project()
    w.write(
        journal_module.CheckpointsRemoved(paths=["1/checkpoint-6"], why="torn"),
        journal_module.CheckpointsRemoved(paths=["checkpoint-2"], why="old"),
    )
    w.project()
    rows = {row.step: row for row in Checkpoint.objects.filter(run=w.run)}
    assert [rows[step].state for step in (2, 4, 6)] == ["removed", "whole", "torn"]
    assert rows[6].torn_at and not rows[6].removed_at and rows[2].removed_at and not rows[2].torn_at
    assert newest_checkpoint(w.run) == rows[4]
    assert [row.step for row in checkpoints_of(w.run.project)] == [4]
    page = client_for(rita).get(f"/p/joust/runs/{w.run.pk}/?tab=events").content.decode()
    assert "1/checkpoint-6" in page and "damaged" in page


def test_a_checkpoint_of_an_earlier_attempt_is_marked_by_a_later_one(queued: Any) -> None:
    from webapp.common.storage import attempt_dir
    from webapp.engine.projection import Projector

    run = queued()
    attempt_end(claim(run.pk))
    lease = claim(run.pk)
    row = _saved(run, 1, 5)
    journal = j.Journal(attempt_dir(run.pk, 2))
    journal.write(journal_module.CheckpointsRemoved(paths=["1/checkpoint-5"], why="torn"))
    journal.close()
    Projector(lease).drain()
    row.refresh_from_db()
    assert (row.state, row.attempt) == ("torn", 1) and row.seq > 0


@pytest.mark.django_db(transaction=True)  # beats come from a thread with its own connection
@pytest.mark.parametrize("ended", ["failed", "cancelled", "paused"])
def test_a_run_that_ended_continues_as_a_new_attempt_of_itself(queued: Any, ended: str) -> None:
    """`failed` was final although a whole checkpoint was there and messages promised to resume."""
    run = queued("sleep-1", steps=8, save_every=3)
    Run.objects.filter(pk=run.pk).update(config=_with(run, "mode-fail/at-5"))
    supervise(run.pk)
    run.refresh_from_db()
    assert (run.state, run.finished_at is not None) == (RunState.FAILED, True)
    Run.objects.filter(pk=run.pk).update(state=ended, config=run.config, error={"code": "x"})
    Run.objects.filter(pk=run.pk).update(config=_with(run, "sleep-1"))
    run.refresh_from_db()
    run = run_resume(run=run)
    assert (run.state, run.error, run.finished_at) == (RunState.QUEUED, None, None)
    supervise(run.pk)
    run.refresh_from_db()
    assert (run.state, run.attempt, run.step) == (RunState.SUCCEEDED, 2, 8)
    assert Attempt.objects.get(run=run, number=2).first_step == 3


def _with(run: Run, script: str) -> dict[str, Any]:
    config = json.loads(json.dumps(run.config))
    config["model"]["revision"] = script
    return config


def test_what_cannot_go_on_is_not_resumed(queued: Any, make_run: Any) -> None:
    done = make_run(state=RunState.SUCCEEDED, attempt=1)
    _saved(done, 1, 3)
    nothing_saved = make_run(state=RunState.FAILED, attempt=1, step=4)
    imported = make_run(state=RunState.FAILED, attempt=1, imported=True)
    _saved(imported, 1, 3)
    for run in (done, nothing_saved, imported):
        assert not can_resume(run)
        assert run_resume(run=run).state == run.state
    assert can_resume(make_run(state=RunState.PAUSED, attempt=1))
    assert can_resume(make_run(state=RunState.FAILED, attempt=1, step=4, kind="sample"))


def test_a_run_that_never_began_is_resolved_again(project: Any, alice: Any, job: Any) -> None:
    run = run_create(project=project, user=alice, name="r", config=job())
    run_stop(run=run)
    project.environments.all().delete()
    with pytest.raises(ConfigError, match=r"environment\.name"):
        run_resume(run=run)
    run.refresh_from_db()
    assert run.state == RunState.CANCELLED


def test_a_persons_resume_starts_the_count_of_crashes_again(queued: Any) -> None:
    """Without this the first death after a resume would be the fourth in a row."""
    run = queued()
    _saved(run, 1, 2)
    for _ in range(3):
        attempt_end(claim(run.pk))
    run.refresh_from_db()
    assert run.error["code"] == "crash_loop"
    run_resume(run=run)
    states = []
    for _ in range(3):
        attempt_end(claim(run.pk))
        run.refresh_from_db()
        states.append(str(run.state))
    assert states == ["queued", "queued", "failed"]


def test_the_death_of_a_worker_is_not_a_crash_of_the_run(queued: Any) -> None:
    """Three workers that died inside one save interval ended a healthy run as `crash_loop`."""
    run = queued()
    for _ in range(4):
        attempt_end(claim(run.pk), worker_lost("w"))
    attempt_end(claim(run.pk))
    attempt_end(claim(run.pk))
    run.refresh_from_db()
    assert run.state == RunState.QUEUED
    attempt_end(claim(run.pk))
    run.refresh_from_db()
    assert (run.state, run.error["code"]) == (RunState.FAILED, "crash_loop")


def _dies(run: Run, first: int, last: int) -> str:
    """One attempt from ``first`` whose trainer is killed after ``last``; the state of the run then."""
    lease = claim(run.pk)
    assert lease is not None
    Attempt.objects.filter(run=run, number=lease.attempt).update(first_step=first, last_step=last)
    attempt_end(lease)
    run.refresh_from_db()
    return str(run.state)


def test_trainers_killed_on_their_way_back_are_no_crash_loop(queued: Any) -> None:
    """Three kills inside one save interval, each at another step, ended a healthy run as `crash_loop`."""
    run = queued()
    assert [_dies(run, 0, last) for last in (30, 12, 25, 7, 18)] == ["queued"] * 5
    assert _dies(run, 0, 31) == "queued"


def test_trainers_that_die_at_the_step_that_the_run_never_passed_are_a_crash_loop(queued: Any) -> None:
    run = queued()
    assert [_dies(run, 10, last) for last in (30, 30, 12, 30, 30)] == ["queued"] * 4 + ["failed"]
    assert run.error["code"] == "crash_loop"


def test_a_run_that_takes_every_worker_down_ends(queued: Any) -> None:
    run = queued()
    for _ in range(MAX_OTHER_DEATHS):
        attempt_end(claim(run.pk), worker_lost("w"))
    run.refresh_from_db()
    assert (MAX_OTHER_DEATHS, run.state, run.error["code"]) == (20, RunState.FAILED, "crash_loop")


def test_a_child_starts_from_its_parents_checkpoint(queued: Any, project: Any, alice: Any) -> None:
    parent = queued()
    checkpoint = _saved(parent, 1, 4)
    Run.objects.filter(pk=parent.pk).update(attempt=1, state=RunState.SUCCEEDED)
    config = _config(parent, max_steps=20)
    config.optim.learning_rate = 3e-4
    child = run_create(project=project, user=alice, name="child", config=config, checkpoint=checkpoint)
    assert (child.parent, child.resume_checkpoint, child.resume_step) == (parent, checkpoint, 4)
    assert resume_from(child) == checkpoint.folder
    _saved(child, 1, 6)
    assert resume_from(child) == run_dir(child.pk)


def test_a_checkpoint_that_an_open_child_starts_from_is_not_deleted(queued: Any, project: Any, alice: Any) -> None:
    from webapp.runs.removal.services import used_by

    parent = queued()
    checkpoint = _saved(parent, 1, 4)
    Run.objects.filter(pk=parent.pk).update(attempt=1, state=RunState.SUCCEEDED)
    child = run_create(project=project, user=alice, name="child", config=_config(parent, 20), checkpoint=checkpoint)
    assert any("child" in sentence for sentence in used_by(checkpoint))
    assert any("child" in sentence for sentence in used_by(parent))
    run_stop(run=child)
    assert used_by(checkpoint) == []


def _config(run: Run, max_steps: int) -> Any:
    from training.config import JobConfig

    config = JobConfig.model_validate(run.config)
    config.run.max_steps = max_steps
    return config


@pytest.mark.django_db(transaction=True)
def test_a_child_never_begins_without_its_checkpoint(queued: Any, project: Any, alice: Any) -> None:
    parent = queued()
    checkpoint = _saved(parent, 1, 4)
    child = run_create(project=project, user=alice, name="child", config=_config(parent, 20), checkpoint=checkpoint)
    own = _saved(child, 1, 6)
    (own.folder / "weights").write_bytes(b"damaged!!")
    assert resume_from(child) == checkpoint.folder
    (checkpoint.folder / "weights").write_bytes(b"x")
    with pytest.raises(ModelError, match="step 4"):
        resume_from(child)
    Checkpoint.objects.filter(pk=checkpoint.pk).delete()
    child.refresh_from_db()
    with pytest.raises(ModelError, match="step 4"):
        resume_from(child)
    Run.objects.filter(pk=parent.pk).update(state=RunState.SUCCEEDED)  # else it is claimed first
    supervise(child.pk)
    child.refresh_from_db()
    assert (child.state, child.error["code"]) == (RunState.FAILED, "model_unusable")


def test_a_child_is_refused_where_the_weights_would_not_fit(queued: Any, project: Any, alice: Any) -> None:
    parent = queued()
    checkpoint, final = _saved(parent, 1, 4), _saved(parent, 1, 9, final=True)
    lora = _config(parent, 20)
    lora.model.lora_rank = 8
    moments = _config(parent, 20)
    moments.optim.optimizer = "adamw_bf16"
    short, kind = _config(parent, 4), _config(parent, 20)
    kind.kind = "sft"
    for config, source, option in (
        (lora, checkpoint, "model.lora_rank"),
        (moments, checkpoint, "optim.optimizer"),
        (short, checkpoint, "run.max_steps"),
        (kind, checkpoint, "kind"),
        (_config(parent, 20), final, "model.source"),
    ):
        with pytest.raises(ConfigError, match=f"^{option}: "):
            run_create(project=project, user=alice, name="child", config=config, checkpoint=source)
    check_child(project, _config(parent, 5), checkpoint)
    for name, value in (("source", "a/b"), ("revision", "x"), ("lora_alpha", 3), ("lora_targets", "q_proj")):
        changed = _config(parent, 20)
        setattr(changed.model, name, value)
        with pytest.raises(ConfigError, match=rf"^model\.{name}: "):
            check_child(project, changed, checkpoint)
    elsewhere = Project.objects.create(team=project.team, name="Elsewhere", slug="elsewhere")
    with pytest.raises(ConfigError, match="cannot be resumed from"):
        check_child(elsewhere, _config(parent, 20), checkpoint)
    checkpoint.run.imported = True
    with pytest.raises(ConfigError, match="cannot be resumed from"):
        check_child(project, _config(parent, 20), checkpoint)
    Checkpoint.objects.filter(pk=checkpoint.pk).update(state="removed")
    checkpoint.refresh_from_db()
    with pytest.raises(ConfigError, match=r"model\.source"):
        run_create(project=project, user=alice, name="child", config=_config(parent, 20), checkpoint=checkpoint)


def test_what_the_trainer_reports_about_itself_is_kept_with_the_run(written: Any) -> None:
    w = written()
    w.write(
        journal_module.RunStarted(kind="grpo", total_steps=20, from_step=6),
        journal_module.Resumed(
            source="1/checkpoint-6", step=6, lost_steps=3, set_aside=["2/checkpoint-8"], verified=["weights"]
        ),
        journal_module.SamplerChecked(step=7, tokens=96, max_gap=2e-5, mean_gap=1e-6, tolerance=1e-3),
        journal_module.UpdateSkipped(step=8, what="gradient", in_a_row=1),
    )
    w.project()
    w.write(journal_module.UpdateSkipped(step=11, what="loss", in_a_row=1))
    w.project()
    health = w.run.health
    assert health["skipped"] == {"count": 2, "step": 11, "what": "loss"}
    assert (health["sampler"]["max_gap"], health["sampler"]["tolerance"]) == (2e-5, 1e-3)
    assert (health["resumed"]["lost_steps"], health["resumed"]["set_aside"]) == (3, ["2/checkpoint-8"])
    kinds = list(RunEvent.objects.filter(run=w.run, seq__gt=2).order_by("seq").values_list("kind", flat=True))
    assert [kind for kind in kinds if kind not in {"attempt", "state"}] == [
        "resumed",
        "sampler_checked",
        "update_skipped",
        "update_skipped",
    ]


def test_a_trainer_gets_the_folders_of_the_attempts_before_it(queued: Any) -> None:
    """The library guessed them: numbered folders next to its own."""
    run = queued()
    attempt_end(claim(run.pk))
    first = run_dir(run.pk) / "1"
    first.mkdir(parents=True, exist_ok=True)
    attempt_end(claim(run.pk))  # the second left no folder
    arguments, _access = Supervisor(claim(run.pk))._prepare()
    folders = [arguments[place + 1] for place, word in enumerate(arguments) if word == "--earlier"]
    assert folders == [str(first)]
    assert arguments[1:5] == ["--run-dir", str(run_dir(run.pk) / "3"), "--attempt", "3"]


def test_a_run_that_reports_goes_by_its_own_name_and_id(queued: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "operators")
    monkeypatch.setenv("SWANLAB_API_KEY", "not asked for")
    run = queued()
    run.config["report"] = {"to": ["wandb"]}
    run.save(update_fields=["config"])
    arguments, access = Supervisor(claim(run.pk))._prepare()
    assert arguments[arguments.index("--run-id") + 1] == str(run.pk)
    assert access["WANDB_API_KEY"] == "operators" and "SWANLAB_API_KEY" not in access
    written = config_load(Path(arguments[0])).report
    assert (written.to, written.name, written.project) == (["wandb"], run.name, run.project.slug)
    assert "operators" not in Path(arguments[0]).read_text()
    run.refresh_from_db()
    assert "operators" not in str(run.resolved)


@pytest.mark.django_db(transaction=True)  # beats come from a thread with its own connection
def test_an_attempt_that_begins_again_says_why_and_what_was_lost(queued: Any) -> None:
    """A run whose trainer had died before its first save began again at step 0, and its page did not say so."""
    run = queued("mode-kill/at-5/sleep-1", steps=8, save_every=0)
    supervise(run.pk)
    run.refresh_from_db()
    assert run.health["ended"] == {
        "attempt": 1,
        "code": "trainer_killed",
        "message": "The trainer was killed from outside (SIGKILL), not for want of memory.",
    }
    arguments, _access = Supervisor(claim(run.pk))._prepare()
    assert arguments[-2:] == ["--resume-from", str(run_dir(run.pk))]


@pytest.mark.parametrize(
    ("step", "unsaved"),
    [
        (6, ""),
        (7, "Step 7 was not saved and is trained again."),
        (9, "Steps 7 to 9 were not saved and are trained again."),
    ],
)
def test_the_page_says_which_steps_a_stop_has_not_saved(make_run: Any, step: int, unsaved: str) -> None:
    """A run that was ended in the middle of an update looked like one that had saved everything."""
    run = make_run(state=RunState.PAUSED, attempt=1, step=step)
    _saved(run, 1, 6)
    begins = "Resume continues from the checkpoint of step 6, attempt 1."
    assert next_act(GoingOn(run)) == f"{begins} {unsaved}".strip()


def test_without_a_checkpoint_all_steps_are_trained_again(make_run: Any) -> None:
    words = {step: next_act(GoingOn(make_run(state=RunState.PAUSED, attempt=1, step=step))) for step in (0, 1, 8)}
    begins = "No checkpoint was saved, so Resume begins at step 0."
    assert words == {
        0: begins,
        1: f"{begins} Step 1 was not saved and is trained again.",
        8: f"{begins} Steps 1 to 8 were not saved and are trained again.",
    }
    evaluation = make_run(state=RunState.PAUSED, attempt=1, step=8, kind="sample")
    assert next_act(GoingOn(evaluation)) == "Resume continues after step 8."
