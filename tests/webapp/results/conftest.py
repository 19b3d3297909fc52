"""A model with a past: a base of Hugging Face, an SFT run on a first dataset, and a GRPO run from that run's model. And
ended runs with figures."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

import pytest
from django.utils import timezone

from training.config import JobConfig
from webapp.datasets.models import Dataset
from webapp.environments.models import Environment
from webapp.people.teams.models import Project
from webapp.rewards.models import RewardSpec
from webapp.runs.metrics.models import MetricPoint
from webapp.runs.models import Attempt, Run, RunEvent
from webapp.runs.registry.models import Checkpoint, ModelKind, RegisteredModel
from webapp.runs.states import RunState

COMMIT = "c1899de289a04d12100db370d81485cdf75e47ca"
COMPONENTS = [{"name": "env_success", "weight": 1.0, "params": {}}, {"name": "coherence", "weight": 0.25}]


class Past(NamedTuple):
    """What the fixture made."""

    model: RegisteredModel
    warm: Run
    grpo: Run
    chats: Dataset
    tasks: Dataset
    spec: RewardSpec
    place: Environment


def _demonstration(number: int) -> dict[str, Any]:
    turns = [("user", f"Say hello to guest {number}."), ("assistant", "Hello!")]
    return {"messages": [{"role": role, "content": text} for role, text in turns]}


def _task(number: int) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": f"Add 3 to {number}."}], "answer": str(number + 3)}


@pytest.fixture
def trained(make_run: Callable[..., Run]) -> Callable[..., Run]:
    """``trained(name, options, resolved, …)``: a run that ended, with the references that it was given."""

    def make(name: str, options: dict[str, Any], resolved: dict[str, Any], **over: Any) -> Run:
        config = JobConfig.model_validate(options).model_dump(mode="json")
        meant = json.loads(json.dumps(config))
        for path, value in resolved.items():
            group, _dot, option = path.partition(".")
            meant[group][option] = value
        now = timezone.now()
        fields = {"state": RunState.SUCCEEDED, "started_at": now - timedelta(minutes=90), "finished_at": now}
        return make_run(name=name, config=config, resolved=meant, attempt=1, **(fields | over))

    return make


@pytest.fixture
def saved(project: Project) -> Callable[..., Checkpoint]:
    """``saved(run, step, final)``: a checkpoint with files."""

    def make(run: Run, step: int, *, final: bool = True, files: dict[str, bytes] | None = None) -> Checkpoint:
        path = "1/model" if final else f"1/checkpoint-{step}"
        checkpoint = Checkpoint.objects.create(
            project=project, run=run, attempt=1, step=step, path=path, bytes=3_000_000, final=final, seq=1,
            created_at=timezone.now(),
        )  # fmt: skip
        checkpoint.folder.mkdir(parents=True)
        for name, content in (files or {"config.json": b"{}", "model.safetensors": b"weights"}).items():
            (checkpoint.folder / name).write_bytes(content)
        return checkpoint

    return make


@pytest.fixture
def past(
    project: Project,
    trained: Callable[..., Run],
    saved: Callable[..., Checkpoint],
    make_dataset: Callable[..., Dataset],
    make_reward_spec: Callable[..., RewardSpec],
    make_environment: Callable[..., Environment],
) -> Past:
    """The model and all that it was made of."""
    chats = make_dataset([_demonstration(number) for number in range(3)], name="chats")
    tasks = make_dataset([_task(number) for number in range(12)], name="arithmetic", version=3)
    make_reward_spec(name="tool-calling", version=1, components=COMPONENTS[:1])
    spec = make_reward_spec(name="tool-calling", version=2, components=COMPONENTS)
    place = make_environment(name="tools")
    base = {"source": "Qwen/Qwen3-0.6B"}
    warm = trained(
        "warm-up",
        {"kind": "sft", "model": base, "data": {"train": "dataset:chats@1"}, "run": {"max_steps": 40}},
        {"data.train": str(chats.rows_path)},
        step=40,
    )
    attempt = {
        "number": 1,
        "device": "NVIDIA H200",
        "versions": {"trl": "1.2.0"},
        "resolved": {"model.revision": COMMIT},
    }
    RunEvent.objects.create(run=warm, seq=1, kind="attempt", payload=attempt, at=timezone.now())
    left = saved(warm, 40)
    grpo = trained(
        "first-grpo",
        {
            "model": {"source": "run:warm-up"},
            "data": {"train": "dataset:arithmetic@3"},
            "rewards": {"spec": "reward:tool-calling@2"},
            "environment": {"name": "environment:tools"},
            "run": {"max_steps": 60},
        },
        {
            "model.source": str(left.folder),
            "data.train": str(tasks.rows_path),
            "rewards.spec": "",
            "rewards.components": COMPONENTS,
        },
        step=60,
        environment_version="1.4.2",
    )
    MetricPoint.objects.bulk_create(
        MetricPoint(run=grpo, attempt=1, step=step, name="rollouts/task_success", value=value, seq=step)
        for step, value in ((1, 0.16), (60, 0.84))
    )
    model = RegisteredModel.objects.create(
        project=project, name="tool caller", kind=ModelKind.RUN, checkpoint=saved(grpo, 60)
    )
    return Past(model, warm, grpo, chats, tasks, spec, place)


Ended = Callable[..., Run]


def points(run: Run, name: str, values: Sequence[float], attempt: int = 1, first: int = 1) -> None:
    """A figure of the steps from ``first`` on."""
    MetricPoint.objects.bulk_create(
        MetricPoint(run=run, attempt=attempt, step=step, name=name, value=value, seq=1)
        for step, value in enumerate(values, start=first)
    )


@pytest.fixture
def ended(make_run: Any) -> Ended:
    """``ended(success=…, reward=…, **fields)``: a run that succeeded after 300 s on a CPU."""

    def make(*, success: Sequence[float] = (), reward: Sequence[float] = (), **over: Any) -> Run:
        steps = max(len(success), len(reward))
        fields = {"name": "first", "state": RunState.SUCCEEDED, "attempt": 1, "step": steps, "total_steps": steps}
        run: Run = make_run(**(fields | over))
        now = timezone.now()
        Attempt.objects.create(
            run=run, number=1, owner="w", started_at=now - timedelta(seconds=300), ended_at=now, last_step=steps
        )
        run.events.create(seq=1, attempt=1, kind="attempt", payload={"number": 1, "owner": "w"}, at=now)
        run.events.create(seq=2, attempt=1, kind="attempt", payload={"number": 1, "device": "cpu"}, at=now)
        points(run, "rollouts/task_success", success)
        points(run, "reward", reward)
        return run

    return make
