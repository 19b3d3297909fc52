"""Both sides of each limit of environments, whose rows an act reaches, and how they are summed up."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from training.errors import EnvironmentUnreachable
from webapp.environments.checks import Answer
from webapp.environments.models import DatasetOrder, Environment, EnvironmentSample, Kind, Replica
from webapp.environments.orders import order_create, order_room, orders_of
from webapp.environments.selectors import (
    Room,
    _sum_if_known,
    environment_named,
    environments_of,
    health_view,
    history,
    replicas_to_add,
    runs_on,
)
from webapp.environments.services import (
    answer_store,
    environment_change,
    environment_delete,
    environment_launch,
    environment_restart,
    environment_scale,
)
from webapp.environments.tokens import trainer_access
from webapp.people.teams.models import Project, User

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("no_broker")]
Builder = Callable[..., Any]


def started(project: Project, name: str = "mine", replicas: str = "", **over: Any) -> Environment:
    """One whose servers are started here; ``replicas`` are their states by the first letters."""
    made = Environment.objects.create(
        project=project, name=name, **({"kind": Kind.PROCESS, "program": "tools", "wanted": len(replicas)} | over)
    )
    states = {"h": "healthy", "u": "unhealthy", "s": "starting", "f": "failed", "e": "stopping"}
    for number, letter in enumerate(replicas, start=1):
        made.replicas.create(number=number, url=f"http://127.0.0.1:{9000 + number}", state=states[letter])
    return made


def test_a_project_has_at_most_a_hundred_environments_each_of_its_own_name(
    project: Project, elsewhere: Project, bob: User
) -> None:
    Environment.objects.bulk_create(
        Environment(project=where, name=f"e{number}", kind=Kind.PROCESS)
        for where, count in ((project, 99), (elsewhere, 5))
        for number in range(count)
    )

    def launch(name: str, where: Project = project) -> Environment:
        return environment_launch(project=where, user=bob, name=name, kind=Kind.PROCESS, program="tools")

    with pytest.raises(ValidationError, match="exists already"):
        launch("e0")
    assert launch("e0x").wanted == 1 and launch("e50", elsewhere).project == elsewhere
    with pytest.raises(ValidationError, match="reached its limit of environments"):
        launch("another")


@pytest.mark.parametrize(("wanted", "good"), [(-1, False), (0, True), (16, True), (17, False)])
def test_up_to_sixteen_replicas_run(wanted: int, good: bool, project: Project, bob: User) -> None:
    environment = started(project, replicas="h")
    if good:
        assert environment_scale(environment=environment, wanted=wanted).wanted == wanted
    else:
        with pytest.raises(ValidationError, match="Between 0 and 16 replicas"):
            environment_scale(environment=environment, wanted=wanted)
        with pytest.raises(ValidationError, match="Between 0 and 16 replicas"):
            environment_launch(project=project, user=bob, name="n", kind=Kind.PROCESS, program="tools", wanted=wanted)
        assert Environment.objects.get().wanted == 1


def test_a_restart_is_of_one_replica_or_of_all_of_one_environment(project: Project) -> None:
    mine, other = started(project, replicas="hhh"), started(project, "other", "h")
    assert environment_restart(environment=mine, number=2) == 1
    assert list(Replica.objects.order_by("environment__name", "number").values_list("wish", flat=True)) == [
        *("", "restart", ""),
        "",
    ]
    assert environment_restart(environment=mine) == 3 and environment_restart(environment=mine, number=4) == 0
    assert [replica.wish for replica in other.replicas.all()] == [""]


def test_a_server_at_an_address_is_neither_scaled_nor_restarted_nor_changed(make_environment: Builder) -> None:
    environment = make_environment()
    for act in (
        lambda: environment_scale(environment=environment, wanted=2),
        lambda: environment_restart(environment=environment),
        lambda: environment_change(environment=environment, arguments={}, slots=1, cpus=1.0, memory_mb=1, pids=1),
    ):
        with pytest.raises(ValidationError, match="was started elsewhere"):
            act()
    assert environment.replicas.get().wish == ""


def test_a_change_restarts_all_and_drops_the_proof(project: Project) -> None:
    environment = started(project, replicas="hh", validation={"ok": True})
    same: dict[str, Any] = {"arguments": {}, "slots": 128, "cpus": 1.0, "memory_mb": 1024, "pids": 128}
    assert not environment_change(environment=environment, **same)
    assert environment.validation == {"ok": True}
    for name, value in (("slots", 4), ("cpus", 2.0), ("memory_mb", 512), ("pids", 64)):
        Replica.objects.update(wish="")
        assert environment_change(environment=environment, **same | {name: value}), name
        same[name] = value
        assert getattr(environment, name) == value and environment.validation is None
        assert set(Replica.objects.values_list("wish", flat=True)) == {"restart"}


@pytest.mark.parametrize(
    ("state", "kept"),
    [("queued", True), ("running", True), ("paused", True), ("failed", False), ("succeeded", False)],
)
def test_an_open_run_of_the_project_keeps_it(
    state: str, kept: bool, project: Project, elsewhere: Project, make_run: Builder
) -> None:
    environment, config = started(project), {"environment": {"name": "environment:mine"}}
    run = make_run(config=config, state=state, name="night")
    make_run(config=config, state="running", project=elsewhere)
    make_run(config={"environment": {"name": "environment:other"}}, state="running")
    assert list(runs_on(environment)) == [run]
    change = {"arguments": {}, "slots": 4, "cpus": 1.0, "memory_mb": 1024, "pids": 128}
    if kept:
        for act in (
            lambda: environment_change(environment=environment, **change),
            lambda: environment_delete(environment=environment),
        ):
            with pytest.raises(ValidationError, match=r"used by a run that has not ended: night\."):
                act()
        return
    assert environment_change(environment=environment, **change)
    environment_delete(environment=environment)
    assert not Environment.objects.exists()


def answer(**over: Any) -> Answer:
    return Answer.model_validate({"name": "tools", "version": "2", "sessions": 1, "slots": 4} | over)


def states(environment: Environment) -> list[str]:
    return list(Replica.objects.filter(environment=environment).values_list("state", flat=True))


def test_an_answer_is_of_the_replica_at_its_address(project: Project) -> None:
    mine, other = started(project, replicas="suef"), started(project, "other", "s")
    for number in range(1, 5):
        answer_store(mine, f"http://127.0.0.1:{9000 + number}", answer())
    assert states(mine) == ["healthy", "healthy", "stopping", "failed"] and states(other) == ["starting"]
    mine.refresh_from_db()
    assert (mine.healthy, mine.server_name, mine.health["slots"]) == (True, "tools", 4)
    answer_store(mine, "http://127.0.0.1:9001", answer(name="shop"))
    mine.refresh_from_db()
    assert mine.server_name == "tools", "its first answer is its identity"


def test_a_failure_leaves_the_environment_healthy_while_another_replica_answers(project: Project) -> None:
    mine, gone = started(project, replicas="hhs"), EnvironmentUnreachable("away")
    answer_store(mine, "http://127.0.0.1:9003", gone)
    assert states(mine) == ["healthy", "healthy", "starting"], "it is given its time"
    for number, healthy in ((1, True), (2, False)):
        answer_store(mine, f"http://127.0.0.1:{9000 + number}", gone)
        mine.refresh_from_db()
        assert (mine.healthy, "error" in mine.health) == (healthy, not healthy)
    assert states(mine) == ["unhealthy", "unhealthy", "starting"]
    answer_store(mine, "http://127.0.0.1:9001", answer(), handle={"pid": 7})  # type: ignore[arg-type]
    assert states(mine)[0] == "unhealthy", "another process has its address now"


@pytest.mark.parametrize(
    ("replicas", "wanted", "over", "state"),
    [
        ("hh", 2, {}, "ok"),
        ("hs", 2, {}, "degraded"),
        ("h", 2, {}, "degraded"),
        ("s", 1, {}, "starting"),
        ("", 1, {}, "starting"),
        ("", 0, {}, "stopped"),
        ("e", 0, {}, "stopping"),
        ("u", 1, {}, "bad"),
        ("sf", 2, {}, "bad"),
        ("", 1, {"kind": Kind.URL}, "unknown"),
        ("", 1, {"kind": Kind.URL, "healthy": True}, "ok"),
        ("", 1, {"kind": Kind.URL, "healthy": False}, "bad"),
    ],
)
def test_an_environment_is_shown_in_one_state(
    replicas: str, wanted: int, over: dict[str, Any], state: str, project: Project
) -> None:
    assert health_view(started(project, replicas=replicas, **{"wanted": wanted, **over})).state == state


def test_a_list_sums_what_answering_replicas_report(project: Project) -> None:
    environment = started(project, replicas="hhu")
    for number, health in enumerate(
        (
            {"sessions": 1, "slots": 4, "load": {"steps_per_s": 0.5, "p50_ms": 3.0, "p95_ms": 9.0}},
            {"sessions": 2, "slots": 8, "load": {"steps_per_s": 1.5, "p50_ms": 5.0, "p95_ms": 7.0}},
            {"sessions": 100, "slots": 100},
        ),
        start=1,
    ):
        environment.replicas.filter(number=number).update(health=health)
    shown = health_view(environment)
    assert shown[2:9] == (3, 12, 2.0, 5.0, 9.0, 2, 3)
    environment.replicas.filter(number=1).update(health={"status": "degraded"})
    environment.wanted = 2
    assert health_view(environment).state == "degraded"


@pytest.mark.parametrize(("seconds", "wanted", "stale"), [(90, 1, False), (92, 1, True), (92, 0, False)])
def test_a_check_of_long_ago_is_stale(seconds: int, wanted: int, stale: bool, project: Project) -> None:
    at = timezone.now() - timedelta(seconds=seconds)
    assert health_view(started(project, wanted=wanted, checked_at=at)).stale is stale
    assert health_view(started(project, "never", wanted=1)).checked_s is None


@pytest.mark.parametrize(
    ("wanted", "answering", "free", "needed", "more"),
    [
        (1, 1, 3, 3, 0),
        (1, 1, 3, 4, 1),
        (1, 1, 3, 11, 1),
        (1, 1, 3, 12, 2),
        (2, 1, 3, 12, 1),
        (3, 1, 3, 12, 0),
        (1, 1, None, 8, 1),
        (16, 16, 0, 100, 0),
        (14, 14, 0, 100, 2),
    ],
)
def test_as_many_replicas_are_added_as_make_room(
    wanted: int, answering: int, free: int | None, needed: int, more: int
) -> None:
    environment = Environment(kind=Kind.PROCESS, slots=8, wanted=wanted)
    room = Room(answering, wanted, None, free, None)
    assert replicas_to_add(environment, room, needed) == more
    assert replicas_to_add(Environment(kind=Kind.URL, slots=8, wanted=wanted), room, needed) == 0


def test_a_sum_is_known_where_all_of_it_is() -> None:
    assert [_sum_if_known(values) for values in ([2, 3], [2, None], [None], [], [0])] == [5, None, None, None, 0]


def test_a_chart_has_the_samples_of_a_day_in_at_most_480_points(project: Project) -> None:
    mine, other, now = started(project), started(project, "other"), timezone.now()
    rows = [
        EnvironmentSample(environment=of, at=now - timedelta(seconds=ago), sessions=sessions, errors=errors)
        for of, ago, sessions, errors in (
            (mine, 30, 5, {"a": 1, "b": 2}),
            (mine, 60, None, {"a": 3}),
            (mine, 25 * 3600, 99, {"old": 1}),
            (other, 30, 77, {}),
        )
    ]
    EnvironmentSample.objects.bulk_create(rows)
    found = history(mine)
    assert (found["sessions"], found["errors"]) == ([None, 5], {"a": [3, 1], "b": [0, 2]})
    EnvironmentSample.objects.bulk_create(
        EnvironmentSample(environment=mine, at=now - timedelta(seconds=3600 + number), sessions=number)
        for number in range(479)
    )
    found = history(mine)
    assert len(found["at"]) == 241 and found["sessions"][:2] == [478, 476] and found["errors"]["a"][-2:] == [3, 1]
    assert history(other)["sessions"] == [77]


def test_environments_are_of_the_project_by_name(project: Project, elsewhere: Project) -> None:
    second, first = started(project, "b", "hh"), started(project, "a")
    hidden = started(elsewhere, "c", "h")
    assert list(environments_of(project)) == [first, second]
    assert (environment_named(project, "c"), environment_named(elsewhere, "c")) == (None, hidden)
    pairs = {"TILTYARD_OUTBOUND_ALLOW": "127.0.0.1:9001,127.0.0.1:9002"}
    assert trainer_access(project, "environment:b") == pairs and trainer_access(project, "c") == {}


# --- Orders -----------------------------------------------------------------------------------------------------------
def test_a_project_has_three_orders_at_once(project: Project, elsewhere: Project, bob: User) -> None:
    mine, theirs = started(project), started(elsewhere)
    for environment, state in (
        (mine, "waiting"),
        (mine, "done"),
        (mine, "failed"),
        (theirs, "writing"),
        (theirs, "waiting"),
    ):
        DatasetOrder.objects.create(environment=environment, name="n", command="tasks", state=state)

    def ask() -> DatasetOrder:
        return order_create(environment=mine, user=bob, name="d", command="tasks", arguments={})

    for _free in range(2):
        assert order_room(project) and ask().created_by == bob
    with pytest.raises(ValidationError, match="3 datasets of this project are being generated already"):
        ask()
    assert not order_room(project) and order_room(elsewhere)
    with pytest.raises(ValidationError, match="cannot generate that"):
        order_create(environment=theirs, user=bob, name="d", command="nonsense", arguments={})


def test_orders_whose_dataset_is_gone_are_not_listed(project: Project, make_dataset: Builder) -> None:
    environment, other = started(project), started(project, "other")
    kept = [
        DatasetOrder.objects.create(environment=environment, name="n", command="tasks", state=state, dataset=dataset)
        for state, dataset in (("done", make_dataset()), ("failed", None), ("waiting", None))
    ]
    DatasetOrder.objects.create(environment=environment, name="gone", command="tasks", state="done")
    DatasetOrder.objects.create(environment=other, name="n", command="tasks")
    assert list(orders_of(environment)) == kept[::-1]


# --- Pages ------------------------------------------------------------------------------------------------------------
def test_only_an_editor_is_offered_acts(
    project: Project, bob: User, rita: User, client_for: Callable[..., Client]
) -> None:
    environment = started(project, replicas="hh")
    names = ("environment-scale", "environment-restart", "environment-delete", "environment-check")
    acts = {name: reverse(name, args=[project.slug, environment.pk]) for name in names}
    page, rows = (
        reverse("environment-detail", args=[project.slug, environment.pk]),
        reverse("environment-list", args=[project.slug]),
    )
    new = f'href="{reverse("environment-new", args=[project.slug])}"'
    for who, offers in ((bob, True), (rita, False)):
        assert (new in client_for(who).get(rows).content.decode()) is offers
        shown = client_for(who).get(page).content.decode()
        assert {name: url in shown for name, url in acts.items()} == dict.fromkeys(names, offers)
    for url in acts.values():
        assert client_for(rita).post(url, {"wanted": "0"}).status_code == 403
    assert Environment.objects.get().wanted == 2
