"""What is shown of servers that run: load, history, baselines, logs."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import wait
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from tests.webapp.environments.registered import HEALTH, answering, job_in
from webapp.common.storage import environment_dir
from webapp.engine.services import run_create
from webapp.environments import keeper
from webapp.environments.keeper import Reconciler, Watch, samples_prune
from webapp.environments.launchers import LaunchError, Owned, Started
from webapp.environments.models import Environment, Kind, Replica
from webapp.environments.selectors import environment_named, health_view, history
from webapp.environments.services import environment_restart
from webapp.people.teams.models import Project, User


def test_samples_sum_replicas_and_count_new_errors(launch: Callable[..., Environment], project: Project) -> None:
    environment, watch = launch(wanted=2), Watch()
    loads = [{"steps": 9, "steps_per_s": 2.5, "p50_ms": 3.0, "p95_ms": 9.0, "errors": {"BAD": 2}}, None]
    for number, load in enumerate(loads, 1):
        environment.replicas.create(
            number=number, url=f"http://127.0.0.1:{number}", state="healthy", health=HEALTH | {"load": load}
        )

    def sample(**errors: int) -> Any:
        environment.replicas.filter(number=1).update(health=HEALTH | {"load": loads[0] | {"errors": errors}})  # type: ignore[operator]
        found = environment_named(project, "mine")
        assert found is not None
        watch._sample(found)
        return environment.samples.order_by("-pk")[0]

    first = sample(BAD=2)
    assert (first.sessions, first.slots, first.steps_per_s, first.p95_ms) == (20, 32, 2.5, 9.0)
    assert first.errors == {}  # counted before we looked
    assert sample(BAD=5, FULL=1).errors == {"BAD": 3, "FULL": 1}
    assert sample(BAD=1).errors == {"BAD": 1}  # the server was restarted
    assert sample(BAD=1, FULL=2).errors == {"FULL": 2}
    environment.replicas.update(state="unhealthy")
    silent = sample()
    assert (silent.sessions, silent.slots, silent.steps_per_s, silent.p95_ms, silent.errors) == (*[None] * 4, {})
    Environment.objects.update(wanted=0)
    assert sample() == silent, "of none that is wanted there is no sample"
    watch.close()


class _Running:
    """A launcher whose servers run until they are killed, and do not end when they are only asked to."""

    def __init__(self) -> None:
        self.killed = self.asked = 0

    def alive(self, _handle: dict[str, Any]) -> bool:
        return not self.killed

    def stop(self, _handle: dict[str, Any], *, force: bool = False) -> None:
        self.killed += force
        self.asked += not force

    def list_owned(self) -> list[Owned]:
        return [Owned("e", number, {"pid": number}) for number in (1, 2)]


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The keeper's clock."""
    found = SimpleNamespace(s=0.0)
    sleep = lambda seconds: setattr(found, "s", found.s + seconds)  # noqa: E731
    monkeypatch.setattr(keeper, "time", SimpleNamespace(monotonic=lambda: found.s, sleep=sleep))
    return found


def reconciling(launcher: Any) -> Any:
    return Reconciler({Kind.PROCESS: launcher})  # type: ignore[dict-item]


def test_a_server_is_asked_when_it_is_due_and_validates_itself_once(
    launch: Callable[..., Environment], project: Project, now: SimpleNamespace, serve: Callable[..., None]
) -> None:
    serve(HEALTH | {"name": "tools"})
    environment, watch = launch(), Watch()
    replica = environment.replicas.create(number=1, url="http://127.0.0.1:1", handle={"pid": 1})

    def asked(at: float) -> bool:
        now.s = at
        watch.tick(environment_named(project, "mine"))  # type: ignore[arg-type]
        questions = [future for future, _handle in watch._asked.values()]
        wait([*questions, *watch._proofs.values()])
        return bool(questions)

    assert [asked(at) for at in (0, 0.5, 1.25, 1.5)] == [True, False, False, True], "a second after an answer"
    replica.refresh_from_db()
    environment.refresh_from_db()
    assert replica.state == "healthy" and environment.validation["ok"] and environment.validation["episodes"] == 4
    Environment.objects.update(validation=None)
    environment.replicas.update(wish="restart")
    assert [asked(at) for at in (2, 6.9, 7)] == [False, False, True], "five seconds, once it is healthy"
    assert not watch._proofs, "its options are about to change"
    environment.replicas.update(handle={"pid": 2})
    replica.environment.replicas.update(state="starting", wish="")
    assert not asked(8) and environment.replicas.get().state == "starting", "that was the process before"
    assert environment.samples.count() == 1
    asked(14.5)
    assert environment.samples.count() == 1
    asked(15)
    assert environment.samples.count() == 2
    watch.close()


