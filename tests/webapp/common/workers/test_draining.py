"""A host that drains finishes what it does and takes nothing new: no run, no chat, no other work."""

from __future__ import annotations

from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.utils import timezone

from webapp.chat import tasks as chat_tasks
from webapp.common import work
from webapp.common.pools import TRAIN
from webapp.common.workers import beating
from webapp.common.workers.beating import Beats, draining, living
from webapp.common.workers.models import Drain, Needs, Worker
from webapp.engine.supervisor import supervise
from webapp.people.teams.models import AuditEntry, Project, Role, User
from webapp.people.teams.tokens import token_create
from webapp.runs.models import Run
from webapp.runs.records.queue import read_queue
from webapp.runs.records.queue_words import queue_answer
from webapp.site.workers import all_loads

pytestmark = pytest.mark.django_db


def worker(name: str = "train@a", **fields: Any) -> Worker:
    at = timezone.now()
    return Worker.objects.create(**{"name": name, "queues": [TRAIN], "started_at": at, "beat_at": at, **fields})


@pytest.fixture
def admin(alice: User) -> User:
    User.objects.filter(pk=alice.pk).update(is_superuser=True)
    alice.refresh_from_db()
    return alice


@pytest.fixture
def waiting(make_run: Any) -> Run:
    return make_run(state="queued", queued_at=timezone.now() - timedelta(minutes=1))


def shown(run: Run) -> dict[str, Any]:
    found = queue_answer(read_queue().queued(run.pk), [run.project_id])
    assert found is not None
    return found


def test_a_worker_of_a_draining_host_claims_nothing(waiting: Run, monkeypatch: Any) -> None:
    monkeypatch.setenv("TILTYARD_WORKER", "train@a")
    asked: list[str] = []
    monkeypatch.setattr("webapp.engine.supervisor._claim_next", lambda *_: asked.append("run"))
    monkeypatch.setattr(chat_tasks, "run_waits", lambda *_: asked.append("chat") or True)
    monkeypatch.setattr(chat_tasks, "nudge_next", lambda *_: None)
    monkeypatch.setattr(work, "claim_fairly", lambda *_: asked.append("work"))
    label = next(iter(work.KINDS))
    Drain.objects.create(host="b")
    Drain.objects.create(host="a")
    for _round in range(2):
        supervise(waiting.pk), chat_tasks.hold(), work.do(label, "1")
        asked.append("-")
        Drain.objects.filter(host="a").delete()
    assert asked == ["-", "run", "chat", "work", "-"]


def test_its_places_are_no_places_and_it_is_not_living() -> None:
    worker(), worker("train@b", places=2), worker("endpoint@a", queues=["endpoint"])
    Drain.objects.create(host="a")
    assert [each.name for each in living(TRAIN)] == ["train@b"] and not living("endpoint").exists()
    assert {load.pool: load.places for load in all_loads() if load.pool in ("train", "endpoint")} == {
        "train": 2, "endpoint": 0,
    }  # fmt: skip
    assert draining("endpoint@a") and not draining("train@b") and not draining("a")


def test_waiting_runs_say_that_the_only_worker_drains(waiting: Run) -> None:
    worker()
    assert shown(waiting)["why"] == "starting"
    Drain.objects.create(host="a")
    found = shown(waiting)
    assert (found["why"], found["short"], found["places"]) == ("draining", "all workers are draining", 0)
    assert found["title"] == "Next in line, but the only worker of this queue, train@a, is draining."
    assert found["lines"][0]["text"] == "1 worker is draining: it finishes what it runs and takes nothing new."
    worker("train2@a")
    assert shown(waiting)["title"] == "Next in line, but all 2 workers of this queue are draining."
    worker("train@c", problem="other_identity")
    assert shown(waiting)["why"] == "draining"
    worker("train@b")
    found = shown(waiting)
    assert (found["why"], found["places"]) == ("starting", 1)
    assert found["lines"][0]["text"] == "2 workers are draining: they finish what they run and take nothing new."


def test_a_run_that_needs_a_gpu_says_that_those_with_one_drain(make_run: Any) -> None:
    run = make_run(state="queued", queued_at=timezone.now(), needs=Needs(gpus=1).text)
    worker(gpus=1), worker("train@b")
    Drain.objects.create(host="a")
    found = shown(run)
    texts = [line["text"] for line in found["lines"]]
    assert (found["why"], "The only workers that have it are draining." in texts) == ("no_fit", True)
    assert not any("Start a worker" in text for text in texts)


def test_a_run_at_work_there_goes_on(make_run: Any, waiting: Run) -> None:
    worker()
    at = timezone.now()
    run = make_run(state="running", lease_worker="train@a", lease_beat_at=at, queued_at=at)
    Drain.objects.create(host="a")
    pool = read_queue().pool(TRAIN)
    assert pool.shares.projects[run.project_id].devices == 1 and shown(waiting)["why"] == "draining"


