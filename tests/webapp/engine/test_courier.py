"""Files of attempts between hosts: sent while a trainer works, brought before the next attempt, copied home."""

from __future__ import annotations

import json
import shutil
import threading
import uuid
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import OperationalError, connection
from django.utils import timezone

from tests.chaos.services import wait_until
from training.algorithms.checkpoints import write_whole
from training.config import JobConfig
from training.errors import ConfigError, FilesAway, FilesFull, FilesMissing, FilesRefused, TiltyardError
from webapp.common import objects
from webapp.common.storage import attempt_dir, dataset_dir, run_dir
from webapp.common.workers.beating import folder_problem, training_problem
from webapp.common.workers.models import DataFolder
from webapp.engine import courier
from webapp.engine.attempts import attempt_end
from webapp.engine.courier import Courier
from webapp.engine.history import Lease, LeaseLost
from webapp.engine.projection import Projector
from webapp.engine.resolve import model_meant, resolve
from webapp.engine.supervisor import Supervisor
from webapp.ops.management.commands.prepare_site import site_prepare
from webapp.runs.models import Attempt, Run, RunEvent
from webapp.runs.registry.models import Checkpoint
from webapp.runs.states import RunState

pytestmark = pytest.mark.django_db


@pytest.fixture
def hosts(tmp_path: Path, settings: Any) -> Any:
    """``hosts("site")``, ``hosts("one")`` …: this process works with that data folder, on one store."""
    DataFolder.objects.all().delete()
    settings.FILES = str(tmp_path / "store")

    def go(name: str) -> Path:
        (tmp_path / name).mkdir(exist_ok=True)
        settings.DATA_DIR = tmp_path / name
        return tmp_path / name

    go("site")
    assert folder_problem() == ""
    return go


@pytest.fixture
def run(make_run: Any) -> Run:
    found: Run = make_run(state=RunState.RUNNING, attempt=1, lease_owner="w", lease_beat_at=timezone.now())
    Attempt.objects.get_or_create(run=found, number=1, defaults={"owner": "w", "started_at": timezone.now()})
    return found


def save(run: Run, attempt: int, step: int, *, final: bool = False, text: str = "weights") -> Path:
    """A whole checkpoint on this host, and its row."""
    name = "model" if final else f"checkpoints/checkpoint-{step}"
    folder = attempt_dir(run.pk, attempt) / name
    size = write_whole(folder, step, lambda staging: (staging / "w.safetensors").write_text(text))
    Checkpoint.objects.create(
        project=run.project, run=run, attempt=attempt, step=step, path=f"{attempt}/{name}", bytes=size, final=final,
        seq=step, created_at=timezone.now(),
    )  # fmt: skip
    return folder


def write(run: Run, attempt: int, name: str, text: str) -> Path:
    path = attempt_dir(run.pk, attempt) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(text)
    return path


def unreported(fault: TiltyardError | None) -> None:
    """For couriers whose store works."""
    assert fault is None


def send(sender: Courier) -> None:
    """One pass."""
    sender._send_journal()
    sender._send_folders()


def test_what_an_attempt_writes_reaches_the_next_host_and_the_site(hosts: Any, run: Run) -> None:
    hosts("one")
    sender = Courier(run.pk, 1, unreported)
    write(run, 1, "journal.jsonl", "1\n")
    first = save(run, 1, 2)
    send(sender)
    write(run, 1, "journal.jsonl", "2\n")
    second = save(run, 1, 4)
    shutil.rmtree(first)  # as retention does
    write(run, 1, "journal.jsonl.half", "not the journal")
    send(sender)
    assert Attempt.objects.get(run=run).shipped_at is not None
    assert objects.published_below(run_dir(run.pk)) == [second]

    here = hosts("two")
    courier.bring_earlier(run.pk, 2)
    courier.bring_checkpoint(run)
    assert (attempt_dir(run.pk, 1) / "journal.jsonl").read_text() == "1\n2\n"
    assert sorted(p.name for p in (here / f"runs/{run.pk}/1/checkpoints").iterdir() if p.is_dir()) == ["checkpoint-4"]

    hosts("one")
    write(run, 1, "output.log", "printed")
    write(run, 1, "trainer/optimizer.pt", "left out")
    write(run, 1, "journal.jsonl", "3\n")
    mark = attempt_dir(run.pk, 1).with_name(".1.published")
    assert not mark.exists(), "not all of it is in the store yet"
    sender.finish()
    assert mark.exists(), "from now on the cache may evict it"
    hosts("site")
    assert courier.copy_home() == 1 and courier.copy_home() == 0
    assert not attempt_dir(run.pk, 1).with_name(".1.published").exists()
    folder = attempt_dir(run.pk, 1)
    assert (folder / "journal.jsonl").read_text() == "1\n2\n3\n" and (folder / "output.log").read_text() == "printed"
    assert not (folder / "trainer").exists() and not (folder / "checkpoints/checkpoint-2").exists()
    assert (folder / "checkpoints/checkpoint-4/w.safetensors").read_text() == "weights"