def test_samples_are_pruned_every_ten_minutes(launch: Callable[..., Environment], now: SimpleNamespace) -> None:
    environment, watch = launch(), Watch()
    for now.s, left in ((599.5, 1), (600, 0), (1199.5, 1), (1200, 0)):
        environment.samples.get_or_create(sessions=1, defaults={"at": timezone.now() - timedelta(hours=25)})
        watch.prune()
        assert environment.samples.count() == left, now.s
    watch.close()


def test_a_server_at_an_address_has_one_row_which_follows_it(make_environment: Any) -> None:
    environment = make_environment(url="http://127.0.0.1:1")
    environment.replicas.all().delete()
    for url, state in (("http://127.0.0.1:1", "starting"), ("http://127.0.0.1:1", "healthy")):
        reconciling(_Running()).look(environment_named(environment.project, environment.name))
        assert [(row.number, row.url, row.state) for row in environment.replicas.all()] == [(1, url, state)]
        environment.replicas.update(state="healthy")
    Environment.objects.update(url="http://127.0.0.1:2")
    reconciling(_Running()).look(environment_named(environment.project, environment.name))
    assert [(row.url, row.state) for row in environment.replicas.all()] == [("http://127.0.0.1:2", "starting")]


def test_at_the_end_all_are_asked_and_what_is_left_after_five_seconds_is_killed(now: SimpleNamespace) -> None:
    stubborn, dying = _Running(), _Dying()
    reconciling(stubborn).end_all()
    assert (stubborn.asked, stubborn.killed, round(now.s)) == (2, 2, 5)
    reconciling(dying).end_all()
    assert (dying.asked, dying.killed, round(now.s)) == (2, 0, 5), "no longer than it takes"


def test_only_a_minute_of_silence_without_a_break_ends_a_server(
    launch: Callable[..., Environment], project: Project, now: SimpleNamespace
) -> None:
    launcher = _Running()
    reconciler = reconciling(launcher)
    replica = launch().replicas.create(number=1, url="http://127.0.0.1:1", handle={"pid": 1})
    for now.s, state, killed in (
        (0, "unhealthy", 0),
        (50, "unhealthy", 0),
        (55, "healthy", 0),
        (70, "unhealthy", 0),
        (125, "unhealthy", 0),  # 55 s, although the first silence began 125 s ago
        (130, "unhealthy", 0),
        (130.5, "unhealthy", 1),
    ):
        replica.environment.replicas.update(state=state)
        reconciler.look(environment_named(project, "mine"))
        assert launcher.killed == killed, now.s


def test_a_server_that_starts_has_three_minutes(
    launch: Callable[..., Environment], project: Project, now: SimpleNamespace
) -> None:
    launcher = _Running()
    reconciler = reconciling(launcher)
    replica = launch().replicas.create(number=1, url="http://127.0.0.1:1", handle={"pid": 1}, state="stopping")
    for now.s, killed in ((5, 0), (185, 0), (185.5, 1)):
        reconciler.look(environment_named(project, "mine"))
        replica.refresh_from_db()
        assert (launcher.killed, replica.state) == (killed, "starting"), now.s


def test_a_server_that_is_to_end_is_asked_once_and_killed_after_five_seconds(
    launch: Callable[..., Environment], project: Project, now: SimpleNamespace
) -> None:
    launcher, environment = _Running(), launch(wanted=0)
    reconciler = reconciling(launcher)
    environment.replicas.create(number=1, url="http://127.0.0.1:1", handle={"pid": 1}, state="healthy")
    for now.s, killed, states in (
        (1, 0, ["stopping"]),
        (6, 0, ["stopping"]),
        (6.5, 1, ["stopping"]),
        (7, 2, []),  # what it left behind is removed with it
    ):
        reconciler.look(environment_named(project, "mine"))
        assert (launcher.asked, launcher.killed) == (1, killed), now.s
        assert list(environment.replicas.values_list("state", flat=True)) == states, now.s


