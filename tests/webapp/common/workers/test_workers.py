"""Workers are seen, and one that has another data folder leaves all work alone."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from django.core.management import call_command
from django.utils import timezone

from webapp.common.workers import beating
from webapp.common.workers.beating import folder_identity, folder_problem, identity_file
from webapp.common.workers.models import DataFolder, Worker
from webapp.engine import recovery
from webapp.engine.attempts import WORKER_CLOSING, attempt_end, claim
from webapp.engine.supervisor import supervise
from webapp.people.teams.models import User
from webapp.runs.models import Run
from webapp.runs.states import RunState

pytestmark = pytest.mark.django_db
URL = "/workers/"
OTHER = "7d1c1f58-4b0c-4e0f-9a35-7f3f7a5c0e11"


@pytest.fixture
def folder(settings: Any, tmp_path: Path) -> Path:
    """A data folder of this test alone."""
    settings.DATA_DIR = tmp_path
    return tmp_path


def _worker(name: str, age_s: float = 0, **over: Any) -> Worker:
    at = timezone.now() - timedelta(seconds=age_s)
    fields = {"queues": ["train"], "device": "GPU 0", "version": "0.1.0", "pid": 77, "started_at": at, "beat_at": at}
    return Worker.objects.create(name=name, **(fields | over))


def test_the_first_process_gives_the_folder_its_identity(folder: Path) -> None:
    assert folder_problem() == "" and folder_problem() == ""
    assert folder_identity() == DataFolder.objects.get().identity
    assert identity_file().stat().st_mode & 0o777 == 0o600


def test_a_folder_of_before_keeps_its_identity_with_a_new_database(folder: Path) -> None:
    known = uuid.uuid4()
    identity_file().write_text(f"{known}\n")
    assert folder_problem() == "" and DataFolder.objects.get().identity == known


@pytest.mark.parametrize(
    ("text", "problem"), [(None, "no_identity"), ("garbage", "no_identity"), (OTHER, "other_identity")]
)
def test_another_folder_is_named_and_never_adopted_by_itself(folder: Path, text: str | None, problem: str) -> None:
    DataFolder.objects.create(pk=1)
    if text:
        identity_file().write_text(text)
    assert folder_problem() == problem
    assert (identity_file().read_text() if text else identity_file().exists()) == (text or False)
    call_command("adopt_data_folder", stdout=SimpleNamespace(write=lambda *_: None))
    assert folder_problem() == ""


def test_whether_a_living_worker_that_trains_sees_a_gpu() -> None:
    assert beating.gpu_known() is None
    _worker("train@old", age_s=600)
    _worker("endpoint@a", queues=["endpoint"])
    assert beating.gpu_known() is None
    _worker("train@cpu", device="CPU")
    assert beating.gpu_known() is False
    _worker("train@gpu")
    assert beating.gpu_known() is True


def test_a_worker_with_another_folder_claims_nothing(folder: Path, make_run: Any, monkeypatch: Any) -> None:
    """It claimed any run, found none of its files, and failed the run for good."""
    monkeypatch.setattr("webapp.engine.history._send_message", lambda row: False)
    DataFolder.objects.create(pk=1)
    run = make_run(state=RunState.QUEUED)
    full = make_run(state=RunState.PAUSED, attempt=1, error={"code": "storage_full"})
    lost = make_run(state=RunState.RUNNING, attempt=1, lease_owner="gone", lease_beat_at=timezone.now() - timedelta(1))
    supervise(run.pk)
    assert recovery.reap() == 0 and recovery.reap() == 0 and recovery.resume_where_over() == 0
    states = dict(Run.objects.values_list("pk", "state"))
    assert (states[run.pk], states[full.pk], states[lost.pk]) == ("queued", "paused", "running")
    run.refresh_from_db()
    assert run.attempt == 0
    beating.beat("train@elsewhere", 5, ["train"])
    assert Worker.objects.get().problem == "no_identity"


def test_a_beat_keeps_one_row_and_forgets_old_ones(folder: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    _worker("train@old", age_s=8 * 86_400)
    for _ in range(2):
        beating.beat("train@here", 5, ["train"])
    row = Worker.objects.get()
    assert (row.name, row.device, row.problem, row.pid) == ("train@here", "GPU 1", "", 5)
    assert abs(timezone.now() - row.beat_at) < timedelta(seconds=60)


@pytest.fixture
def beats() -> Iterator[None]:
    yield
    beating.end_beating()


@pytest.mark.django_db(transaction=True)
def test_a_worker_is_seen_from_its_start_to_its_end(folder: Path, monkeypatch: Any, beats: None) -> None:
    monkeypatch.setattr(beating, "BEAT_S", 0.05)
    queue = SimpleNamespace(name="train")
    consumer, controller = SimpleNamespace(queues=[queue]), SimpleNamespace(concurrency=3)
    sender = SimpleNamespace(hostname="train@here", task_consumer=consumer, controller=controller)
    beating.begin_beating(sender=sender)
    from tests.chaos.services import wait_until

    wait_until(lambda: Worker.objects.filter(name="train@here", queues=["train"], places=3).exists(), 20)
    beating.end_beating()
    assert not Worker.objects.exists() and not any(one.name == "worker-beat" for one in threading.enumerate())


def test_the_worker_that_has_a_run_is_named_in_its_lease(make_run: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr("webapp.engine.history._send_message", lambda row: False)
    run = make_run(state=RunState.QUEUED, queued_at=timezone.now())
    monkeypatch.setenv("TILTYARD_WORKER", "train@here")
    lease = claim(run.pk)
    assert lease is not None and Run.objects.get().lease_worker == "train@here"
    attempt_end(lease, WORKER_CLOSING)
    run.refresh_from_db()
    assert (run.state, run.lease_worker) == (RunState.QUEUED, "")


def test_a_worker_of_two_places_shows_both_runs(client_for: Any, make_run: Any, rita: User) -> None:
    _worker("endpoint@one", queues=["endpoint"], places=2, device="CPU")
    for name in ("first-asks", "second-asks"):
        make_run(name=name, state=RunState.RUNNING, pool="endpoint", lease_worker="endpoint@one")
    rows = client_for(rita).get(URL).content.decode().split("<tbody>")[1]
    assert "first-asks" in rows and "second-asks" in rows and rows.count("endpoint@one") == 1


def test_a_worker_that_trains_nothing_has_no_device(client_for: Any, rita: User) -> None:
    """It sees the devices of its machine, but what it does for people takes none."""
    _worker("long@one", queues=["long"], device="GPU 0, 1")
    _worker("train@one", device="GPU 7")
    page = client_for(rita).get(URL).content.decode()
    assert "GPU 7" in page and "GPU 0, 1" not in page


def test_what_waits_for_which_kind_of_place(client_for: Any, make_run: Any, rita: User) -> None:
    _worker("train@one")
    _worker("train@two")
    _worker("endpoint@one", queues=["endpoint"], places=3)
    _worker("endpoint@gone", queues=["endpoint"], places=9, age_s=60)
    make_run(state=RunState.RUNNING)
    make_run(state=RunState.RUNNING, imported=True)
    old = timezone.now() - timedelta(seconds=90)
    for _ in range(2):
        make_run(state=RunState.QUEUED, queued_at=old, pool="endpoint")
    make_run(state=RunState.QUEUED, queued_at=old, after=make_run(state=RunState.PAUSED))
    found = client_for(rita).get(URL).context["loads"]
    loads = {load.pool: (load.places, load.at_work, load.waiting) for load in found}
    assert loads["train"] == (2, 1, 0) and loads["endpoint"] == (3, 0, 2)
    waits = {load.pool: load.oldest_s for load in found}
    assert waits["train"] is None and 90 <= waits["endpoint"] < 150


def test_members_see_workers_but_not_the_runs_of_other_teams(
    client_for: Any, make_run: Any, rita: User, charlie: User, django_user_model: Any
) -> None:
    run = make_run(name="secret-run", state=RunState.RUNNING)
    Run.objects.filter(pk=run.pk).update(lease_worker="train@one")
    _worker("train@one", gpu="NVIDIA <H200>", gpu_bytes=150 << 30)
    _worker("train@two", age_s=60)
    _worker("short@three", problem="other_identity", queues=["short"])
    admin = django_user_model.objects.create(username="root", is_superuser=True)
    own, stranger, all_of_it = (client_for(user).get(URL).content.decode() for user in (rita, charlie, admin))
    for page in (own, stranger, all_of_it):
        assert "train@one" in page and "GPU 0" in page and "gone" in page
        assert "takes no work" in page and "belongs to another installation" in page
    assert f"/p/joust/runs/{run.pk}/" in own and "secret-run" in own
    assert "secret-run" not in stranger and str(run.pk) not in stranger and "of another team" in stranger
    assert "secret-run" in all_of_it and "0.1.0" in all_of_it and "adopt_data_folder" in all_of_it
    assert "NVIDIA &lt;H200&gt;, 150.0" in own
    assert "0.1.0" not in own and "adopt_data_folder" not in own


def test_who_may_open_the_page(client_for: Any, rita: User, charlie: User) -> None:
    assert [client_for(user).get(URL).status_code for user in (rita, charlie, None)] == [200, 200, 302]
    assert client_for(rita).post(URL).status_code == 405


def test_a_run_that_has_ended_is_not_shown_at_work(client_for: Any, make_run: Any, rita: User) -> None:
    """A worker that was killed never said that it had ended."""
    make_run(name="over", state=RunState.SUCCEEDED, lease_worker="train@one")
    _worker("train@one")
    assert "over" not in client_for(rita).get(URL).content.decode().split("<tbody>")[1]


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A driver's program, which writes down how it was asked."""
    program = tmp_path / "nvidia-smi"
    program.write_text(
        f'#!/bin/sh\necho "$@" >> {tmp_path}/asked\n'
        "echo 'NVIDIA H200, 143771, 9.0'\necho 'NVIDIA A10, 23028, 8.6'\necho 'garbage'\necho 'A, B, 1'\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path) + ":/bin:/usr/bin")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,3")
    beating.gpu.cache_clear()
    yield tmp_path / "asked"
    beating.gpu.cache_clear()


