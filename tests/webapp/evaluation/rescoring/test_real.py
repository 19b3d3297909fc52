"""Recorded and computed values of the same component are the same numbers, on what the real trainer recorded."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.chat_stub import Stub, call, says
from tests.webapp.endpoints.conftest import make_endpoint, stub
from tests.working import done
from training.config import JobConfig, RewardComponent
from webapp.engine.services import run_create
from webapp.engine.supervisor import supervise
from webapp.evaluation.comparison.rewards import rescore
from webapp.evaluation.rescoring.columns import column_key, columns_of
from webapp.evaluation.rescoring.models import ComputedColumn, RescoringState
from webapp.people.teams.models import Project, User
from webapp.runs.models import Run
from webapp.runs.rollouts.models import Rollout
from webapp.runs.states import RunState

__all__ = ["make_endpoint", "stub"]
ROWS = [
    {
        "messages": [{"role": "user", "content": f"What is {n} + 1? Use the calculator. 请用计算器。"}],
        "answer": {"contains": [str(n + 1)]},
        "sum": str(n + 1),
        "category": "even" if n % 2 == 0 else "odd",
    }
    for n in range(4)
]
COMPONENTS: list[dict[str, Any]] = [
    {"name": "task_success", "weight": 1.0},
    {"name": "tool_call_correctness", "weight": 0.3},
    {"name": "tool_necessity", "weight": 0.2},
    {"name": "result_use", "weight": 0.1},
    {"name": "final_answer", "weight": 0.1},
    {"name": "coherence", "weight": 0.1},
    {"name": "numeric_match", "weight": 0.5, "params": {"truth_field": "sum"}, "categories": ["even"]},
    {"name": "length_budget", "weight": 0.1},
    {"name": "tool_call_budget", "weight": 0.1},
    {"name": "repetition", "weight": 0.1},
    {"name": "language", "weight": 0.1},
]


def calls(expression: str) -> tuple[int, bytes, dict[str, str]]:
    """An answer that calls the calculator."""
    wanted = call("")
    wanted["function"] = {"name": "calculator", "arguments": json.dumps({"expression": expression})}
    return says(None, "tool_calls", tool_calls=[wanted])


@pytest.fixture
def played(
    project: Project,
    alice: User,
    stub: Stub,
    make_endpoint: Any,
    make_dataset: Any,
    make_environment: Any,
    tools_server: str,
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[[], Run]:
    """An evaluation that a worker has seen through: calls, answers right and wrong, errors of tools, mere talk."""
    make_endpoint()
    monkeypatch.setattr("webapp.engine.history._send_message", lambda row: False)
    data, place = make_dataset(ROWS, name="sums"), make_environment()
    stub.replies = [
        calls("0 + 1"), says("The answer is 1."), calls("1 +"), says("It is 2, I think. 大概是2。"), says("No idea."),
        calls("2 + 1"), calls("2 + 1"), says(""), says("4 4 4 4 4 4 4 4"), calls("3 + 1"), says("So it is 4."),
        says("The answer is 3."),
    ]  # fmt: skip

    def play() -> Run:
        config = JobConfig.model_validate(
            {
                "kind": "evaluate",
                "model": {"source": "endpoint:gpt"},
                "data": {"train": data.reference},
                "environment": {"name": place.reference},
                "rollout": {"prompts_per_step": 1, "num_generations": 2, "max_turns": 3},
                "rewards": {"components": COMPONENTS},
                "evaluate": {"replays": 0},
            }
        )
        run = run_create(project=project, user=alice, name="real", config=config)
        supervise(run.pk, run.pool)
        run.refresh_from_db()
        assert run.state == RunState.SUCCEEDED, run.error
        return run

    return play


@pytest.mark.django_db(transaction=True)
def test_what_a_run_recorded_is_computed_again_to_the_same_numbers(
    played: Callable[[], Run], project: Project, bob: User, make_reward_spec: Any
) -> None:
    run = played()
    recorded = dict(Rollout.objects.filter(run=run).exclude(status="excluded").values_list("pk", "parts"))
    assert len(recorded) == 8
    spread = {item["name"]: {parts.get(item["name"]) for parts in recorded.values()} for item in COMPONENTS}
    assert sum(len(values) > 1 for values in spread.values()) >= 6  # equal numbers would prove little
    # From now on the run is one that recorded something else.
    run.resolved["rewards"]["components"] = [
        {"name": "other", "function": "coherence", "weight": 1.0, "categories": []}
    ]
    Run.objects.filter(pk=run.pk).update(resolved=run.resolved)
    Rollout.objects.filter(run=run).update(parts={})
    spec = make_reward_spec(name="all", components=[item for item in COMPONENTS if item["name"] != "coherence"])
    made = rescore(project=project, user=bob, runs=[str(run.pk)], spec=spec.reference, confirmed=False)
    assert done(made).state == RescoringState.DONE
    components = [RewardComponent.model_validate(item) for item in COMPONENTS if item["name"] != "coherence"]
    columns = columns_of(run, components)
    assert len(columns) == len(components) == ComputedColumn.objects.count()
    for item in components:
        marks = columns[column_key(item)].marks
        computed = {pk: marks[pk].value for pk in recorded}
        assert computed == {pk: parts.get(item.name) for pk, parts in recorded.items()}, item.name
        assert all(mark.reason is None for mark in marks.values())
