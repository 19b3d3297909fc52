"""The demo: data, rewards, an environment and two runs, made through the same services as the pages use.

A tiny model is built from scratch, learns the form of tool calls from demonstrations (SFT), then learns by GRPO to make
the right ones. Everything here may be repeated: what exists already is used.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from django.conf import settings

from training.config import JobConfig, Reference, RewardComponent
from training.presets import presets
from webapp.datasets.models import Dataset, DatasetState
from webapp.engine.services import run_create
from webapp.environments.generate import OrderFailed, dataset_generate
from webapp.environments.models import Environment
from webapp.environments.services import environment_register
from webapp.people.teams.models import Project, User
from webapp.rewards.models import RewardSpec
from webapp.rewards.services import reward_spec_save
from webapp.runs.models import Run

SFT_PRESET, GRPO_PRESET = "tools-demo-sft", "tools-demo-grpo"
DEMONSTRATIONS, TASKS = 3000, 256  # all different, of the 336 that there are
# Most demonstrations of the warm-up are careless, so that GRPO has something to correct within a minute.
CARELESS = ("--careless", "0.75")
WARM_UP, GRPO = "warm-up", "first-grpo"
CHECK_LIMIT_S = 180
USABLE = (DatasetState.READY, DatasetState.CHECKING)


class DemoError(RuntimeError):
    """The demo could not be made; the message says at which step."""


class Demo(NamedTuple):
    """The two runs."""

    warm_up: Run
    grpo: Run


def demo_create(*, project: Project, user: User, say: Callable[[str], None] = lambda text: None) -> Demo:
    """Make the missing parts of the demo, and return its runs."""
    demonstrations = _demo_dataset(project, user, "tool-demonstrations", "demonstrations", DEMONSTRATIONS, CARELESS)
    tasks = _demo_dataset(project, user, "tool-tasks", "tasks", TASKS)
    environment = _tools_environment(project, user)
    grpo, needs = presets()[GRPO_PRESET].config_for("full"), presets()[GRPO_PRESET].needs_for("full")
    spec = _reward_spec(project, user, list(needs.reward.components) if needs.reward else [])
    for dataset in (demonstrations, tasks):
        _wait_checked(dataset)
    say(f"{demonstrations.rows} demonstrations, {tasks.rows} tasks, {len(spec.components)} reward components")
    sft = presets()[SFT_PRESET].config_for("full")
    sft.model.source, sft.data.train = "starter", demonstrations.reference
    grpo.model.source, grpo.data.train = str(Reference("run", WARM_UP)), tasks.reference
    grpo.environment.name, grpo.environment.url = environment.reference, ""
    grpo.rewards.spec, grpo.rewards.components = spec.reference, []
    return Demo(_demo_run(project, user, WARM_UP, sft), _demo_run(project, user, GRPO, grpo))


def _demo_dataset(
    project: Project, user: User, name: str, command: str, count: int, options: tuple[str, ...] = ()
) -> Dataset:
    found = Dataset.objects.filter(project=project, name=name, state__in=USABLE).order_by("-version").first()
    if found is not None:
        return found
    words = ["--difficulty", "starter", "--count", str(count), *options]
    try:
        return dataset_generate(project=project, user=user, name=name, program="tools", command=command, words=words)
    except OrderFailed as exc:
        raise DemoError(f"`envs.tools {command}` failed: {exc.message}") from exc


def _wait_checked(dataset: Dataset) -> None:
    """The worker checks it in a process of its own; this takes seconds."""
    deadline = time.monotonic() + CHECK_LIMIT_S
    while dataset.state == DatasetState.CHECKING:
        if time.monotonic() > deadline:
            raise DemoError(f"Dataset {dataset} has not been checked within {CHECK_LIMIT_S} s; see worker-short.log.")
        time.sleep(0.2)
        dataset.refresh_from_db()
    if dataset.state != DatasetState.READY:
        raise DemoError(f"Dataset {dataset} is {dataset.state}: {str(dataset.report)[:500]}")


def _tools_environment(project: Project, user: User) -> Environment:
    found = Environment.objects.filter(project=project, name="tools").first()
    return found or environment_register(project=project, user=user, name="tools", url=settings.TOOLS_URL)


def _reward_spec(project: Project, user: User, components: list[RewardComponent]) -> RewardSpec:
    return reward_spec_save(project=project, user=user, name="tool-calling", components=components)


def _demo_run(project: Project, user: User, name: str, config: JobConfig) -> Run:
    found = Run.objects.filter(project=project, name=name).first()
    return found or run_create(project=project, user=user, name=name, config=config)