def test_copies_of_removed_checkpoints_go_from_the_site(hosts: Any, run: Run) -> None:
    hosts("one")
    sender, folder = Courier(run.pk, 1, unreported), save(run, 1, 2)
    send(sender)
    hosts("site")
    copy = Checkpoint.objects.get(run=run).folder
    assert courier.copy_home() == 1 and copy.is_dir()
    hosts("one")
    shutil.rmtree(folder)
    Checkpoint.objects.filter(run=run).update(state="removed")
    send(sender)
    Attempt.objects.filter(run=run).update(shipped_at=timezone.now())
    hosts("site")
    assert courier.copy_home() == 1 and not copy.exists()


def test_the_site_s_own_attempts_are_not_copied(hosts: Any, run: Run) -> None:
    sender = Courier(run.pk, 1, unreported)
    save(run, 1, 2)
    sender.finish()
    assert Attempt.objects.get(run=run).shipped_at is None and courier.copy_home() == 0
    assert objects.published_below(run_dir(run.pk)), "but other hosts can fetch them"
    Attempt.objects.filter(run=run).update(shipped_at=timezone.now())
    hosts("one")
    assert courier.copy_home() == 0, "only the site copies"
    hosts("site")
    assert courier.copy_home() == 1


def test_the_site_s_clock_takes_the_store_where_no_worker_of_the_site_does(hosts: Any, tmp_path: Path) -> None:
    """A web host has no worker that trains, and the others waited for one."""
    hosts("one")
    assert courier.copy_home() == 0 and training_problem() == "files_unclaimed", "not a cache"
    hosts("site")
    assert courier.copy_home() == 0
    hosts("one")
    assert training_problem() == ""
    (tmp_path / "store" / objects.SITE).write_text('{"site": "another"}')
    hosts("site")
    assert courier.copy_home() == 0 and training_problem() == "other_site"


def test_nothing_is_copied_home_from_the_store_of_another_site(hosts: Any, run: Run, tmp_path: Path) -> None:
    hosts("one")
    save(run, 1, 4)
    send(Courier(run.pk, 1, unreported))
    hosts("site")
    (tmp_path / "store" / objects.SITE).write_text('{"site": "another"}')
    assert courier.copy_home() == 0
    (tmp_path / "store" / objects.SITE).unlink()
    assert courier.copy_home() == 1


def test_a_damaged_or_missing_checkpoint_is_passed_over(hosts: Any, run: Run) -> None:
    hosts("one")
    sender = Courier(run.pk, 1, unreported)
    save(run, 1, 2)
    damaged = save(run, 1, 4)
    send(sender)
    save(run, 1, 6)  # never sent
    objects.obstore.put(objects._ours(), f"{objects.key_of(damaged)}/w.safetensors", b"other")
    hosts("two")
    courier.bring_checkpoint(run)
    assert [row.step for row in Checkpoint.objects.filter(run=run) if row.folder.is_dir()] == [2]


