"""Whether there is room for a run, and what would make it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from tests.webapp.environments.registered import HEALTH, answering, job_in
from training.errors import EnvironmentTimeout
from webapp.environments.models import Environment
from webapp.environments.selectors import Room, environment_named, replicas_to_add, room_of
from webapp.launch import preflight as preflight_module
from webapp.launch.findings import Check
from webapp.launch.preflight import preflight
from webapp.people.teams.models import Project, User


@pytest.mark.parametrize(
    ("wanted", "answering", "free", "needed", "more"),
    [(1, 1, 8, 8, 0), (1, 1, 4, 20, 2), (3, 1, 4, 20, 0), (0, 0, None, 9, 2), (16, 16, 0, 99, 0), (15, 15, 0, 99, 1)],
)
def test_how_many_replicas_would_do(
    wanted: int, answering: int, free: int | None, needed: int, more: int, launch: Callable[..., Environment]
) -> None:
    environment = launch(wanted=wanted)
    room = Room(answering, answering, answering * 8, free, None)
    assert replicas_to_add(environment, room, needed) == more


def test_preflight_sums_free_slots_and_offers_replicas(
    project: Project,
    bob: User,
    client_for: Callable[..., Client],
    launch: Callable[..., Environment],
    make_dataset: Any,
    serve: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(preflight_module, "_trainer_checks", lambda *asked: iter([]))
    serve(HEALTH | {"name": "tools"})
    environment = launch(wanted=2)
    config = job_in(make_dataset, environment)
    stopped = next(item for item in preflight(project, config).checks if item.offer)
    assert stopped.message == "No server of environment “mine” runs." and not stopped.hard
    answering(environment, 2)
    short = next(item for item in preflight(project, config).checks if item.offer)
    assert short.ok, "those that find no slot wait for their turn, and nothing is refused for it"
    assert short.message == "It plays 12 at a time, and one step has 32 rollouts."
    assert short.hint.endswith("playing a step takes about 3 times as long.")
    assert short.offer is not None and short.offer.more == 3  # 20 more sessions of 8 a replica
    button = client_for(bob).post(
        reverse("environment-scale", args=[project.slug, environment.pk]) + "?part=preflight",
        {"add": short.offer.more},
        headers={"hx-request": "true"},
    )
    environment.refresh_from_db()
    assert button.status_code == 200 and "5 replicas are wanted now." in button.content.decode()
    assert environment.wanted == 5
    for number in (3, 4, 5, 6):
        environment.replicas.create(number=number, url=f"http://127.0.0.1:{9000 + number}", state="healthy")
    room = next(item for item in preflight(project, config).checks if item.title == "Environment server")
    assert room.ok and room.message == "6 replicas answer; 36 of 96 sessions are free, 32 are needed."


@pytest.mark.parametrize(
    ("room", "shown"),
    [
        (Room(1, 1, 16, 6, None), False),
        (Room(1, 1, 16, 0, None), False),
        (Room(1, 1, None, None, None), True),
        (Room(0, 1, None, None, None), False),
    ],
)
def test_sessions_are_counted_here_where_the_servers_report_them(
    project: Project,
    launch: Callable[..., Environment],
    make_dataset: Any,
    monkeypatch: pytest.MonkeyPatch,
    room: Room,
    shown: bool,
) -> None:
    trainer = [Check("Sessions", True, "7 are free."), Check("Model", True, "It fits.")]
    monkeypatch.setattr(preflight_module, "_trainer_checks", lambda *asked: iter(trainer))
    monkeypatch.setattr(preflight_module, "room_of", lambda environment: room)
    environment = launch()
    answering(environment, 1)
    checks = preflight(project, job_in(make_dataset, environment)).checks
    assert [check for check in checks if check in trainer] == trainer[0 if shown else 1 :]


def test_a_server_that_does_not_answer_takes_no_room(
    launch: Callable[..., Environment], serve: Callable[..., None], project: Project
) -> None:
    serve(EnvironmentTimeout("The server did not answer in time."))
    answering(launch(), 2)
    found = environment_named(project, "mine")
    assert found is not None
    room = room_of(found)
    assert (room.answering, room.asked, room.free) == (0, 2, None) and room.problem is not None