def test_a_worker_stops_listening_while_its_host_drains(monkeypatch: Any) -> None:
    said: list[tuple[str, str, str]] = []

    class Control:
        def cancel_consumer(self, queue: str, destination: list[str]) -> None:
            said.append(("cancel", queue, destination[0]))

        def add_consumer(self, queue: str, destination: list[str]) -> None:
            said.append(("add", queue, destination[0]))

    monkeypatch.setattr(beating, "current_app", type("App", (), {"control": Control()}))
    beats = Beats("work@a", ["long", "short"], 2)
    beats._listen()
    Drain.objects.create(host="a")
    beats._listen(), beats._listen()
    assert said == [("cancel", "long", "work@a"), ("cancel", "short", "work@a")]
    Drain.objects.all().delete()
    beats._listen()
    assert said[2:] == [("add", "long", "work@a"), ("add", "short", "work@a")]


def test_a_broker_that_is_away_is_asked_again(monkeypatch: Any) -> None:
    tries: list[str] = []

    class Control:
        def cancel_consumer(self, queue: str, destination: list[str]) -> None:
            tries.append(queue)
            if len(tries) == 1:
                raise OSError("away")

    monkeypatch.setattr(beating, "current_app", type("App", (), {"control": Control()}))
    Drain.objects.create(host="a")
    beats = Beats("train@a", ["train"], 1)
    beats._listen(), beats._listen(), beats._listen()
    assert tries == ["train", "train"]


def test_administrators_drain_on_the_page(admin: User, bob: User, client_for: Any) -> None:
    worker()
    address = "/workers/drain/"
    assert client_for(bob).post(address, {"host": "a", "on": "1"}).status_code == 403
    assert address not in client_for(bob).get("/workers/").content.decode() and not Drain.objects.exists()
    assert "Drain a" in client_for(admin).get("/workers/").content.decode()
    assert client_for(admin).get(address, {"host": "a", "on": "1"}).status_code == 405 and not Drain.objects.exists()
    assert client_for(admin).post(address, {"host": "a", "on": "1"}).status_code == 302
    client_for(admin).post(address, {"host": "a", "on": "1"})
    assert Drain.objects.get().by == "alice"
    for person in (admin, bob):
        assert "It finishes what it runs and takes nothing new." in client_for(person).get("/workers/").content.decode()
    assert "no worker reports from it" not in client_for(admin).get("/workers/").content.decode()
    Worker.objects.all().delete()
    page = client_for(admin).get("/workers/").content.decode()
    assert "The host a is draining, and no worker reports from it." in page and "Let a work again" in page
    client_for(admin).post(address, {"host": "a", "on": "0"})
    assert not Drain.objects.exists()
    text = client_for(admin).post(address, {"host": "z", "on": "1"}, follow=True).content.decode()
    assert "No worker has reported from the host" in text and not Drain.objects.exists()
    rows = AuditEntry.objects.order_by("id").values_list("action", "subject", "username")
    assert list(rows) == [("host_drained", "a", "alice"), ("host_undrained", "a", "alice")]


def test_and_over_the_api(admin: User, bob: User, project: Project, client_for: Any) -> None:
    worker()

    def send(client: Any, on: bool = True, host: str = "a", **headers: str) -> Any:
        body = {"host": host, "on": on}
        return client.post("/api/v1/workers/drain", body, content_type="application/json", headers=headers)

    assert send(client_for(bob)).status_code == 403
    for role, of in ((Role.EDITOR, None), (Role.OWNER, project)):
        _token, text = token_create(user=admin, name=f"{role}-{of}", role=role, project=of)
        assert send(client_for(None), Authorization=f"Bearer {text}").status_code == 403
    assert not Drain.objects.exists()
    _token, text = token_create(user=admin, name="all", role=Role.OWNER, project=None)
    assert send(client_for(None), Authorization=f"Bearer {text}").json() == {"host": "a", "draining": True}
    assert send(client_for(admin), on=False).json() == {"host": "a", "draining": False}
    assert send(client_for(admin), host="z").status_code == 422 and not Drain.objects.exists()


def test_the_command_marks_and_lists_hosts() -> None:
    worker()

    def said(*arguments: str) -> str:
        out = StringIO()
        call_command("drain", *arguments, stdout=out)
        return out.getvalue()

    assert said() == ""
    assert said("a").startswith("a drains since ") and said("a").endswith(": train@a\n")
    assert said("b").splitlines()[1].endswith(": -")
    assert said("a", "--undo").startswith("b drains") and Drain.objects.get().host == "b"