def test_what_no_row_names_is_ended() -> None:
    named = {("e", 1, "[('pid', 1)]"), ("e", 2, "[('pid', 1)]"), ("f", 2, "[('pid', 2)]")}
    for also, killed in (("e", 0), ("g", 1)):
        launcher = _Running()
        reconciling(launcher).remove_orphans({*named, (also, 2, "[('pid', 2)]")})
        assert (launcher.asked, launcher.killed) == (0, killed)


class _Dying(_Running):
    """A launcher whose servers have died by the next look."""

    starts = 0

    def start(self, _replica: Replica) -> Started:
        self.starts += 1
        return Started({"pid": self.starts}, "http://127.0.0.1:1")

    def alive(self, _handle: dict[str, Any]) -> bool:
        return False

    def logs(self, _replica: Replica, _lines: int) -> list[str]:
        return ["no room"]


def test_a_server_that_dies_is_started_at_once_and_then_after_growing_pauses(
    launch: Callable[..., Environment], project: Project, now: SimpleNamespace
) -> None:
    launcher, environment = _Dying(), launch()
    reconciler = reconciling(launcher)
    for now.s, starts, restarts in (
        (0, 1, 0),
        (1, 1, 1), (1, 2, 1),
        (2, 2, 2), (2.75, 2, 2), (2.8, 3, 2),
        (3, 3, 3), (4.5, 3, 3), (4.6, 4, 3),
        (5, 4, 4), (8, 4, 4), (8.2, 5, 4),
        (9, 5, 4), (1000, 5, 4),
    ):  # fmt: skip
        reconciler.look(environment_named(project, "mine"))
        replica: Any = environment.replicas.get()
        assert (launcher.starts, replica.restarts) == (starts, restarts), now.s
    assert (replica.state, replica.handle) == ("failed", {})
    assert replica.error["message"] == "It ended 5 times in a row shortly after its start."
    assert replica.error["log"] == ["no room"]


@pytest.mark.parametrize(("lived", "state"), [(29.5, "failed"), (30, "starting")])
def test_a_server_that_lived_for_half_a_minute_begins_with_a_clean_record(
    launch: Callable[..., Environment], project: Project, now: SimpleNamespace, lived: float, state: str
) -> None:
    launcher, environment = _Dying(), launch()
    reconciler = reconciling(launcher)
    while launcher.starts < 5:
        now.s += 20
        reconciler.look(environment_named(project, "mine"))
    now.s += lived
    reconciler.look(environment_named(project, "mine"))
    assert environment.replicas.get().state == state
    reconciler.look(environment_named(project, "mine"))
    assert launcher.starts == (6 if state == "starting" else 5), "at once"


@pytest.mark.parametrize(("minutes", "starts"), [(60, 5), (0, 4)])
def test_a_new_keeper_knows_from_the_row_how_long_a_server_lived(
    launch: Callable[..., Environment], project: Project, now: SimpleNamespace, minutes: int, starts: int
) -> None:
    launcher, environment = _Dying(), launch()
    reconciler = reconciling(launcher)
    began = timezone.now() - timedelta(minutes=minutes)
    environment.replicas.create(number=1, url="http://127.0.0.1:1", handle={"pid": 7}, started_at=began)
    for _look in range(30):
        now.s += 20
        reconciler.look(environment_named(project, "mine"))
    assert (environment.replicas.get().state, launcher.starts) == ("failed", starts)


class _Refusing(_Running):
    """A launcher that cannot work now."""

    starts = 0

    def start(self, _replica: Replica) -> Started:
        self.starts += 1
        raise LaunchError("No engine.")


def test_a_launcher_that_cannot_work_is_asked_again_every_ten_seconds(
    launch: Callable[..., Environment], project: Project, now: SimpleNamespace
) -> None:
    launcher, environment = _Refusing(), launch()
    reconciler = reconciling(launcher)
    for now.s, starts in ((1, 1), (10.5, 1), (11, 2), (20.5, 2), (21, 3)):
        reconciler.look(environment_named(project, "mine"))
        replica: Any = environment.replicas.get()
        assert (launcher.starts, replica.error["message"], replica.state) == (starts, "No engine.", "starting")


