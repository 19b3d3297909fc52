"""Creating, launching and stopping runs, and what references mean."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest
from django.utils import timezone

from training.config import JobConfig
from training.errors import ConfigError
from webapp.common.answers import in_shape
from webapp.common.storage import run_dir
from webapp.datasets.models import DatasetState
from webapp.engine import history
from webapp.engine.attempts import _model_register, attempt_end, beat, claim, worker_lost
from webapp.engine.history import run_transition
from webapp.engine.models import Outbox
from webapp.engine.recovery import nudge_forgotten
from webapp.engine.resolve import resolve
from webapp.engine.services import (
    class_of_copy,
    role_to_launch,
    run_change,
    run_create,
    run_launch,
    run_pause,
    run_resume,
    run_stop,
)
from webapp.people.notifications.models import Event
from webapp.people.teams.models import AuditEntry, Project, Role, User
from webapp.runs import answers
from webapp.runs.models import Attempt, Run, RunEvent
from webapp.runs.records.queue import read_queue
from webapp.runs.records.queue_words import queue_short
from webapp.runs.records.selectors import aged
from webapp.runs.registry.models import Checkpoint, ModelKind, RegisteredModel
from webapp.runs.states import Priority, RunState

pytestmark = pytest.mark.django_db


def _create(project: Any, user: Any, config: JobConfig, **over: Any) -> Run:
    return run_create(**({"project": project, "user": user, "name": "first", "config": config} | over))


def test_creating_queues_and_resolves(project: Any, alice: Any, job: Any) -> None:
    run = _create(project, alice, job())
    assert run.state == RunState.QUEUED and run.queued_at
    assert run.resolved["data"]["train"].endswith("rows.jsonl")
    assert run.resolved["environment"]["name"] == "tools" and run.resolved["environment"]["url"].startswith("http://")
    assert len(run.resolved["rewards"]["components"]) == 5
    assert Outbox.objects.filter(run=run, sent_at=None).count() == 1
    (event,) = RunEvent.objects.filter(run=run)
    assert (event.kind, event.seq, event.payload["to"]) == ("state", 1, "queued")


def test_the_same_key_gives_the_same_run(project: Any, alice: Any, job: Any) -> None:
    config = job()
    first = _create(project, alice, config, idempotency_key="k")
    assert _create(project, alice, config, idempotency_key="k", name="second") == first
    assert Run.objects.count() == 1


def test_a_taken_name_is_reported_and_nothing_is_left(project: Any, alice: Any, job: Any) -> None:
    config = job()
    _create(project, alice, config)
    with pytest.raises(ConfigError, match=r"^name: .*already"):
        _create(project, alice, config)
    assert (Run.objects.count(), Outbox.objects.count()) == (1, 1)


def test_a_bad_name_is_refused(project: Any, alice: Any, job: Any) -> None:
    with pytest.raises(ConfigError, match=r"^name: "):
        _create(project, alice, job(), name="<b>")


def test_a_draft_is_resolved_when_it_is_launched(project: Any, alice: Any, job: Any) -> None:
    run = _create(project, alice, JobConfig(), launch=False)
    with pytest.raises(ConfigError, match=r"^data\.train: "):
        run_launch(run=run, user=alice)
    run.config = job().model_dump(mode="json")
    run.save(update_fields=["config"])
    run = run_launch(run=run, user=alice)
    assert run.state == RunState.QUEUED and run.resolved["environment"]["name"] == "tools"


@pytest.mark.parametrize(
    ("group", "option", "value"),
    [
        ("data", "train", ""),
        ("data", "train", "/etc/passwd"),
        ("data", "train", "../x.jsonl"),
        ("data", "train", "dataset:none"),
        ("data", "train", "dataset:none@x"),
        ("data", "train", "dataset:\x00@1"),
        ("model", "source", "/etc"),
        ("model", "source", "../x"),
        ("model", "source", "a/b/c"),
        ("model", "source", "webapp"),
        ("model", "source", "envs/tools"),
        ("model", "source", "file:///etc"),
        ("model", "source", "model:none"),
        ("model", "source", "run:none"),
        ("environment", "name", ""),
        ("environment", "name", "tools"),
        ("environment", "name", "environment:none"),
        ("rewards", "spec", "reward:none@1"),
        ("rewards", "spec", "none"),
    ],
)
def test_what_cannot_be_resolved_names_its_option(project: Any, job: Any, group: str, option: str, value: str) -> None:
    config = job()
    setattr(getattr(config, group), option, value)
    with pytest.raises(ConfigError) as caught:
        run_create(project=project, user=None, name="x", config=config)
    assert caught.value.message.startswith((f"{group}.{option}: ", "config: "))
    assert not Run.objects.exists()


def test_another_projects_objects_do_not_exist(project: Any, charlie: Any, job: Any) -> None:
    elsewhere = charlie.teams.get().projects.get()
    with pytest.raises(ConfigError, match=r"there is no dataset|no model"):
        resolve(elsewhere, job())


def test_an_unready_dataset_is_refused(project: Any, job: Any, make_dataset: Any) -> None:
    config = job()
    config.data.train = make_dataset(state=DatasetState.CHECKING).reference
    with pytest.raises(ConfigError, match=r"^data\.train: .*checking"):
        resolve(project, config)


def test_a_version_may_be_left_out(project: Any, job: Any, make_dataset: Any, make_reward_spec: Any) -> None:
    make_dataset(name="d", version=1)
    newest = make_dataset(name="d", version=2)
    make_dataset(name="d", version=3, state=DatasetState.REJECTED)
    config = job()
    config.data.train, config.rewards.spec = "dataset:d", make_reward_spec().reference
    plain = resolve(project, config).config
    assert plain.data.train == str(newest.rows_path)
    assert [component.name for component in plain.rewards.components] == ["env_success"] and not plain.rewards.spec


def test_models_resolve_to_what_the_trainer_takes(project: Any, job: Any, settings: Any, tmp_path: Any) -> None:
    settings.MODELS_DIR = tmp_path
    (tmp_path / "mine").mkdir()
    made = {
        "hub": (ModelKind.HUB, "Qwen/Qwen3-0.6B"),
        "local": (ModelKind.FOLDER, "mine"),
        "tiny": (ModelKind.STARTER, ""),
    }
    for name, (kind, source) in made.items():
        RegisteredModel.objects.create(project=project, name=name, kind=kind, source=source, revision="abc")
    config = job()
    for name, expected in {"hub": "Qwen/Qwen3-0.6B", "local": str(tmp_path / "mine"), "tiny": "starter"}.items():
        config.model.source = f"model:{name}"
        assert resolve(project, config).config.model.source == expected
    RegisteredModel.objects.filter(name="local").update(source="../../etc")
    config.model.source = "model:local"
    with pytest.raises(ConfigError, match=r"^model\.source: "):
        resolve(project, config)
    for source in ("Qwen/Qwen3-0.6B", "gpt2"):
        config.model.source = source
        assert resolve(project, config).config.model.source == source


def test_a_run_waits_for_the_model_of_another(project: Any, alice: Any, job: Any) -> None:
    first = _create(project, alice, job())
    config = job()
    config.model.source = "run:first"
    second = _create(project, alice, config, name="second")
    assert second.after == first and claim(second.pk) is None
    lease = claim(first.pk)
    folder = run_dir(first.pk) / "1" / "model"
    folder.mkdir(parents=True)
    Checkpoint.objects.create(
        project=project,
        run=first,
        attempt=1,
        step=1,
        path="1/model",
        bytes=1,
        final=True,
        seq=0,
        created_at=first.created_at,
    )
    Attempt.objects.filter(run=first).update(outcome={"status": "succeeded", "step": 1})
    Outbox.objects.all().delete()
    attempt_end(lease)
    assert [row.run_id for row in Outbox.objects.all()] == [second.pk]
    assert RegisteredModel.objects.get(project=project).name == "first"
    assert claim(second.pk) is not None
    assert resolve(project, config).config.model.source == str(folder)


def test_followers_fail_with_the_run_they_wait_for(project: Any, alice: Any, job: Any) -> None:
    first = _create(project, alice, job())
    for name, before in (("second", "first"), ("third", "second")):
        config = job()
        config.model.source = f"run:{before}"
        _create(project, alice, config, name=name)
    other = _create(project, alice, job(), name="other")
    run_stop(run=first, user=alice)
    states = dict(Run.objects.exclude(pk=other.pk).values_list("name", "state"))
    assert states == {"first": "cancelled", "second": "queued", "third": "queued"}, "it may be resumed"
    assert in_shape(answers.RunView, aged(Run.objects.get(name="second")))["waiting_for_state"] == "cancelled"
    assert nudge_forgotten() == 0, "they cannot start"
    Run.objects.filter(pk=first.pk).update(state=RunState.RUNNING)
    run_transition(first.pk, RunState.FAILED)
    states = dict(Run.objects.values_list("name", "state"))
    assert states == {"first": "failed", "second": "failed", "third": "failed", "other": "queued"}
    assert Run.objects.get(name="third").error["code"] == "dependency_failed"


def test_the_stop_of_a_run_at_work_fails_none_that_waits_for_it(project: Any, alice: Any, job: Any) -> None:
    """A person stopped it, and may resume it: those that start from its model wait, and no one hears of a failure."""
    first = _create(project, alice, job())
    config = job()
    config.model.source = "run:first"
    second = _create(project, alice, config, name="second")
    lease = claim(first.pk)
    assert lease is not None and run_stop(run=first, user=alice).state == RunState.STOPPING
    Attempt.objects.filter(run=first).update(outcome={"status": "stopped", "step": 0})
    assert attempt_end(lease).state == RunState.CANCELLED
    assert claim(second.pk) is None
    second.refresh_from_db()
    assert (second.state, second.error) == (RunState.QUEUED, None)
    assert not Event.objects.filter(object_id=second.pk).exists()
    found = read_queue().queued(second.pk)
    assert found is not None and queue_short(found) == "after first, which was stopped"
    assert run_resume(run=first, user=alice).state != RunState.QUEUED, "it has no checkpoint"
    Run.objects.filter(pk=first.pk).update(attempt=0)
    first.refresh_from_db()
    assert run_resume(run=first, user=alice).state == RunState.QUEUED
    again = read_queue().queued(second.pk)
    assert again is not None and again.why == "after"
    assert run_stop(run=second, user=alice).state == RunState.CANCELLED


def test_the_end_of_an_attempt_is_that_of_one_run(project: Project, alice: User, job: Any) -> None:
    runs = [_create(project, alice, job(), name=name) for name in ("one", "other")]
    lease, other = (claim(run.pk) for run in runs)
    assert lease is not None and other is not None and beat(lease)
    Attempt.objects.create(run=runs[1], number=9, owner="w", started_at=timezone.now())
    assert attempt_end(lease, worker_lost("w")).state == RunState.QUEUED
    ended = Attempt.objects.exclude(ended_at=None)
    assert [(attempt.run, (attempt.error or {}).get("code")) for attempt in ended] == [(runs[0], "worker_lost")]
    assert not Attempt.objects.filter(run=runs[1]).exclude(error=None).exists() and beat(other)


def test_stopping_is_idempotent(project: Any, alice: Any, job: Any) -> None:
    run = _create(project, alice, job())
    assert run_stop(run=run, user=alice).state == RunState.CANCELLED
    seq = run.seq
    assert run_stop(run=run, user=alice).seq == seq
    busy = _create(project, alice, job(), name="busy")
    claim(busy.pk)
    assert run_stop(run=busy, user=alice).state == RunState.STOPPING
    assert run_stop(run=busy, user=alice).state == RunState.STOPPING


def test_pausing_and_resuming(project: Any, alice: Any, job: Any) -> None:
    run = _create(project, alice, job())
    assert run_pause(run=run).state == RunState.QUEUED
    claim(run.pk)
    assert run_pause(run=run).state == RunState.PAUSING
    assert run_resume(run=run).state == RunState.PAUSING


def test_each_act_of_a_person_has_one_row_in_the_audit(project: Project, alice: User, job: Any) -> None:
    draft = _create(project, alice, job(), launch=False)
    Run.objects.filter(pk=draft.pk).update(archived_at=timezone.now())
    for _twice in range(2):
        assert run_launch(run=draft, user=alice).archived_at is None
    claim(draft.pk)
    for act in (run_pause, run_pause, run_stop, run_stop):
        act(run=draft, user=alice)
    Run.objects.filter(pk=draft.pk).update(state=RunState.PAUSED, attempt=3, archived_at=timezone.now())
    draft.refresh_from_db()
    for _twice in range(2):
        resumed = run_resume(run=draft, user=alice)
        assert (resumed.state, resumed.archived_at, resumed.attempts_forgiven) == (RunState.QUEUED, None, 3)
    acts = AuditEntry.objects.order_by("id").values_list("action", "username")
    expected = ["run_added", "run_launched", "run_paused", "run_stopped", "run_resumed"]
    assert list(acts) == [(act, "alice") for act in expected]
    reasons = [event.payload["reason"] for event in RunEvent.objects.filter(kind="state").order_by("seq")]
    assert [reason["values"].get("name") for reason in reasons if reason] == [None, *["alice"] * 4]
    _create(project, alice, job(), name="second")
    audited = _create(project, alice, job(), name="third", launch=False)
    run_launch(run=audited, user=alice, audited=True)
    assert [entry.action for entry in AuditEntry.objects.order_by("id")][5:] == ["run_launched", "run_added"]


def test_only_a_draft_is_changed(project: Project, alice: User, job: Any) -> None:
    draft, config = _create(project, alice, job(), launch=False), job()
    _create(project, alice, job(), name="taken", launch=False)
    config.run.max_steps = 77
    assert run_change(run=draft, name="better", config=config, priority=Priority.HIGH)
    draft.refresh_from_db()
    assert (draft.name, draft.total_steps, draft.priority) == ("better", 77, "high")
    assert run_change(run=draft, name="better", config=config)
    draft.refresh_from_db()
    assert draft.priority == "high", "its class stays unless another one is given"
    for name in ("taken", "<b>"):
        with pytest.raises(ConfigError, match=r"^name: "):
            run_change(run=draft, name=name, config=config)
    assert run_launch(run=draft, user=alice).state == RunState.QUEUED
    assert not run_change(run=draft, name="late", config=config)
    draft.refresh_from_db()
    assert draft.name == "better"


@pytest.mark.parametrize(
    ("priority", "role", "of_copy"),
    [
        (None, Role.EDITOR, None),
        (Priority.NORMAL, Role.EDITOR, Priority.NORMAL),
        (Priority.HIGH, Role.OWNER, Priority.NORMAL),
        (Priority.LOW, Role.OWNER, Priority.NORMAL),
    ],
)
def test_owners_choose_another_class(priority: Priority | None, role: Role, of_copy: Priority | None) -> None:
    assert role_to_launch(priority) == role
    if priority is not None:
        run = Run(priority=priority)
        assert class_of_copy(run, Role.OWNER) == priority
        assert [class_of_copy(run, other) for other in (Role.EDITOR, Role.VIEWER, None)] == [of_copy] * 3


def test_a_final_model_has_the_name_of_its_run_or_the_next_free_one(project: Project, make_run: Any) -> None:
    elsewhere = Project.objects.create(team=project.team, name="Elsewhere", slug="elsewhere")
    for of, name in ((project, "r"), (project, "r (2)"), (elsewhere, "r (3)"), (elsewhere, "free")):
        RegisteredModel.objects.create(project=of, name=name, kind="hub", source="a/b")
    for name, registered in (("r", "r (3)"), ("free", "free")):
        run = make_run(name=name, kind="grpo", attempt=2)
        fields = {"path": "1/model", "bytes": 1, "seq": 1, "created_at": timezone.now(), "final": True}
        points = [Checkpoint.objects.create(project=project, run=run, attempt=n, step=3, **fields) for n in (2, 1)]
        for _twice in range(2):
            _model_register(run)
        model = RegisteredModel.objects.get(checkpoint__run=run)
        assert (model.name, model.project, model.kind, model.checkpoint) == (registered, project, "run", points[0])


def test_a_dead_broker_keeps_the_nudge(project: Any, alice: Any, job: Any, monkeypatch: Any) -> None:
    run = _create(project, alice, job())
    monkeypatch.undo()
    with mock.patch("celery.current_app.send_task", side_effect=ConnectionError("down")):
        assert history.send_unsent() == 0
    assert Outbox.objects.get(run=run).sent_at is None
    with mock.patch("celery.current_app.send_task") as send:
        assert history.send_unsent() == 1
    assert send.call_args.args == ("runs.supervise",) and send.call_args.kwargs["args"] == [str(run.pk), "train"]
    assert send.call_args.kwargs["queue"] == "train"
    assert Outbox.objects.get(run=run).sent_at