def test_a_worker_reports_the_memory_of_its_gpu(driver: Path) -> None:
    for _ in range(2):
        beating.beat("train-0@one", 77, ["train"])
    row = Worker.objects.get()
    assert (row.gpu, row.gpu_bytes, row.gpu_capability) == ("NVIDIA A10", 23028 << 20, "8.6")
    how = "--query-gpu=name,memory.total,compute_cap --format=csv,noheader,nounits -i 2,3\n"
    assert driver.read_text() == how, "asked once"


def test_a_capability_that_the_driver_does_not_know_is_left_out(driver: Path) -> None:
    program = driver.parent / "nvidia-smi"
    program.write_text("#!/bin/sh\necho 'Quadro, RTX, 23028, [N/A]'\n")
    assert beating.gpu() == beating.Gpu("Quadro, RTX", 23028 << 20)


def test_without_a_driver_no_memory_is_claimed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    beating.gpu.cache_clear()
    beating.beat("train-0@one", 77, ["train"])
    row = Worker.objects.get()
    assert (row.device, row.gpu, row.gpu_bytes) == ("GPU 0", "", None)
    beating.gpu.cache_clear()


def test_a_job_is_judged_by_the_smallest_gpu_of_a_living_worker() -> None:
    assert beating.training_gpu() == ""
    _worker("train-0@one", gpu="NVIDIA H200", gpu_bytes=143771 << 20)
    _worker("train-1@one", gpu="NVIDIA A10", gpu_bytes=23028 << 20, gpu_capability="8.6")
    _worker("train-0@gone", age_s=60, gpu="NVIDIA T4", gpu_bytes=15 << 30)
    _worker("short@one", queues=["short"], gpu="NVIDIA T4", gpu_bytes=15 << 30)
    assert beating.training_gpu() == "NVIDIA A10=22.5@8.6"