def test_a_person_who_restarts_a_server_gives_it_all_its_tries_again(
    launch: Callable[..., Environment], project: Project, now: SimpleNamespace
) -> None:
    launcher = _Dying()
    reconciler = reconciling(launcher)
    environment = launch()

    def starts_until_it_failed() -> int:
        before = launcher.starts
        for _look in range(30):
            now.s += 20  # longer than a pause, shorter than a life that forgives
            reconciler.look(environment_named(project, "mine"))
        assert environment.replicas.get().state == "failed"
        return launcher.starts - before

    assert starts_until_it_failed() == 5
    environment_restart(environment=environment)
    assert starts_until_it_failed() == 5


def test_history_is_thinned_keeps_gaps_and_forgets(launch: Callable[..., Environment]) -> None:
    environment, now = launch(), timezone.now()
    for minute in range(1200):
        environment.samples.create(
            at=now - timedelta(minutes=minute), sessions=None if minute > 900 else minute, errors={"BAD": 1}
        )
    environment.samples.create(at=now - timedelta(hours=25), sessions=99_999)
    shown = history(environment)
    assert len(shown["at"]) == 400 and sum(shown["errors"]["BAD"]) == 1200
    assert max(value for value in shown["sessions"] if value is not None) == 900 and shown["sessions"][0] is None
    assert samples_prune() == 1 and environment.samples.count() == 1200


def test_the_list_sums_and_names_baselines(
    project: Project, bob: User, rita: User, client_for: Callable[..., Client], launch: Callable[..., Environment]
) -> None:
    rules = {"name": "rules", "reward": 0.791, "success": 0.58, "episodes": 300}
    environment = launch(wanted=3)
    Environment.objects.filter(pk=environment.pk).update(health=HEALTH | {"baselines": [rules]}, healthy=True)
    answering(environment, 2)
    found = environment_named(project, "mine")
    assert found is not None
    view = health_view(found)
    for person, shown in ((bob, True), (rita, False)):
        page = (
            client_for(person).get(reverse("environment-detail", args=[project.slug, environment.pk])).content.decode()
        )
        assert ("Stop all" in page, "Restart all" in page, 'aria-label="Add one replica"' in page) == (shown,) * 3
    assert (view.state, view.sessions, view.slots, view.healthy, view.replicas) == ("degraded", 20, 32, 2, 3)
    page = client_for(rita).get(reverse("environment-list", args=[project.slug])).content.decode()
    assert "rules: 0.79 mean, 58% success over 300 episodes" in page and "2 / 3" in page


def test_logs_are_text_whatever_they_hold(
    project: Project, rita: User, client_for: Callable[..., Client], launch: Callable[..., Environment]
) -> None:
    environment = launch()
    environment.replicas.create(number=1)
    log = environment_dir(environment.pk) / "replica-1.log"
    log.parent.mkdir(parents=True)
    log.write_text("<script>alert(1)</script>\nAuthorization: Bearer abcdef123456\n" + "x" * 5000 + "\n")
    address = reverse("environment-log", args=[project.slug, environment.pk, 1])
    page = client_for(rita).get(address).content.decode()
    assert "<script>alert" not in page and "&lt;script&gt;alert(1)" in page and "abcdef123456" not in page
    assert "x" * 1001 not in page
    missing = reverse("environment-log", args=[project.slug, environment.pk, 2])
    assert client_for(rita).get(missing).status_code == 404


def test_baselines_at_launch_stay_with_the_run(
    project: Project, bob: User, client_for: Callable[..., Client], make_environment: Any, make_dataset: Any
) -> None:
    rules = {"name": "rules", "reward": 0.791, "success": 0.58, "episodes": 300}
    environment = make_environment(health={"baselines": [rules]})
    run = run_create(project=project, user=bob, name="r", config=job_in(make_dataset, environment))
    Environment.objects.update(health={})
    run.refresh_from_db()
    assert run.baselines == [rules]
    page = client_for(bob).get(reverse("run-detail", args=[project.slug, run.pk]))
    assert "Baseline rules: reward 0.79, success 58%" in page.content.decode()
    assert page.context["data"]["baselines"]["rollouts/task_success"] == [{"name": "rules", "y": 0.58}]
