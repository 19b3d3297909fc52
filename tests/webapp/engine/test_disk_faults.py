"""A data folder that can only be read costs a pause, which ends by itself, and says so on the pages."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.core.cache import cache
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.urls import reverse

from tests.chaos.services import alive, wait_until
from tests.disks import read_only
from training.algorithms.checkpoints import write_whole
from training.errors import StorageFailed
from training.machine import write_refusal
from webapp.common.host import READY_VARIABLE, say_alive, say_ready
from webapp.common.storage import run_dir
from webapp.engine import recovery
from webapp.engine.services import GoingOn
from webapp.engine.supervisor import supervise
from webapp.engine.trainer import OUTPUT_NAME, PROCESS_NAME, Trainer
from webapp.people.teams.models import Project, User
from webapp.runs.models import Run, RunEvent
from webapp.runs.states import RunState
from webapp.site.run_pages.page import next_act

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_run_that_may_not_begin_pauses_and_continues_by_itself(queued: Any) -> None:
    """It failed for good after three attempts: its supervisor could not write the trainer's config."""
    run = queued("sleep-1", steps=5)
    run_dir(run.pk).mkdir(parents=True)
    with read_only(run_dir(run.pk)):
        supervise(run.pk)
        run.refresh_from_db()
        assert (run.state, run.error["code"], run.attempt) == (RunState.PAUSED, "storage_failed", 1)
        assert "is read-only" in run.error["message"] and str(run_dir(run.pk)) in run.error["message"]
        assert recovery.promise(run) == "It continues by itself once the cause of the pause is over."
        assert recovery.resume_where_over() == 0, "not yet"
    assert recovery.resume_where_over() == 1 and recovery.resume_where_over() == 0
    supervise(run.pk)
    run.refresh_from_db()
    assert (run.state, run.step, run.attempt) == (RunState.SUCCEEDED, 5, 2)
    reasons = RunEvent.objects.filter(run=run, kind="state", payload__to="queued").values_list("payload", flat=True)
    assert [one["reason"]["template"] for one in reasons] == ["the disk can be written again"]


@pytest.mark.parametrize(
    ("number", "code", "state"),
    [
        (errno.ENOSPC, "storage_full", "paused"),
        (errno.EDQUOT, "storage_full", "paused"),
        (errno.EROFS, "storage_failed", "paused"),
        (errno.EIO, "storage_failed", "paused"),
        (errno.EACCES, "supervisor_fault", "queued"),
    ],
)
@pytest.mark.parametrize("where", ["_prepare", "Trainer"])
def test_each_fault_of_the_disk_pauses_and_no_other(
    queued: Any, monkeypatch: pytest.MonkeyPatch, number: int, code: str, state: str, where: str
) -> None:
    def fails(*_: Any) -> None:
        raise OSError(number, os.strerror(number))

    target = "webapp.engine.supervisor." + ("Supervisor._prepare" if where == "_prepare" else "Trainer")
    monkeypatch.setattr(target, fails)
    run = queued("sleep-1", steps=5)
    supervise(run.pk)
    run.refresh_from_db()
    assert run.state == state
    ended = run.health["ended"]["code"]
    assert ended == (code if where == "_prepare" or state == "paused" else "trainer_died")


def test_a_trainer_that_could_not_be_found_again_is_ended(tmp_path: Path, settings: Any) -> None:
    """Its note could not be written: the attempt ended, another began, and the first one trained on."""
    (tmp_path / PROCESS_NAME).mkdir()
    settings.TRAINER_COMMAND = ["/bin/sh", "-c", f"echo $$ > {tmp_path}/pid; exec sleep 60", "x"]
    seen: list[int] = []
    kill = Trainer.kill

    def noted(trainer: Trainer) -> None:
        seen.append(trainer.pid)
        kill(trainer)

    with pytest.MonkeyPatch.context() as patch, pytest.raises(IsADirectoryError):
        patch.setattr(Trainer, "kill", noted)
        Trainer(tmp_path, [])
    assert len(seen) == 1 and not alive(seen[0]) and (tmp_path / OUTPUT_NAME).exists()