def test_the_newest_checkpoint_of_the_latest_attempt_is_brought_first(
    hosts: Any, run: Run, make_run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts("one")
    parent, asked = make_run(), []
    begun = save(parent, 1, 3)
    run.resume_checkpoint = Checkpoint.objects.get(run=parent)
    first, second, third = save(run, 1, 2), save(run, 1, 8), save(run, 2, 4)
    save(run, 2, 9, final=True)
    Checkpoint.objects.filter(run=run, step=2).update(state="removed")

    def fetch(folder: Path) -> None:
        asked.append(folder)
        if folder != begun:
            raise FilesMissing("never sent")

    monkeypatch.setattr(objects, "fetch", fetch)
    courier.bring_checkpoint(run)
    assert asked == [third, second, begun] and first not in asked


def test_a_store_that_stays_away_is_named(hosts: Any, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    hosts("one")
    save(run, 1, 2)
    waits: list[float] = []

    def away(*_args: Any, **_options: Any) -> Any:
        raise FilesAway("away")

    clock = iter(range(0, 10_000, 30))
    monkeypatch.setattr(courier.time, "monotonic", lambda: float(next(clock)))
    monkeypatch.setattr(courier.time, "sleep", waits.append)
    with monkeypatch.context() as patch:
        patch.setattr(objects, "publish", away)
        with pytest.raises(FilesAway):
            Courier(run.pk, 1, lambda fault: None).finish()
    assert waits[:3] == [1.0, 2.0, 4.0] and len(waits) < 10
    monkeypatch.setattr(courier.time, "monotonic", lambda: 0.0)
    Courier(run.pk, 1, unreported).finish()


def test_one_damaged_attempt_stops_no_other(hosts: Any, run: Run, make_run: Any) -> None:
    hosts("one")
    other = make_run(state=RunState.RUNNING, attempt=1)
    Attempt.objects.get_or_create(run=other, number=1, defaults={"owner": "w", "started_at": timezone.now()})
    for each in (run, other):
        save(each, 1, 2)
        send(Courier(each.pk, 1, unreported))
    first = Checkpoint.objects.get(run=run).folder
    objects.obstore.put(objects._ours(), f"{objects.key_of(first)}/w.safetensors", b"other")
    hosts("site")
    assert courier.copy_home() == 1 and Checkpoint.objects.get(run=other).folder.is_dir()
    assert not Checkpoint.objects.get(run=run).folder.exists()
    assert Attempt.objects.get(run=run).copied_at is None, "it is tried again"


def test_a_courier_ends_with_its_attempt(hosts: Any, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else one whose lease went to another worker would send its journal without end."""

    def lost(supervisor: Supervisor) -> None:
        supervisor.courier = Courier(run.pk, 1, unreported)
        supervisor.courier.start()
        raise LeaseLost("another worker has it")

    monkeypatch.setattr(Supervisor, "_attempt", lost)
    monkeypatch.setattr(Supervisor, "_end_trainer", lambda _self: None)
    supervisor = Supervisor(Lease(run.pk, 1, "w"))
    supervisor.run()
    assert supervisor.courier is not None
    for thread in supervisor.courier.threads:
        thread.join(timeout=10)
    assert not any(thread.is_alive() for thread in supervisor.courier.threads)


def test_the_database_gets_only_lines_that_were_shipped(hosts: Any, run: Run) -> None:
    """Else the site would know of rollouts that no journal has, once the host is lost."""
    hosts("one")
    sender = Courier(run.pk, 1, unreported)
    projector = Projector(Lease(run.pk, 1, "w"))
    projector.shipped = lambda: sender.shipped
    line = json.dumps({"type": "log", "t": 1.0, "level": "info", "message": "first"}) + "\n"
    journal = write(run, 1, "journal.jsonl", line + line[:9])
    assert not projector.step() and Attempt.objects.get(run=run).journal_offset == 0
    sender._send_journal()
    assert projector.step() and not projector.step()
    write(run, 1, "journal.jsonl", line[9:] + line)
    assert not projector.step() and Attempt.objects.get(run=run).journal_offset == len(line)
    sender.shipped = 2 * len(line) + 5  # a stretch may end within a line
    assert projector.step() and not projector.step()
    assert Attempt.objects.get(run=run).journal_offset == 2 * len(line)
    sender.finish()
    projector.drain()
    assert Attempt.objects.get(run=run).journal_offset == journal.stat().st_size == 3 * len(line)


def test_a_journal_does_not_wait_for_a_checkpoint(hosts: Any, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    hosts("one")
    began, release = threading.Event(), threading.Event()

    def slow(_folder: Path) -> None:
        began.set()
        release.wait(60)

    monkeypatch.setattr(courier, "EVERY_S", 0.01)
    monkeypatch.setattr(objects, "publish", slow)
    sender = Courier(run.pk, 1, unreported)
    save(run, 1, 2)
    sender.start()
    assert began.wait(30)
    size = write(run, 1, "journal.jsonl", "1\n").stat().st_size
    wait_until(lambda: sender.shipped == size, 30, what="a shipped journal")
    release.set()
    sender.end()
    for thread in sender.threads:
        thread.join(timeout=30)


# --- The outcome ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("sent", "state"), [(True, RunState.SUCCEEDED), (False, RunState.QUEUED)])
def test_a_run_whose_model_was_lost_with_its_host_trains_again(sent: bool, state: str, hosts: Any, run: Run) -> None:
    hosts("one")
    save(run, 1, 8, final=True)
    if sent:
        send(Courier(run.pk, 1, unreported))
    Attempt.objects.filter(run=run).update(outcome={"type": "run_finished", "status": "succeeded", "step": 8})
    hosts("site")
    assert attempt_end(Lease(run.pk, 1, "w")).state == state


def test_a_model_that_cannot_be_asked_for_counts_as_lost(hosts: Any, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run without its model would be wrong; training again costs only time."""
    hosts("one")
    save(run, 1, 8, final=True)
    Courier(run.pk, 1, unreported).finish()
    hosts("site")
    assert not courier.model_lost(run.pk)

    def away(*_args: Any) -> Any:
        raise FilesAway("away")

    monkeypatch.setattr(objects, "is_published", away)
    assert courier.model_lost(run.pk)
    hosts("one")
    assert not courier.model_lost(run.pk), "it is here"


def test_without_a_store_nothing_is_asked(run: Run, settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.FILES = ""
    monkeypatch.setattr(objects, "_store", lambda *_: pytest.fail("asked"))
    assert not courier.model_lost(run.pk) and courier.copy_home() == 0 and not objects.is_cache()


# --- Configs and folders ----------------------------------------------------------------------------------------------
def test_a_cache_fetches_what_a_config_names(hosts: Any, project: Any, make_dataset: Any, run: Run) -> None:
    dataset = make_dataset()
    dataset.rows_path.parent.mkdir(parents=True, exist_ok=True)
    dataset.rows_path.write_text('{"prompt": "p", "completion": "c"}\n')
    config = JobConfig.model_validate({"kind": "sft", "data": {"train": f"dataset:{dataset.name}"}})
    there = hosts("one")
    with pytest.raises(FilesMissing):
        resolve(project, config)
    hosts("site")
    out = StringIO()
    call_command("publish_files", stdout=out)
    assert out.getvalue() == f"{dataset}\n"
    hosts("one")
    found = resolve(project, config).config
    assert found.data.train == str(there / f"datasets/{dataset.pk}/rows.jsonl") and Path(found.data.train).is_file()
    site_path = courier.site_paths(found.model_dump(mode="json"))["data"]["train"]
    assert site_path == found.data.train, "the site has not said where its folder is"
    hosts("site")
    site_prepare()
    home = str(dataset.rows_path)
    hosts("one")
    assert courier.site_paths(found.model_dump(mode="json"))["data"]["train"] == home
    assert courier.site_paths({"a": [f"{there}/x", f"{there}x", 1]}) == {
        "a": [f"{DataFolder.objects.get().path}/x", f"{there}x", 1]
    }
    with pytest.raises(CommandError, match="the site's own data folder"):
        call_command("publish_files")


def test_a_finished_model_is_fetched_and_a_lost_one_named(hosts: Any, project: Any, run: Run) -> None:
    Run.objects.filter(pk=run.pk).update(state=RunState.SUCCEEDED)
    config = JobConfig.model_validate({"kind": "sample", "model": {"source": f"run:{run.name}"}, "data": {"train": ""}})
    hosts("one")
    save(run, 1, 8, final=True)
    Courier(run.pk, 1, unreported).finish()
    hosts("site")  # before its copy has come, the site fetches the model itself
    assert Path(model_meant(project, config.model.source)[0]).is_dir()
    shutil.rmtree(run_dir(run.pk))
    objects.unpublish(run_dir(run.pk))
    with pytest.raises(ConfigError, match="is gone"):
        model_meant(project, config.model.source)
    hosts("two")
    with pytest.raises(FilesMissing):
        model_meant(project, config.model.source)


def test_a_cache_forgets_what_was_deleted(hosts: Any, run: Run, make_dataset: Any) -> None:
    hosts("one")
    dataset, gone = make_dataset(), uuid.uuid4()
    for folder in (run_dir(run.pk), run_dir(gone), dataset_dir(dataset.pk), dataset_dir(gone)):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "file").write_text("x")
    courier.sweep()
    assert run_dir(run.pk).is_dir() and dataset_dir(dataset.pk).is_dir()
    assert not run_dir(gone).exists() and not dataset_dir(gone).exists()


# --- A store that does not take what a run writes -------------------------------------------------------------------
def test_a_store_that_lacks_the_journal_for_long_is_reported_once_and_its_end_too(
    hosts: Any, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts("one")
    now, reports = [1000.0], list[TiltyardError | None]()
    monkeypatch.setattr(courier.time, "monotonic", lambda: now[0])
    sender = Courier(run.pk, 1, reports.append)
    now[0] = 1000 + courier.LATE_S - 0.1
    sender.look()
    assert reports == []
    now[0] = 1000 + courier.LATE_S
    sender.look()
    now[0] += 60
    sender.look()
    assert [type(fault) for fault in reports] == [FilesAway] and "for 15 s" in str(reports[0])
    sender._send_journal()
    sender.look()
    sender.look()
    assert reports[1:] == [None]
    now[0] += courier.LATE_S
    sender.threads[1].fault = FilesFull("no room")
    sender.look()
    assert reports[2:] == [sender.threads[1].fault], "what the store answered is better than that it did not"


def test_an_outage_while_the_rest_is_sent_is_reported_and_its_end_too(
    hosts: Any, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request to a store that is silent waits for minutes. Left marked, a worker would be shown as one that takes no
    work until it is asked for the next."""
    hosts("one")
    monkeypatch.setattr(courier, "EVERY_S", 0.01)
    monkeypatch.setattr(courier, "LATE_S", 0.2)
    reports = list[TiltyardError | None]()
    sender = Courier(run.pk, 1, reports.append)
    write(run, 1, "journal.jsonl", "1\n")
    ship = objects.ship

    def silent(*args: Any) -> int:
        assert wait_until(lambda: reports, 10)
        return ship(*args)

    monkeypatch.setattr(objects, "ship", silent)
    sender.finish()
    assert [type(fault) for fault in reports] == [FilesAway, type(None)]
    assert not [thread for thread in threading.enumerate() if thread.name == "courier-look"]


def test_a_report_of_a_run_that_was_lost_ends_the_looks(hosts: Any, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def lost() -> None:
        raise LeaseLost("another worker has it")

    monkeypatch.setattr(courier, "EVERY_S", 0.01)
    thread = courier.Repeating("test", lost)
    thread.start()
    thread.join(10)
    assert not thread.is_alive()


def test_a_thread_that_lost_the_database_connects_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection that broke fails at every later use, so what was sent would not be noted any more."""
    monkeypatch.setattr(courier, "EVERY_S", 0.01)
    connected: list[bool] = []
    last: list[Any] = []

    def ask() -> None:
        connected.append(connection.connection is not None)
        connection.ensure_connection()
        if len(connected) < 3:
            raise OperationalError("the server closed the connection")
        last.append(connection.connection)
        thread.done.set()

    thread = courier.Repeating("test", ask)
    thread.start()
    thread.join(10)
    assert connected == [False, False, False] and thread.fault is None
    assert last[0].closed, "an ended thread keeps none open"


def test_a_thread_that_sends_again_has_no_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(courier, "EVERY_S", 0.01)
    tries: list[TiltyardError | None] = []

    def act() -> None:
        tries.append(thread.fault)
        if len(tries) == 1:
            raise FilesFull("no room")
        if len(tries) == 2:
            raise OSError("the journal was locked")
        if len(tries) == 3:
            raise FilesRefused("no")
        if len(tries) == 5:
            thread.done.set()

    thread = courier.Repeating("test", act)
    thread.run()
    assert [type(fault) for fault in tries] == [type(None), FilesFull, type(None), FilesRefused, type(None)]
    assert thread.fault is None


@pytest.mark.parametrize(
    ("error", "seen"), [(FilesAway, "files_away"), (FilesFull, "files_away"), (FilesRefused, "files_refused")]
)
def test_the_page_of_the_run_says_that_its_files_are_kept(
    hosts: Any, run: Run, alice: Any, client_for: Any, error: Any, seen: str
) -> None:
    hosts("one")
    run_change(run, lease_worker="train@gpu-1", health={"save_seconds": 2.0})
    supervisor = Supervisor(Lease(run.pk, 1, "w"))
    supervisor._report_files(error("said so"))
    run.refresh_from_db()
    assert run.health["save_seconds"] == 2.0 and run.health["files"]["code"] == error("").info.code
    warning = RunEvent.objects.filter(run=run, kind="warning").get()
    assert (warning.attempt, warning.payload["message"]) == (1, "said so")
    assert objects.problem_seen() == seen
    page = client_for(alice).get(f"/p/{run.project.slug}/runs/{run.pk}/").text
    kept = "What worker train@gpu-1 writes is kept on its host, and shown here once the store takes it."
    assert "The store of files" in page and f"{kept} Training does not wait for that." in page
    supervisor._report_files(None)
    run.refresh_from_db()
    assert run.health == {"save_seconds": 2.0} and objects.problem_seen() == ""
    assert "is kept on its host" not in client_for(alice).get(f"/p/{run.project.slug}/runs/{run.pk}/").text


def test_the_projector_keeps_the_report(hosts: Any, run: Run) -> None:
    """It writes all reports of the trainer together."""
    hosts("one")
    supervisor = Supervisor(Lease(run.pk, 1, "w"))
    supervisor.projector.shipped = None
    lines = [
        {"type": "checkpoint", "t": 1.0, "step": n, "path": f"checkpoints/{n}", "bytes": 1, "seconds": n}
        for n in (1, 2)
    ]
    write(run, 1, "journal.jsonl", json.dumps(lines[0]) + "\n")
    supervisor.projector.drain()
    supervisor._report_files(FilesAway("gone"))
    write(run, 1, "journal.jsonl", json.dumps(lines[1]) + "\n")
    supervisor.projector.drain()
    run.refresh_from_db()
    assert (run.health["save_seconds"], run.health["files"]["message"]) == (2.0, "gone")


def test_the_report_ends_with_its_attempt(hosts: Any, run: Run) -> None:
    hosts("one")
    Supervisor(Lease(run.pk, 1, "w"))._report_files(FilesAway("gone"))
    attempt_end(Lease(run.pk, 1, "w"), None)
    run.refresh_from_db()
    assert run.state != RunState.RUNNING and "files" not in run.health


def test_the_sites_own_host_has_what_is_not_sent(hosts: Any, run: Run) -> None:
    hosts("site")
    objects.note_problem("")
    Supervisor(Lease(run.pk, 1, "w"))._report_files(FilesAway("gone"))
    run.refresh_from_db()
    assert "files" not in run.health and objects.problem_seen() == ""


def run_change(run: Run, **columns: Any) -> None:
    Run.objects.filter(pk=run.pk).update(**columns)
