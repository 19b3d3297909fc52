"""A socket sends the place in the queue: at first, whenever it changed, and no more once a worker has the run."""

from __future__ import annotations

from typing import Any

import pytest
from django.utils import timezone

from tests.webapp.live.conftest import Socket, in_db
from webapp.common.workers.models import Worker
from webapp.engine.attempts import claim
from webapp.people.teams.models import Membership, Project, Role, User
from webapp.runs.models import Run

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def waiting(make_run: Any, charlie: User) -> Run:
    """A queued run behind one of another project, which has the only worker."""
    at = timezone.now()
    Worker.objects.create(name="train@a", queues=["train"], started_at=at, beat_at=at)
    fields = {"state": "running", "step": 0, "total_steps": 10, "step_seconds": 60.0, "lease_beat_at": at}
    make_run(name="secret", project=Project.objects.get(slug="elsewhere"), lease_worker="train@a", **fields)
    return make_run(state="queued", queued_at=at)


async def _open(run: Run, user: User) -> Socket:
    socket = Socket(run.pk, user)
    await socket.connect()
    return socket


async def _next(socket: Socket, kind: str) -> dict[str, Any]:
    """The next frame of a type."""
    while (frame := await socket.frame(within_s=10))["type"] != kind:
        pass
    return frame


async def _place(socket: Socket) -> Any:
    """The place of the next frame that has one."""
    return (await _next(socket, "queue"))["queue"]


async def test_the_place_is_sent_and_each_change_of_it(waiting: Run, bob: User) -> None:
    socket = await _open(waiting, bob)
    first = await _place(socket)
    assert first["title"] == "Next in line: starts in about 10 min."
    assert first["lines"][0]["text"] == "train@a has a run of another project: about 10 min left."
    assert "secret" not in str(socket.tab.frames)
    await in_db(Run.objects.filter(name="secret").update)(step=8)
    assert (await _place(socket))["title"] == "Next in line: starts in about 2 min."
    await in_db(Run.objects.filter(name="secret").update)(state="succeeded", lease_worker="")
    assert (await _place(socket))["title"].startswith("Next in line: a worker is free")
    assert await in_db(claim)(waiting.pk) is not None
    assert await _place(socket) is None
    await socket.disconnect()


async def test_a_place_that_stays_is_sent_once(waiting: Run, bob: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("webapp.live.consumers.RunConsumer.look_s", 0.05)
    socket = await _open(waiting, bob)
    await _place(socket)
    await _next(socket, "beat")
    assert [frame["type"] for frame in socket.tab.frames].count("queue") == 1
    await socket.disconnect()


async def test_who_may_see_the_other_project_reads_the_name(waiting: Run, bob: User, charlie: User) -> None:
    def join() -> None:
        other = Membership.objects.get(user=charlie).team
        Membership.objects.create(team=other, user=bob, role=Role.VIEWER)

    await in_db(join)()
    socket = await _open(waiting, bob)
    line = (await _place(socket))["lines"][0]
    assert line["text"].startswith("train@a has secret: about 10 min left.") and "/p/elsewhere/runs/" in line["url"]
    await socket.disconnect()


async def test_a_run_that_is_not_queued_has_no_such_frame(make_run: Any, bob: User) -> None:
    socket = await _open(await in_db(make_run)(state="paused"), bob)
    await _next(socket, "beat")
    assert "queue" not in {frame["type"] for frame in socket.tab.frames}
    await socket.disconnect()
