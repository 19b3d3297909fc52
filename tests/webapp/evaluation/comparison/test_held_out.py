"""Runs that train are compared by the tasks that they held out, as they played them last."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

import pytest
from django.test import Client

from tests.evaluations import COMPONENTS, play
from training.config import JobConfig
from webapp.datasets.models import Dataset
from webapp.evaluation.comparison.contestants import contestants_of
from webapp.evaluation.comparison.rewards import evaluations, offer_of
from webapp.evaluation.comparison.tasks import played_tasks
from webapp.evaluation.comparison.verdicts import conclusions
from webapp.people.teams.models import Project, User
from webapp.runs.models import Run
from webapp.runs.rollouts.models import Rollout
from webapp.runs.states import RunState

pytestmark = pytest.mark.django_db
Trained = Callable[..., Run]
FIRST, LAST = 10, 20
SUCCESS: Callable[[float], dict[str, float]] = lambda success: {"env_success": success}  # noqa: E731


@pytest.fixture
def trained(make_run: Callable[..., Run], tasks: Dataset) -> Trained:
    """``trained(name, {task: [success, …]})``: it played these held-out tasks after steps 10 and 20, with all of them
    failed at first, and trained on task 0 in between."""

    def make(
        name: str,
        last: Mapping[int, Sequence[float | None]],
        *,
        dataset: Dataset = tasks,
        health: dict[str, Any] | None = None,
        state: str = RunState.SUCCEEDED,
        data: Dataset | None = None,
        **options: Any,
    ) -> Run:
        plain = JobConfig.model_validate({"evaluate": {"every": 10, "share": 0.5}} | options).model_dump(mode="json")
        plain["data"]["train"], plain["rewards"]["components"] = dataset.reference, list(COMPONENTS)
        resolved = plain | {"data": plain["data"] | {"train": str(dataset.rows_path)}}
        if data is not None:
            plain["evaluate"]["data"] = data.reference
            resolved = resolved | {"evaluate": plain["evaluate"] | {"share": 0.0, "data": str(data.rows_path)}}
        run = make_run(name=name, config=plain, state=state, attempt=1)
        newest = {"step": LAST, "success": 0.5, "low": 0.1, "high": 0.9}
        Run.objects.filter(pk=run.pk).update(
            resolved=resolved, health={"held_out": {"newest": newest}} if health is None else health
        )
        for task, successes in last.items():
            for index, success in enumerate(successes):
                moved(play(run, task, 10 + index, 0.0, SUCCESS), FIRST, index, held_out=True)
                moved(play(run, task, 20 + index, success, SUCCESS), LAST, index, held_out=True)
        for index in range(4):
            moved(play(run, 0, 30 + index, 1.0, SUCCESS), LAST, index, held_out=False, group=90)
        run.refresh_from_db()
        return run

    return make


def moved(rollout: Rollout, step: int, index: int, **fields: Any) -> None:
    Rollout.objects.filter(pk=rollout.pk).update(step=step, index=index, **fields)


def compared(project: Project, *runs: Run, spec: str = "") -> Any:
    contestants, _notes = contestants_of(project, [str(run.pk) for run in runs])
    read = evaluations(project, contestants, spec)
    return contestants, read, conclusions(contestants, read)[0]


MANY = {task: [1.0] for task in range(20)}
NONE = {task: [0.0] for task in range(20)}


def test_the_tasks_that_were_held_out_last_decide(trained: Trained, project: Project) -> None:
    good, bad = trained("good", MANY), trained("bad", NONE)
    contestants, read, answer = compared(project, good, bad)
    assert [item.step for item in contestants] == [LAST, LAST]
    assert [found["success"].value for found in read.numbers.intervals] == [1.0, 0.0]
    assert [len(sheet.tasks) for sheet in read.numbers.sheets] == [20, 20], "what was trained on is not among them"
    assert answer.kind == "better" and answer.text.startswith("good is better: +100 points")
    assert answer.left_out == [
        f"By the tasks that they held out, as they were played last: good after step {LAST}, bad after step {LAST}."
    ]


def test_it_is_compared_with_an_evaluation_of_the_same_data(
    trained: Trained, evaluation: Callable[..., Run], project: Project
) -> None:
    """The base model played all four tasks, the run held two of them out: two are compared."""
    run, base = trained("run", {0: [1.0], 1: [1.0]}), evaluation("base", {task: [0.0] for task in range(4)})
    _contestants, read, answer = compared(project, run, base)
    assert read.numbers.pairs[0, 1].tasks == 2 and read.numbers.pairs[0, 1].alone == 2
    assert any("run after step 20" in sentence and "base" not in sentence for sentence in answer.left_out)
    assert any("2 tasks are left out" in sentence for sentence in answer.left_out)


@pytest.mark.parametrize(
    "over",
    [
        {"health": {}},
        {"health": {"held_out": {"tasks": 4, "newest": None}}},
        {"health": {"held_out": {"tasks": 4}}},
        {"drawn": True},
        {"mix": True},
    ],
)
def test_without_them_it_is_left_out(
    over: dict[str, Any], trained: Trained, project: Project, make_dataset: Callable[..., Dataset]
) -> None:
    good = trained("good", MANY)
    other = trained("other", MANY, **({"health": over["health"]} if "health" in over else {}))
    resolved = other.resolved
    if "drawn" in over:
        resolved = resolved | {"data": resolved["data"] | {"train": ""}}
    if "mix" in over:
        parts = [{"name": "a", "environment": "x"}, {"name": "b", "environment": "y"}]
        resolved = resolved | {"mix": {"parts": parts}}
    Run.objects.filter(pk=other.pk).update(resolved=resolved)
    contestants, read, answer = compared(project, good, other)
    assert [item.measured for item in contestants] == [True, False] and read.playing == contestants[:1]
    assert answer.kind == "nothing" and "only good is an evaluation or has played held-out tasks" in answer.text
    assert contestants[1].played is None


def test_other_held_out_data_is_other_tasks(
    trained: Trained, project: Project, make_dataset: Callable[..., Dataset]
) -> None:
    """Row 1 of two datasets is two tasks; the same held-out dataset is the same task whatever was trained on."""
    held = make_dataset([{"messages": [{"role": "user", "content": f"held {n}"}]} for n in range(4)], name="held")
    other = make_dataset(name="other")
    first = trained("first", {0: [1.0], 1: [1.0]}, data=held)
    second = trained("second", {0: [0.0], 1: [0.0]}, data=held, dataset=other)
    third = trained("third", {0: [0.0], 1: [0.0]})
    contestants, read, _answer = compared(project, first, second, third)
    assert set(read.numbers.pairs) == {(0, 1)}
    assert [str(dataset) for dataset in read.numbers.datasets] == [str(held), str(held), "tasks@1"]
    assert [item.data for item in contestants][:2] == [str(held.rows_path)] * 2


def test_one_that_still_trains_is_not_final_and_its_tasks_are_not_missing(trained: Trained, project: Project) -> None:
    run, other = trained("run", MANY, state=RunState.RUNNING), trained("other", NONE)
    _contestants, read, answer = compared(project, run, other)
    assert "Not final, because not ended: run." in answer.left_out
    assert not any("is not done" in sentence for sentence in answer.left_out) and read.numbers.sheets[0].missing == 0


def test_a_task_shows_its_held_out_tries(trained: Trained, project: Project) -> None:
    """Task 0 was trained on too, by a group of four."""
    run = trained("run", {0: [1.0, 0.0], 1: [None]})
    contestants, _read, _answer = compared(project, run, trained("other", {0: [0.0], 1: [0.0]}))
    found = played_tasks(contestants, 0, 0)
    assert [[(item.step, item.held_out, item.index) for item in each.tries] for each in found] == [
        [(LAST, True, 0), (LAST, True, 1)],
        [(LAST, True, 0)],
    ]
    assert found[0].turns[1]["messages"][0]["content"] == "solved"


def test_scoring_again_is_offered_for_evaluations_alone(
    trained: Trained, evaluation: Callable[..., Run], project: Project, make_reward_spec: Callable[..., Any]
) -> None:
    spec = make_reward_spec(components=[{"name": "length_limit", "weight": 1.0, "params": {"max_tokens": 5}}])
    run, base = trained("run", {0: [1.0]}), evaluation("base", {0: [0.0], 1: [1.0]})
    _contestants, read, _answer = compared(project, run, base, spec=spec.reference)
    offer = offer_of(project, read)
    assert offer is not None and offer.rollouts == 2
    _contestants, alone, _answer = compared(project, run, trained("other", {0: [1.0]}), spec=spec.reference)
    assert offer_of(project, alone) is None


def test_the_page_names_the_step_and_offers_no_suite(
    trained: Trained, project: Project, alice: User, client_for: Callable[..., Client]
) -> None:
    runs = trained("good", MANY), trained("bad", NONE)
    page = client_for(alice).get(f"/p/{project.slug}/compare/?" + urlencode([("c", str(run.pk)) for run in runs]))
    text = page.content.decode()
    assert page.status_code == 200 and "good is better: +100 points" in text
    assert text.count(f"held-out tasks after step {LAST}") >= 2
    assert "Blind vote" in text and "Make a suite" not in text and 'id="no-figures"' not in text