def test_a_trainer_that_ended_leaves_nothing_open(tmp_path: Path, settings: Any) -> None:
    """A worker starts thousands of them."""
    settings.TRAINER_COMMAND, before = ["/bin/false"], os.listdir("/proc/self/fd")
    trainer = Trainer(tmp_path, [])
    assert wait_until(lambda: trainer.poll() is not None) and trainer.poll() == 1
    assert os.listdir("/proc/self/fd") == before


def test_a_checkpoint_that_a_disk_does_not_take_is_typed(tmp_path: Path) -> None:
    with read_only(tmp_path), pytest.raises(StorageFailed, match="is read-only"):
        write_whole(tmp_path / "model", 1, lambda folder: None)
    assert os.listdir(tmp_path) == []


def test_whether_the_folder_takes_anything_is_tried(tmp_path: Path) -> None:
    assert write_refusal(tmp_path / "new") is None and os.listdir(tmp_path / "new") == []
    with read_only(tmp_path):
        fault = write_refusal(tmp_path)
        assert fault is not None and fault.errno == errno.EROFS
    assert write_refusal(tmp_path) is None


def test_pages_and_monitors_say_so(
    client: Client, make_run: Callable[..., Run], rita: User, client_for: Any, tmp_path: Path, settings: Any
) -> None:
    settings.DATA_DIR = tmp_path
    error = {"code": "storage_failed", "boundary": "storage", "message": "The disk / cannot be written.", "hint": ""}
    run = make_run(state=RunState.PAUSED, attempt=1, error=error)
    message = f"The data folder {tmp_path} cannot be written (the disk is read-only): the operator of this site has to"

    def looks() -> tuple[bool, bool, bool]:
        cache.delete("readyz")
        page = client_for(rita).get("/workers/").content.decode()
        return message in page, message in next_act(GoingOn(run)), client.get("/readyz").json()["disk"]

    assert looks() == (False, False, True)
    with read_only(tmp_path):
        assert looks() == (True, True, False)
        cache.delete("readyz")
        assert client.get("/readyz").status_code == 503
        assert client_for(rita).get(reverse("run-detail", args=[run.project.slug, run.pk])).status_code == 200


def test_what_is_sent_meanwhile_is_refused_with_a_sentence(
    project: Project, bob: User, client_for: Callable[..., Client], settings: Any
) -> None:
    """It was a 500."""
    folder = Path(settings.DATA_DIR) / "datasets"
    folder.mkdir(exist_ok=True)
    client, address = client_for(bob), reverse("dataset-new", args=[project.slug])
    client.raise_request_exception = False

    def send(**headers: str) -> Any:
        file = SimpleUploadedFile("tasks.jsonl", b'{"prompt": "1"}\n')
        return client.post(address, {"name": "tasks", "file": file}, headers=headers)

    with read_only(folder):
        page, script = send(), send(accept="application/json")
        assert (page.status_code, script.status_code) == (507, 507)
        assert "The disk cannot be written now" in page.content.decode() and page.headers["Retry-After"] == "5"
        assert script.json()["code"] == "storage_failed" and "was not stored" in script.json()["message"]
        assert client.get(address).status_code == 200, "what is there can be read"
    assert send().status_code == 302


def test_a_program_that_cannot_say_that_it_lives_lives_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The clockwork ended once a second, and with it whatever would have resumed the runs."""
    ready = tmp_path / "clock"
    monkeypatch.setenv(READY_VARIABLE, str(ready))
    say_ready()
    assert ready.read_text() == str(os.getpid())
    with read_only(tmp_path):
        say_alive()
        say_ready()
    before = ready.stat().st_mtime_ns
    say_alive()
    assert ready.stat().st_mtime_ns > before
