"""Sessions of environments: what a run plays at once, what the servers hold, and that claims and the forecast count."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from tests.webapp.runs.records.conftest import claims_at_once
from training.config import JobConfig
from webapp.common.pools import ENDPOINT, TRAIN
from webapp.common.workers.models import Drain, Worker
from webapp.engine.attempts import claim, first_in_line
from webapp.engine.services import run_create, run_launch
from webapp.environments.models import Environment, ReplicaState
from webapp.launch.preflight import _check_sessions
from webapp.people.teams.models import Project, User
from webapp.runs.models import Run
from webapp.runs.records.queue import read_queue
from webapp.runs.records.queue_words import queue_answer
from webapp.runs.records.sessions import Room, rooms_of, sessions_asked, sessions_in, sessions_text

pytestmark = pytest.mark.django_db
Make = Callable[..., Run]
DAY = 24 * 60


@pytest.fixture(autouse=True)
def leases(settings: Any) -> None:
    settings.LEASE_TTL_S, settings.LEASE_BEAT_S = 600, 150


@pytest.fixture
def world(make_environment: Callable[..., Environment]) -> Callable[..., Environment]:
    """``world(slots, …)``: an environment with a server for each number of sessions."""

    def make(*slots: int | None, **fields: Any) -> Environment:
        environment = make_environment(**fields)
        environment.replicas.all().delete()
        for number, each in enumerate(slots, start=1):
            healthy = {"state": ReplicaState.HEALTHY, "health": {"slots": each} if each is not None else {}}
            environment.replicas.create(number=number, url=f"http://127.0.0.1:{number}", **healthy)
        return environment

    return make


@pytest.fixture
def line(make_run: Make) -> Make:
    """``line(minutes, {environment: sessions}, **fields)``: a run that was queued so many minutes ago."""

    def make(minutes: float = 1, plays: dict[Environment, int] | None = None, **fields: Any) -> Run:
        sessions = sessions_text({environment.pk: count for environment, count in (plays or {}).items()})
        queued_at = timezone.now() - timedelta(minutes=minutes)
        return make_run(**{"state": "queued", "queued_at": queued_at, "sessions": sessions, **fields})

    return make


@pytest.fixture
def busy(line: Make) -> Make:
    """``busy({environment: sessions}, worker, **fields)``: a run that this worker has, 100 s before its end."""

    def make(plays: dict[Environment, int] | None = None, place: str = "train@a", **fields: Any) -> Run:
        at = timezone.now()
        work = {"state": "running", "attempt": 1, "lease_worker": place, "lease_beat_at": at, "queued_at": at}
        return line(1, plays, **work | {"step": 0, "total_steps": 10, "step_seconds": 10.0} | fields)

    return make


def workers(*names: str, **fields: Any) -> None:
    at = timezone.now()
    for name in names:
        Worker.objects.create(**{"name": name, "queues": [TRAIN], "started_at": at, "beat_at": at} | fields)


def shown(run: Run, *sees: Project) -> dict[str, Any]:
    found = queue_answer(read_queue().queued(run.pk), [project.pk for project in sees])
    assert found is not None
    return found


def texts(found: dict[str, Any]) -> list[str]:
    return [each["text"] for each in found["lines"]]


# --- What a job plays at once ---------------------------------------------------------------------------------------
def asked(**options: Any) -> dict[str, int]:
    group = {"rollout": {"prompts_per_step": 4, "num_generations": 8}}
    config = JobConfig.model_validate({"data": {"train": "rows.jsonl"}, **group, **options})
    return sessions_asked(config, config)


TOOLS, SHOP = {"name": "environment:tools", "url": "http://a"}, {"name": "environment:shop", "url": "http://b"}


def test_a_job_plays_a_whole_step_at_once() -> None:
    assert asked(environment=TOOLS) == {"environment:tools": 32}
    assert asked(environment={"name": "none"}) == {}
    assert asked(kind="sft", environment=TOOLS) == {}
    rollout = {"prompts_per_step": 3, "num_generations": 5}
    assert asked(kind="evaluate", environment=TOOLS, rollout=rollout) == {"environment:tools": 15}


@pytest.mark.parametrize(
    ("sessions", "replicas", "found"), [(31, [], 31), (32, [], 32), (33, [], 32), (10, ["http://c"], 20)]
)
def test_sessions_of_each_address_bound_it(sessions: int, replicas: list[str], found: int) -> None:
    environment = TOOLS | {"sessions": sessions, "replicas": replicas}
    assert asked(environment=environment) == {"environment:tools": found}
    assert asked(environment=environment | {"url": "", "replicas": []}) == {"environment:tools": 32}, "no address yet"


def test_the_largest_of_several_stages_counts_for_each_environment() -> None:
    stages = [
        {"name": "a", "until_step": 1, "environment": TOOLS, "rollout": {"prompts_per_step": 3}},
        {"name": "b", "until_step": 2, "environment": TOOLS, "rollout": {"prompts_per_step": 2}},
        {"name": "c", "environment": SHOP, "rollout": {"prompts_per_step": 1}},
    ]
    found = asked(environment=TOOLS, curriculum={"stages": stages}, run={"max_steps": 3})
    assert found == {"environment:tools": 24, "environment:shop": 8}


def test_parts_of_a_mix_share_a_step_and_held_out_tasks_may_fill_it() -> None:
    def mix(*parts: tuple[float, dict[str, Any]], **more: Any) -> dict[str, int]:
        made = [
            {"name": f"p{number}", "weight": weight, "data": {"train": f"{number}.jsonl"}, "environment": environment}
            for number, (weight, environment) in enumerate(parts)
        ]
        return asked(mix={"parts": made}, **more)

    assert mix((3, TOOLS), (1, SHOP)) == {"environment:tools": 24, "environment:shop": 8}
    assert mix((2, TOOLS), (1, SHOP)) == {"environment:tools": 24, "environment:shop": 16}, "whole groups, rounded up"
    assert mix((1, TOOLS), (1, SHOP), (2, TOOLS)) == {"environment:tools": 24, "environment:shop": 8}
    assert mix((1, TOOLS), (0, SHOP)) == {"environment:tools": 32}
    held_out = {"every": 5, "share": 0.1}
    assert mix((1, TOOLS), (0, SHOP), evaluate=held_out) == {"environment:tools": 32, "environment:shop": 32}


def test_a_launch_writes_what_the_run_plays_into_its_row(
    project: Project, bob: User, make_dataset: Any, world: Callable[..., Environment]
) -> None:
    environment = world(8)
    options = {"data": {"train": make_dataset().reference}, "environment": {"name": environment.reference}}
    config = JobConfig.model_validate(options | {"rollout": {"prompts_per_step": 2, "num_generations": 3}})
    run = run_create(project=project, user=bob, name="a", config=config)
    assert run.sessions == f"{environment.pk}/6"
    draft = run_create(project=project, user=bob, name="b", config=config, launch=False)
    assert draft.sessions == "" and run_launch(run=draft, user=bob).sessions == f"{environment.pk}/6"


def test_a_row_reads_as_it_was_written() -> None:
    sessions = {UUID(int=2): 7, UUID(int=1): 130}
    text = sessions_text(sessions)
    assert text == f"{UUID(int=1)}/130 {UUID(int=2)}/7" and sessions_in(text) == sessions
    assert sessions_text({}) == "" and sessions_in("") == {}


# --- What the servers hold ------------------------------------------------------------------------------------------
def test_answering_servers_count_together_and_one_that_does_not_say_leaves_it_unknown(
    project: Project, charlie: User, world: Callable[..., Environment]
) -> None:
    both, silent, away = world(5, 7), world(5, None), world(9)
    early = world(None, 5)
    away.replicas.update(state=ReplicaState.UNHEALTHY)
    part = world(4, 6)
    part.replicas.filter(number=2).update(state=ReplicaState.STARTING)
    world(3, project=Project.objects.get(slug="elsewhere"))
    assert rooms_of([project.pk]) == {both.pk: Room(both.name, 12), part.pk: Room(part.name, 4)}
    assert not {silent.pk, early.pk} & rooms_of([project.pk]).keys() and rooms_of([]) == {}


# --- Claims ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("plays", "taken"), [(4, True), (5, False), (10, False), (99, False)])
def test_a_claim_takes_no_more_sessions_than_are_free(
    line: Make, busy: Make, world: Callable[..., Environment], plays: int, taken: bool
) -> None:
    environment = world(4, 6)
    busy({environment: 6})
    assert (claim(line(1, {environment: plays}).pk) is not None) is taken


@pytest.mark.parametrize("plays", [10, 11, 999])
def test_a_run_that_plays_more_than_there_is_takes_all(
    line: Make, world: Callable[..., Environment], plays: int
) -> None:
    environment = world(10)
    assert claim(line(2, {environment: plays}).pk) is not None
    assert claim(line(1, {environment: 1}).pk) is None


def test_nothing_limits_runs_where_the_sessions_are_not_known(
    line: Make, busy: Make, world: Callable[..., Environment]
) -> None:
    unknown, away, other = world(4, None), world(4), world(1)
    away.replicas.update(state=ReplicaState.UNHEALTHY)
    busy({unknown: 99, away: 99})
    assert claim(line(1, {unknown: 99}).pk) is not None and claim(line(1, {away: 99}).pk) is not None
    assert claim(line(1).pk) is not None and claim(line(1, {other: 1}).pk) is not None


def test_runs_of_other_pools_count_and_those_that_have_none_or_ended_do_not(
    line: Make, busy: Make, world: Callable[..., Environment]
) -> None:
    environment = world(10)
    for state in ("succeeded", "paused", "queued"):
        busy({environment: 10}, state=state)
    busy({environment: 10}, imported=True)
    asks = busy({environment: 6}, pool=ENDPOINT)
    waits = line(1, {environment: 5})
    assert claim(waits.pk) is None and first_in_line(waits.pk, ENDPOINT) is None
    Run.objects.filter(pk=asks.pk).update(state="succeeded")
    assert claim(waits.pk) is not None
    assert claim(line(1, {environment: 6}, pool=ENDPOINT).pk) is None, "nor does it pass those of this pool"


def test_every_environment_of_a_run_needs_room(line: Make, busy: Make, world: Callable[..., Environment]) -> None:
    one, two = world(10), world(10)
    busy({two: 6})
    assert claim(line(1, {one: 4, two: 5}).pk) is None
    assert claim(line(1, {one: 4, two: 4}).pk) is not None
    assert claim(line(1, {one: 7}).pk) is None and claim(line(1, {one: 6}).pk) is not None


@pytest.mark.django_db(transaction=True)
def test_of_claims_at_once_no_more_succeed_than_have_room(line: Make, world: Callable[..., Environment]) -> None:
    environment = world(7)
    runs = [line(9, {environment: 2}) for _ in range(6)]
    assert sorted(claims_at_once(runs)) == [False] * 3 + [True] * 3


def test_a_claim_locks_the_project_only_where_something_counts(
    line: Make, project: Project, world: Callable[..., Environment]
) -> None:
    def locks(run: Run) -> int:
        with CaptureQueriesContext(
            connection,
        ) as queries:
            assert claim(run.pk) is not None
        return sum("teams_project" in each["sql"] and "FOR NO KEY UPDATE" in each["sql"] for each in queries)

    assert locks(line(1)) == locks(line(1, {world(None): 3})) == 0
    assert locks(line(1, {world(3): 3})) == 1
    Project.objects.filter(pk=project.pk).update(device_limit=9)
    assert locks(line(1)) == 1 and locks(line(1, pool=ENDPOINT)) == 0


# --- Who goes first -------------------------------------------------------------------------------------------------
def first(run: Run) -> Any:
    return first_in_line(run.pk, run.pool)


def test_others_that_fit_pass_until_the_run_is_overdue(
    line: Make, busy: Make, world: Callable[..., Environment]
) -> None:
    environment, other = world(10), world(10)
    busy({environment: 6})
    big, small, apart = line(DAY - 5, {environment: 5}), line(9, {environment: 4}), line(5, {other: 10})
    assert first(big) == small.pk
    Run.objects.filter(pk=big.pk).update(queued_at=timezone.now() - timedelta(minutes=DAY + 1))
    assert first(big) == apart.pk, "the sessions of its environment are kept, others are not"
    Run.objects.filter(pk=apart.pk).update(state="cancelled")
    assert first(small) == small.pk, "only by the message about it, and the claim decides"
    urgent = line(1, {environment: 4}, priority="high")
    assert first(small) == urgent.pk, "a higher class is not held back"


def test_a_silent_run_of_another_pool_holds_no_run_back(line: Make, busy: Make) -> None:
    silent = timezone.now() - timedelta(minutes=30)
    busy(pool=ENDPOINT, lease_beat_at=silent, lease_started_at=silent, queued_at=silent - timedelta(days=1))
    run = line(1)
    assert first(run) == run.pk


def test_sessions_are_kept_for_a_run_that_an_owner_put_first(
    line: Make, busy: Make, world: Callable[..., Environment]
) -> None:
    environment, free = world(10), world(10)
    busy({environment: 6})
    big, small = line(1, {environment: 5}, first_at=timezone.now()), line(9, {environment: 4})
    plain = line(5)
    assert first(big) == plain.pk
    Run.objects.filter(pk=big.pk).update(first_at=None)
    assert first(big) == small.pk
    both = line(1, {environment: 5, free: 1}, first_at=timezone.now())
    in_other = line(99, {free: 1})
    assert first(both) == plain.pk != in_other.pk, "of all its environments"


def test_nothing_is_kept_for_a_run_that_no_worker_can_train(
    line: Make, busy: Make, world: Callable[..., Environment]
) -> None:
    environment = world(10)
    busy({environment: 6})
    asks = {"needs": "8/0//0/0/1", "devices": 8}
    big, small = line(DAY + 9, {environment: 5}, **asks), line(9, {environment: 4})
    assert first(big) == small.pk
    workers("train@b", gpus=8)
    other = line(2)
    assert first(big) == other.pk, "another worker can: it is kept, although this one cannot"
    Run.objects.filter(pk=big.pk).update(sessions=sessions_text({environment.pk: 4}))
    assert first(big) == small.pk, "it fits: the other worker takes it, and this one the next"


# --- The forecast ---------------------------------------------------------------------------------------------------
def test_a_waiting_run_says_what_is_missing_and_when_it_starts(
    line: Make, busy: Make, project: Project, world: Callable[..., Environment]
) -> None:
    environment = world(10)
    workers("train@a", "train@b", "train@c")
    busy({environment: 6})
    run, small = line(9, {environment: 5}), line(5, {environment: 4})
    found = shown(run, project)
    assert (found["why"], found["seconds"], found["place"]) == ("sessions", 100.0, 2)
    text = f"It plays 5 episodes at once in {environment.name}, which holds 10; runs at work have 6 of them."
    address = f"/p/joust/environments/{environment.pk}/"
    assert {"text": text, "url": address, "link": "Look at the environment"} in found["lines"]
    assert environment.name not in str(shown(run)), "a reader of other projects"
    assert shown(small, project)["why"] == "starting"
    Run.objects.filter(pk=run.pk).update(sessions=sessions_text({environment.pk: 10}))
    text = f"It plays 10 episodes at once in {environment.name}, which holds 10; runs at work have 6 of them."
    assert text in texts(shown(run, project))
    Run.objects.filter(pk=run.pk).update(sessions=sessions_text({environment.pk: 64}))
    found = shown(run, project)
    text = (
        f"It plays 64 episodes at once, and {environment.name} holds 10: it starts once it can have all of them. "
        "Runs at work have 6."
    )
    assert found["why"] == "sessions" and text in texts(found)
    environment.replicas.create(number=2, url="http://b", state=ReplicaState.HEALTHY, health={"slots": 60})
    assert shown(run, project)["why"] == "starting"


def test_without_a_known_end_the_title_says_what_it_waits_for(
    line: Make, busy: Make, project: Project, world: Callable[..., Environment]
) -> None:
    environment = world(10)
    workers("train@a", "train@b")
    busy({environment: 6}, step_seconds=None)
    run = line(9, {environment: 5})
    found = shown(run, project)
    assert (found["why"], found["seconds"], found["place"]) == ("sessions", None, 1)
    assert found["title"] == "Next in line, but its environment has too few free sessions."
    assert found["short"] == "next in line · its environment has too few free sessions"
    assert shown(line(5, {environment: 5}), project)["place"] == 2, "once it ends, one after the other"


def test_a_run_that_is_held_back_for_an_overdue_one_says_so(
    line: Make, busy: Make, project: Project, world: Callable[..., Environment]
) -> None:
    environment = world(10)
    workers("train@a", "train@b", "train@c")
    busy({environment: 6})
    big = line(DAY + 9, {environment: 5}, name="big", step_seconds=10.0, total_steps=5)
    small, other = line(9, {environment: 4}), line(5)
    found = shown(small, project)
    assert (found["why"], found["place"], found["seconds"]) == ("sessions", 3, 100.0)
    assert "The free sessions are kept for big, which goes first and needs more than are free." in texts(found)
    assert shown(big, project)["why"] == "sessions" and shown(other, project)["why"] == "starting"
    urgent = line(1, {environment: 4}, priority="high")
    assert shown(urgent, project)["why"] == "starting", "a higher class is not held back"
    Run.objects.filter(pk=urgent.pk).update(state="cancelled")
    Run.objects.filter(pk=big.pk).update(needs="8/0//0/0/1")
    assert shown(small, project)["why"] == "starting", "no worker can train the other one"
    Run.objects.filter(pk=big.pk).update(needs="")
    Project.objects.filter(pk=project.pk).update(device_limit=2)
    Run.objects.filter(pk=big.pk).update(devices=2)
    assert shown(big, project)["why"] == "limit" and "kept for big" not in str(shown(small, project))
    Project.objects.filter(pk=project.pk).update(device_limit=None)
    Run.objects.filter(pk=big.pk).update(on_hold_at=timezone.now())
    assert shown(small, project)["why"] == "starting"


def test_sessions_come_back_from_every_pool_and_from_workers_that_drain(
    line: Make, busy: Make, project: Project, world: Callable[..., Environment]
) -> None:
    environment = world(10)
    workers("train@a", "train@b")
    asks = busy({environment: 6}, "asks@c", pool=ENDPOINT, total_steps=4)
    run = line(9, {environment: 5})
    assert (shown(run, project)["why"], shown(run, project)["seconds"]) == ("sessions", 40.0)
    Run.objects.filter(pk=asks.pk).update(pool=TRAIN, lease_worker="train@d")
    workers("train@d")
    Drain.objects.create(host="d")
    assert (shown(run, project)["why"], shown(run, project)["seconds"]) == ("sessions", 40.0)
    Run.objects.filter(pk=asks.pk).update(state="succeeded")
    assert shown(run, project)["why"] == "starting"


# --- Before a launch ------------------------------------------------------------------------------------------------
def test_the_check_before_a_launch_names_a_run_that_plays_more_than_there_is(
    project: Project, world: Callable[..., Environment]
) -> None:
    environment, unknown = world(10, 5), world(1, None)

    def check(name: str, prompts: int) -> list[Any]:
        options = {"environment": {"name": name}, "rollout": {"prompts_per_step": prompts, "num_generations": 3}}
        config = JobConfig.model_validate({"data": {"train": "x"}, **options})
        return list(_check_sessions(project, config, config))

    assert check(environment.reference, 5) == [] and check(unknown.reference, 99) == []
    (found,) = check(environment.reference, 6)
    assert (found.level, found.hard, found.path) == ("remark", False, "environment.name")
    assert found.message == (
        f"It plays 18 episodes at once, and {environment.name} holds 15: the run waits until it can have all of them, "
        "and no other run plays there meanwhile."
    )
