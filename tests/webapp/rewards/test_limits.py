"""Both sides of each limit of reward specs, cases, tests of code and rollout sets, and whose rows they read."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import time_machine
from django.core.exceptions import ValidationError
from django.utils import timezone

from envs.wire import Message
from tests.webapp.rewards.test_paid import GOOD, WRONG, recorded, spec
from training.config import JobConfig, RewardComponent
from training.rewards.base import Episode
from webapp.people.teams.models import Project, User
from webapp.rewards import cases as cases_module
from webapp.rewards.cases import Ranked, _mark_of, cases_of, failures_first, origin_of, origins_of, reward_case_create
from webapp.rewards.custom import Line, Sample, Tested, _compare_lines, rows_at, runs_offered, samples_of
from webapp.rewards.lab import sets
from webapp.rewards.lab.scoring import Cache
from webapp.rewards.lab.script import _figure_text
from webapp.rewards.lab.sets import percent_of, recorded_rollouts, rollout_set_create, rollout_sets_of
from webapp.rewards.lab.views import launch_address, set_name
from webapp.rewards.models import RewardCase, RewardSpec, RolloutSet
from webapp.rewards.selectors import latest_specs, newest_named, parts_of, runs_using, versions_of
from webapp.rewards.services import reward_spec_delete, reward_spec_save
from webapp.runs.models import Run
from webapp.runs.rollouts.models import Rollout

pytestmark = pytest.mark.usefixtures("no_broker")
Builder = Callable[..., Any]
TALK = '[{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]'


def case(**over: Any) -> RewardCase:
    fields: dict[str, Any] = {"name": "c", "messages": [], "prompt_length": 0, "row": {}, "total": [0.0, 1.0]}
    return RewardCase(**(fields | over))


# --- Cases ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("over", "words"),
    [
        ({"total": None}, "Enter what you expect"),
        ({"total": [1.0, 0.5]}, "from the lower number to the higher one"),
        ({"total": [float("nan"), 1.0]}, "from the lower number to the higher one"),
        ({"total": [0.0, float("inf")]}, "from the lower number to the higher one"),
        ({"expected": {"coherence": [1.0, 0.0]}}, "from the lower number to the higher one"),
        ({"expected": {"nonsense": [0.0, 1.0]}}, "There is no reward component “nonsense”"),
        ({"messages": ["x" * ((1 << 20) - 9)]}, "larger than 1 MB"),
        ({"name": "a/b"}, "Use letters"),
        ({"name": "taken"}, "exists already"),
    ],
)
def test_a_case_that_cannot_be_is_not_kept(over: dict[str, Any], words: str, project: Project, bob: User) -> None:
    reward_case_create(case=case(name="taken"), project=project, user=bob)
    with pytest.raises(ValidationError, match=words):
        reward_case_create(case=case(**over), project=project, user=bob)
    assert RewardCase.objects.count() == 1


def test_a_case_is_kept_at_its_limits(project: Project, elsewhere: Project, bob: User, monkeypatch: Any) -> None:
    assert cases_module.MAX_CASES == 200
    monkeypatch.setattr(cases_module, "MAX_CASES", 3)
    for number in range(3):
        reward_case_create(case=case(name=f"t{number}"), project=elsewhere, user=None)
    whole = ["x" * ((1 << 20) - len('[[""], {}]'))]
    first = reward_case_create(case=case(name="b", messages=whole, total=[0.5, 0.5]), project=project, user=bob)
    part = case(name="a", total=None, expected={"coherence": [0.0, 0.0]})
    second = reward_case_create(case=part, project=project, user=bob)
    assert list(cases_of(project)) == [second, first] and first.created_by == bob
    reward_case_create(case=case(name="c"), project=project, user=bob)
    with pytest.raises(ValidationError, match="reached its limit of reward test cases"):
        reward_case_create(case=case(name="d"), project=project, user=bob)


@pytest.mark.parametrize(
    ("value", "passed"),
    [(0.5, True), (1.0, True), (1 + 1e-10, True), (1 + 1e-8, False), (0.4999, False), (None, False)],
)
def test_a_score_passes_within_its_range(value: float | None, passed: bool) -> None:
    assert _mark_of("t", value, "why", [0.5, 1.0]).passed is passed
    assert _mark_of("t", value, "why", None).passed is None
    assert _mark_of("t", value, "why", [500.0, 1000.0]).passed is False


def test_a_case_leads_to_its_rollout_while_it_is_there(project: Project, make_run: Builder) -> None:
    run = make_run(name="night")
    recorded(run, GOOD)
    first, second = Rollout.objects.order_by("index")
    kept = [case(origin=origin_of(rollout, "v" * 600)) for rollout in (first, second)]
    second.delete()
    assert origins_of(project, [case()]) == {}
    shown = origins_of(project, [*kept, case()])
    assert [origin.words for origin in shown.values()] == ["rollout 1.0.0 of night", "rollout 1.0.1 of night"]
    assert [origin.url for origin in shown.values()] == [f"/p/joust/rollouts/{first.pk}/", ""]
    assert {origin.view for origin in shown.values()} == {"v" * 500}


def test_the_rollouts_of_the_three_newest_runs_are_weighed(
    project: Project, elsewhere: Project, make_run: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (cases_module.RUNS, cases_module.ROLLOUTS) == (3, 3000)
    for groups in ([WRONG], [GOOD], [GOOD, GOOD], [GOOD]):
        recorded(make_run(), *groups)
    recorded(make_run(), [("failed", 0.9)])
    recorded(make_run(project=elsewhere), WRONG)
    assert failures_first(project, spec(coherence=1)) == Ranked(0, 4)
    monkeypatch.setattr(cases_module, "RUNS", 4)
    assert failures_first(project, spec(coherence=1)) == Ranked(1, 5)


# --- Specs ------------------------------------------------------------------------------------------------------------
def test_versions_of_a_spec_are_of_its_project(
    project: Project, elsewhere: Project, bob: User, make_run: Builder
) -> None:
    parts = [[RewardComponent(name="coherence", weight=weight)] for weight in (1, 2, 1)]
    first, second = (reward_spec_save(project=project, user=bob, name="a", components=each) for each in parts[:2])
    theirs = reward_spec_save(project=elsewhere, user=None, name="a", components=parts[0])
    other = reward_spec_save(project=project, user=bob, name="b", components=parts[0])
    assert (first.version, second.version, theirs.version, other.version) == (1, 2, 1, 1)
    assert reward_spec_save(project=project, user=bob, name="a", components=parts[1]) == second
    third = reward_spec_save(project=project, user=bob, name="a", components=parts[2])
    assert third.version == 3 and newest_named(project, "a") == third and newest_named(project, "c") is None
    assert list(versions_of(first)) == [third, second, first]
    assert [(item.pk, item.versions) for item in latest_specs(project)] == [(third.pk, 3), (other.pk, 1)]
    config = {"rewards": {"spec": "reward:a@1"}}
    runs = [make_run(config=config, state=state, name=state) for state in ("running", "failed")]
    make_run(config=config, project=elsewhere)
    make_run(config={"rewards": {"spec": "reward:a@2"}})
    assert set(runs_using(first)) == set(runs) and list(runs_using(first, active=True)) == runs[:1]
    with pytest.raises(ValidationError, match=r"used by a run that has not ended: running\."):
        reward_spec_delete(spec=first)
    Run.objects.filter(name="running").update(state="succeeded")
    reward_spec_delete(spec=first)
    assert RewardSpec.objects.filter(name="a").count() == 3


# --- Tests of code ----------------------------------------------------------------------------------------------------
SAMPLE = Sample("s", "", Episode(messages=[Message(role="user", content="q")], prompt_length=1))


def line(value: float | None, problem: str = "") -> Line:
    return Line(SAMPLE, value, problem)


@pytest.mark.parametrize(
    ("values", "passed", "failed", "constant"),
    [
        ([], False, 0, False),
        ([1.0], True, 0, False),
        ([1.0, 1.0], True, 0, True),
        ([1.0, 0.5], True, 0, False),
        ([1.0, None, 1.0], False, 1, True),
        ([None], False, 1, False),
    ],
)
def test_code_passes_where_every_episode_has_a_value(
    values: list[float | None], passed: bool, failed: int, constant: bool
) -> None:
    found = Tested("x", [line(value) for value in values], 1.0)
    assert (found.passed, found.failed, found.constant) == (passed, failed, constant)


def test_code_that_gives_another_value_the_second_time_fails() -> None:
    assert _compare_lines(line(1.0), line(1.0)).value == 1.0
    assert _compare_lines(line(1.0), line(None, "late")).problem == "late"
    found = _compare_lines(line(1.0), line(0.5))
    assert found.value is None and found.problem.startswith("It returned 1, then 0.5 for the same episode")


def finished(run: Run, count: int = 1, **over: Any) -> None:
    for index in range(count):
        fields = {"attempt": 1, "step": 1, "group": 0, "index": index, "status": "completed", "seq": 1}
        now = timezone.now()
        Rollout.objects.create(run=run, started_at=now, **({"finished_at": now} | fields | over))


def test_code_is_tried_on_finished_rollouts_of_the_newest_runs(
    project: Project, elsewhere: Project, make_run: Builder
) -> None:
    runs = [make_run() for _number in range(31)]
    for run in runs:
        finished(run)
    finished(make_run(), finished_at=None)
    finished(make_run(project=elsewhere))
    make_run()
    assert list(runs_offered(project)) == runs[:0:-1]
    theirs = Run.objects.get(project=elsewhere)
    for raw in (f"run:{theirs.pk}", "run:nonsense"):
        with pytest.raises(ValidationError, match="no such run in this project"):
            samples_of(project, raw, "")
    empty = make_run()
    finished(empty, held_out=True)
    finished(empty, status="excluded", group=1)
    with pytest.raises(ValidationError, match="no finished rollouts"):
        samples_of(project, f"run:{empty.pk}", "")
    with pytest.raises(ValidationError, match="no reward test cases"):
        samples_of(project, "cases", "")
    assert [each.label for each in samples_of(project, "pasted", TALK)] == ["Pasted 1"]
    RewardCase.objects.bulk_create(case(project=project, name=f"c{number:02}") for number in range(51))
    RewardCase.objects.filter(name="c03").update(messages=[{"role": "wizard"}])
    labels = [each.label for each in samples_of(project, "cases", "")]
    assert labels == [f"c{number:02}" for number in range(50) if number != 3]


def test_rows_are_read_from_the_dataset_of_the_run_while_it_is_there(
    project: Project, make_run: Builder, make_dataset: Builder
) -> None:
    rows = [{"messages": [{"role": "user", "content": str(number)}], "n": number} for number in range(4)]
    dataset = make_dataset(lines=rows)
    config = {"data": {"train": str(dataset.rows_path)}}
    run = make_run(config=config, resolved=config)
    played = [Rollout(run=run, step=1, part="", row=row) for row in (2, None, 0)]
    assert {place: row["n"] for place, row in rows_at(run, played).items()} == {0: 0, 2: 2}
    assert rows_at(run, played[1:2]) == {} and rows_at(make_run(config=config), played) == {}
    dataset.rows_path.unlink()
    assert rows_at(run, played) == {}


# --- Rollout sets -----------------------------------------------------------------------------------------------------
def test_a_project_has_so_many_sets_and_none_on_a_full_disk(
    project: Project, elsewhere: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert sets.MAX_SETS == 200
    monkeypatch.setattr(sets, "MAX_SETS", 2)
    for where in (project, elsewhere, elsewhere):
        RolloutSet.objects.create(project=where, name="s", kind="pasted")
    free = [1024**3 - 1]
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: SimpleNamespace(free=free[0]))

    def make() -> RolloutSet:
        return rollout_set_create(project=project, user=None, name="n", kind="pasted", text=TALK)

    with pytest.raises(ValidationError, match="disk is nearly full"):
        make()
    free[0] += 1
    made = make()
    assert rollout_sets_of(project).first() == made
    with pytest.raises(ValidationError, match="reached its limit of rollout sets"):
        make()


def test_steps_of_a_run_are_taken_with_both_ends(project: Project, elsewhere: Project, make_run: Builder) -> None:
    run = make_run(name="night")
    for step in range(1, 6):
        finished(run, step=step)
    finished(run, step=3, index=1, held_out=True)
    finished(run, step=3, index=2, status="running")
    finished(make_run(), step=3)
    for first, last, steps in (
        (None, None, [1, 2, 3, 4, 5]),
        (2, None, [2, 3, 4, 5]),
        (None, 4, [1, 2, 3, 4]),
        (3, 3, [3]),
    ):
        assert sorted(recorded_rollouts(run, first, last).values_list("step", flat=True)) == steps
        made = rollout_set_create(
            project=project,
            user=None,
            name="n",
            kind="run",
            run=run,
            first_step=first,
            last_step=last,
            found_by="f" * 600,
        )
        assert (made.run_name, made.first_step, made.last_step, made.found_by) == ("night", first, last, "f" * 500)
    with pytest.raises(ValidationError, match="before the first one"):
        rollout_set_create(project=project, user=None, name="n", kind="run", run=run, first_step=3, last_step=2)
    with pytest.raises(ValidationError, match="Choose a run of this project"):
        rollout_set_create(project=elsewhere, user=None, name="n", kind="run", run=run)


@pytest.mark.parametrize(
    ("progress", "percent"), [({}, 0), ({"total": 8}, 0), ({"done": 3, "total": 8}, 38), ({"done": 9, "total": 8}, 100)]
)
def test_the_progress_of_a_set_is_a_percentage(progress: dict[str, int], percent: int) -> None:
    assert percent_of(RolloutSet(progress=progress)) == percent


def test_what_fills_the_cache_exactly_is_kept() -> None:
    store, made = Cache(80), []
    for key in (1, 2, 1, 2):
        store.get(key, lambda: made.append(key) or SimpleNamespace(nbytes=40))  # type: ignore[func-returns-value] # noqa: B023
    assert (made, store.bytes) == ([1, 2], 80)


@pytest.mark.parametrize(
    ("value", "text"),
    [(9.0, "9"), (10.0, "10"), (12345.0, "12,345"), (-1234.0, "-1,234"), (1234.5, "1.23e+03"), (0.1234, "0.123")],
)
def test_figures_of_an_alarm_are_short(value: float, text: str) -> None:
    assert _figure_text(value) == text


@pytest.mark.parametrize(
    ("kind", "first", "last", "name"),
    [
        ("run", None, None, "n" * 80),
        ("run", 0, None, "n" * 77 + " 0-"),
        ("run", None, 9, "n" * 76 + " 0-9"),
        ("run", 12, 345, "n" * 73 + " 12-345"),
        ("cases", None, None, "Test cases 2026-03-01 12-30"),
        ("pasted", None, None, "Pasted 2026-03-01 12-30"),
    ],
)
def test_a_set_without_a_name_is_called_after_its_source(
    kind: str, first: int | None, last: int | None, name: str
) -> None:
    with time_machine.travel("2026-03-01 12:30", tick=False):
        for run in (Run(name="n" * 90), None) if kind != "run" else (Run(name="n" * 90),):
            assert set_name(kind, run, first, last) == name


def test_the_lab_leads_to_a_run_with_the_options_of_its_own(project: Project, make_run: Builder) -> None:
    values = {"data": {"train": "dataset:d@1"}, "environment": {"name": "environment:e"}, "model": {"source": "a/b"}}
    run = make_run(config=JobConfig.model_validate(values))
    rollout_set = RolloutSet(project=project, run=run)
    assert launch_address(project, rollout_set) == f"/p/joust/runs/new/?from={run.pk}"
    run.imported_from = "verl"
    assert launch_address(project, rollout_set) == (
        "/p/joust/runs/new/?dataset=dataset%3Ad%401&environment=environment%3Ae&model=a%2Fb"
    )
    assert launch_address(project, RolloutSet(project=project)) == "/p/joust/runs/new/"


def test_a_spec_shows_the_share_of_each_weight_and_what_differs() -> None:
    parts = [
        {"name": "coherence", "weight": 1.5},
        {"name": "result_use", "weight": -0.5, "params": {"ngram": 3}},
        {"name": "gone_since", "weight": 0},
    ]
    shown = parts_of(RewardSpec(components=parts))
    assert [(part.weight, part.share) for part in shown] == [(1.5, 75), (-0.5, 25), (0, 0)]
    assert [(value, differs) for _title, value, differs in shown[1].params if differs] == [(3, True)]
    assert shown[2].help == "This component is no longer known." and shown[2].params == []
    assert [part.share for part in parts_of(RewardSpec(components=[{"name": "coherence", "weight": 0}]))] == [0]
