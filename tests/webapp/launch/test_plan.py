"""The plan next to the form of a new run: rollouts, tasks, what is held out, time and disk."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import translation

from tests.webapp.launch.test_held_out import rows_of
from tests.webapp.launch.test_launch import _data
from training.config import JobConfig
from webapp.engine.resolve import resolve
from webapp.launch.held_out import hold_out
from webapp.launch.plan import plan_of
from webapp.people.teams.models import Project, User
from webapp.runs.metrics.models import MetricPoint
from webapp.runs.models import Run
from webapp.runs.records.queue import STEPS_MEASURED

pytestmark = pytest.mark.django_db
Clients = Callable[..., Client]


@pytest.fixture
def config(make_dataset: Any, make_environment: Any) -> JobConfig:
    return JobConfig.model_validate(
        {
            "data": {"train": make_dataset(rows_of(100)).reference},
            "environment": {"name": make_environment().reference},
            "rollout": {"prompts_per_step": 5, "num_generations": 4},
            "run": {"max_steps": 60},
        }
    )


def shown(project: Project, config: JobConfig) -> dict[str, tuple[str, str]]:
    with translation.override("en"):
        return {line.title: (line.figure, line.note) for line in plan_of(project, config)}


def timed(run: Run, seconds: list[float]) -> None:
    """Steps of these lengths, the first one first."""
    MetricPoint.objects.bulk_create(
        MetricPoint(run=run, attempt=1, seq=step, step=step, name="timing/step", value=value)
        for step, value in enumerate(seconds, 1)
    )


def test_the_plan_multiplies_what_the_form_says(project: Project, config: JobConfig) -> None:
    found = shown(project, config)
    assert found["Rollouts"] == ("1,200", "60 steps × 5 tasks × 4 tries")
    assert found["Tasks"] == ("100", "each trained on 3.00 times")
    assert found["Held out"] == ("nothing", "success is measured on tasks that it learns from")
    assert found["Time on its device"] == ("not known", "no run like it was made in this project yet")
    assert "Disk" in found


@pytest.mark.parametrize(("every", "times"), [(12, 6), (13, 6), (60, 2), (61, 2), (1, 61)])
def test_held_out_tasks_are_played_before_between_and_after(
    project: Project, config: JobConfig, every: int, times: int
) -> None:
    config.evaluate.share, config.evaluate.every, config.evaluate.tasks, config.evaluate.samples = 0.5, every, 10, 3
    figure, note = shown(project, config)["Held out"]
    assert figure == "10 tasks"
    assert note == f"played {times} times ({times * 30:,} rollouts more), success within ±26 points"


def test_tasks_that_are_held_out_are_not_trained_on(project: Project, config: JobConfig, make_dataset: Any) -> None:
    config.evaluate.share, config.evaluate.every = 0.3, 10
    found = shown(project, config)
    held = int(found["Held out"][0].split()[0])
    assert 15 < held < 45 and found["Tasks"][0] == str(100 - held)
    config.evaluate.share, config.evaluate.data = 0, make_dataset(rows_of(40)).reference
    found = shown(project, config)
    assert found["Held out"][0] == "40 tasks" and found["Tasks"][0] == "100"


def test_the_time_is_that_of_the_newest_run_like_it(project: Project, config: JobConfig, make_run: Any) -> None:
    old = make_run(name="old", config=config, state="succeeded", attempt=1)
    timed(old, [50.0] * 9)
    new = make_run(name="new", config=config, state="cancelled", attempt=1)
    timed(new, [99.0] * 5 + [2.0] * STEPS_MEASURED)
    figure, note = shown(project, config)["Time on its device"]
    assert figure == "2 min 0 s" and note == "2 s a step, as the last 20 steps of “new”; without evaluations"
    config.rollout.prompts_per_step *= 2  # twice the rollouts
    assert shown(project, config)["Time on its device"][0] == "4 min 0 s"


def test_the_time_has_the_range_of_the_steps(project: Project, config: JobConfig, make_run: Any) -> None:
    timed(make_run(config=config, state="running", attempt=1), [1.0, 3.0] * 10)
    assert shown(project, config)["Time on its device"][0] == "2 min 0 s (1 min 0 s to 3 min 0 s)"


def test_one_step_in_ten_that_took_very_long_is_outside_of_the_range(
    project: Project, config: JobConfig, make_run: Any
) -> None:
    timed(make_run(config=config, state="running", attempt=1), [0.5, *[1.0] * 9, *[3.0] * 9, 900.0])
    assert shown(project, config)["Time on its device"][0].endswith("(1 min 0 s to 3 min 0 s)")


@pytest.mark.parametrize(("steps", "known"), [([2.0], False), ([2.0, 2.0], True)])
def test_two_steps_are_a_pace(
    project: Project, config: JobConfig, make_run: Any, steps: list[float], known: bool
) -> None:
    timed(make_run(config=config, state="running", attempt=1), steps)
    assert (shown(project, config)["Time on its device"][0] == "2 min 0 s") is known


@pytest.mark.parametrize(("others", "known"), [(7, True), (8, False)])
def test_the_newest_eight_runs_are_looked_at(
    project: Project, config: JobConfig, make_run: Any, others: int, known: bool
) -> None:
    timed(make_run(config=config, state="succeeded", attempt=1), [2.0] * 3)
    for _number in range(others):
        make_run(config=config, state="succeeded", attempt=1)  # which has measured no step
    assert (shown(project, config)["Time on its device"][0] == "2 min 0 s") is known


def test_an_imported_run_says_nothing_of_this_machine(project: Project, config: JobConfig, make_run: Any) -> None:
    timed(make_run(config=config, state="succeeded", attempt=1, imported=True), [2.0] * 3)
    assert shown(project, config)["Time on its device"][0] == "not known"


@pytest.mark.parametrize(
    ("steps", "rollouts", "words", "time"),
    [(1, "20", "1 step", "2 s"), (100_000, "2,000,000", "100,000 steps", "2 d 7 h")],
)
def test_the_plan_of_one_step_and_of_very_many(
    project: Project, config: JobConfig, make_run: Any, steps: int, rollouts: str, words: str, time: str
) -> None:
    timed(make_run(name="م" * 80, config=config, state="running", attempt=1), [2.0] * 3)
    config.run.max_steps = steps
    found = shown(project, config)
    assert found["Rollouts"] == (rollouts, f"{words} × 5 tasks × 4 tries")
    assert found["Time on its device"][0] == time
    assert "م" * 80 in found["Time on its device"][1]


def test_another_base_environment_method_or_project_says_nothing(
    project: Project, config: JobConfig, make_run: Any, make_environment: Any, charlie: User
) -> None:
    def like(**over: Any) -> Run:
        other = JobConfig.model_validate(config.model_dump() | over)
        run: Run = make_run(config=other, kind=other.kind, state="succeeded", attempt=1)
        timed(run, [2.0] * 3)
        return run

    like(model={"source": "run:gone"})
    like(environment={"name": make_environment().reference})
    like(kind="rloo")
    elsewhere = Project.objects.get(slug="elsewhere")
    timed(make_run(project=elsewhere, config=config, state="succeeded", attempt=1), [2.0] * 3)
    timed(make_run(config=config, state="succeeded", attempt=1), [2.0])  # one step is no pace
    like().delete()
    assert shown(project, config)["Time on its device"][0] == "not known"
    like()
    assert shown(project, config)["Time on its device"][0] == "2 min 0 s"


def test_other_methods_have_other_lines(project: Project, config: JobConfig) -> None:
    stages = [{"name": "a", "until_step": 20}, {"name": "b"}]
    parts = [{"name": name, "weight": 1.0, "environment": {"step_timeout_s": 9}} for name in "ab"]
    for several in ({"curriculum": {"stages": stages}}, {"mix": {"parts": parts}}):
        whole = JobConfig.model_validate(config.model_dump() | several)
        assert list(shown(project, whole)) == ["Rollouts", "Time on its device", "Disk"], "each has tasks of its own"
    config.kind = "evaluate"
    assert list(shown(project, config)) == ["Rollouts", "Time on its device", "Disk"]
    assert shown(project, config)["Rollouts"] == ("4 tries of each task", "")
    config.kind = "sft"
    assert shown(project, config)["Steps"] == ("60", "")


def test_a_form_without_data_has_the_plan_of_what_it_says(
    project: Project, bob: User, config: JobConfig, client_for: Clients
) -> None:
    sent = _data(project, config) | {"data.train": "", "run.max_steps": "7"}
    page = client_for(bob).post(reverse("run-plan", args=[project.slug]), sent).content.decode()
    assert ">140<" in page and "7 steps × 5 tasks × 4 tries" in page and "not known" in page


def test_the_tick_holds_out_in_the_plan_too(
    project: Project, bob: User, config: JobConfig, client_for: Clients
) -> None:
    address = reverse("run-plan", args=[project.slug])
    page = client_for(bob).post(address, _data(project, config, hold_out="on")).content.decode()
    assert "played 6 times" in page
    assert "played 6 times" not in client_for(bob).post(address, _data(project, config)).content.decode()


def test_wrong_options_are_named(project: Project, bob: User, config: JobConfig, client_for: Clients) -> None:
    sent = _data(project, config) | {"rollout.num_generations": "1"}
    page = client_for(bob).post(reverse("run-plan", args=[project.slug]), sent).content.decode()
    assert "The plan is shown once these options are correct:" in page and "at least 2 rollouts" in page


def test_only_members_see_it(
    project: Project, rita: User, charlie: User, config: JobConfig, client_for: Clients
) -> None:
    address = reverse("run-plan", args=[project.slug])
    assert client_for(rita).post(address, _data(project, config)).status_code == 200
    assert client_for(charlie).post(address, _data(project, config)).status_code == 404
    assert client_for(rita).get(address).status_code == 405


@pytest.mark.parametrize("ticked", [True, False])
def test_a_form_is_resolved_once(
    project: Project, config: JobConfig, bob: User, client_for: Clients, monkeypatch: pytest.MonkeyPatch, ticked: bool
) -> None:
    asked: list[JobConfig] = []

    def counted(*args: Any) -> Any:
        asked.append(args[1])
        return resolve(*args)

    for module in ("held_out", "memory_views"):
        monkeypatch.setattr(f"webapp.launch.{module}.resolve", counted)
    form = _data(project, config) | ({"hold_out": "on"} if ticked else {})
    for name in ("run-plan", "run-memory"):
        asked.clear()
        assert client_for(bob).post(reverse(name, args=[project.slug]), form).status_code == 200
        assert len(asked) == 1, name


@pytest.mark.parametrize("every", [0, 20])
def test_what_is_resolved_holds_out_what_the_config_does(project: Project, config: JobConfig, every: int) -> None:
    resolved = hold_out(project, config, every)
    assert config.evaluate.share > 0 and config.evaluate.every == (every or 12)
    assert resolved == resolve(project, config)
    assert hold_out(project, config) is None, "it says itself what it holds out"
    config = config.model_copy(deep=True, update={"evaluate": JobConfig().evaluate})
    config.data.train = "dataset:gone"
    assert hold_out(project, config) is None and config.evaluate.share == 0.1
