"""A run that trains, with rollouts whose turns and parts the tests say."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from django.utils import timezone

from training.config import JobConfig
from webapp.datasets.models import Dataset
from webapp.runs.models import Run
from webapp.runs.rollouts.figures import decide, judge_functions
from webapp.runs.rollouts.models import Rollout, Turn

SPEC = [
    {"name": "task_success", "weight": 0.6},
    {"name": "tool_necessity", "weight": 0.4},
]
ASKED = {"role": "user", "content": "What is 9 * 5?"}
CALLED = {
    "role": "assistant",
    "content": "Let me see.",
    "tool_calls": [{"id": "0", "name": "calculator", "arguments": {"expression": "9 * 5"}}],
}
ANSWERED = {"role": "tool", "content": "45", "tool_call_id": "0", "name": "calculator"}
SAID = {"role": "assistant", "content": "It is 45."}
TALK = (ASKED, CALLED, ANSWERED, SAID)


@pytest.fixture
def tasks(make_dataset: Callable[..., Dataset]) -> Dataset:
    """Six tasks, of two categories, whose rows say what is expected."""
    lines = [
        {
            "messages": [{"role": "user", "content": f"What is {n} * 5?"}],
            "answer": {"contains": [str(5 * n)], "tools": ["calculator"]},
            "category": "even" if n % 2 == 0 else "odd",
        }
        for n in range(6)
    ]
    return make_dataset(lines, name="products")


@pytest.fixture
def trained(make_run: Callable[..., Run], tasks: Dataset) -> Callable[..., Run]:
    """``trained(**options)``: a GRPO run over the tasks; options are groups of its config."""

    def make(*, name: str = "first-grpo", components: Sequence[dict[str, Any]] = SPEC, **options: Any) -> Run:
        groups = {"kind": "grpo", "rollout": {"num_generations": 4}, "run": {"seed": 7}} | options
        config = JobConfig.model_validate(groups).model_dump(mode="json")
        config["data"]["train"] = tasks.reference
        config["rewards"]["components"] = list(components)
        run = make_run(name=name, config=config, state="succeeded", attempt=1)
        resolved = config | {"data": config["data"] | {"train": str(tasks.rows_path)}}
        Run.objects.filter(pk=run.pk).update(resolved=resolved, step=9)
        run.refresh_from_db()
        return run

    return make


@pytest.fixture
def play() -> Callable[..., Rollout]:
    """``play(run, step, group, index, **fields)``: a rollout; ``talk`` are its messages, one a turn."""

    def make(
        run: Run, step: int = 1, group: int = 0, index: int = 0, *, talk: Sequence[dict[str, Any]] = (), **fields: Any
    ) -> Rollout:
        known: dict[str, Any] = {
            "attempt": 1,
            "row": 0,
            "task": "What is 0 * 5?",
            "status": "completed",
            "turns": sum(message["role"] == "assistant" for message in talk),
            "started_at": timezone.now(),
            "seq": 0,
        }
        if "success" in fields:
            fields["env_parts"] = {"task_success": fields.pop("success")}
        rollout = Rollout(run=run, step=step, group=group, index=index, **known | fields)
        decide(rollout, judge_functions(run))
        rollout.save(force_insert=True)
        Turn.objects.bulk_create(
            Turn(rollout=rollout, run=run, number=at, messages=[message], seconds=0.25, tokens=3, seq=0)
            for at, message in enumerate(talk)
        )
        return rollout

    return make
