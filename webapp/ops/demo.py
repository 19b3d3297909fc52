"""The demo: data, rewards, an environment and two runs, made as pages make them, and followed on the console.

A tiny model is built from scratch, learns the form of tool calls from demonstrations (SFT), then learns by GRPO to make
the right ones. Everything here may be repeated: what exists already is used.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from django.conf import settings
from django.db import connection
from django.utils.translation import gettext as _

from training.config import JobConfig, Reference, RewardComponent
from training.presets import presets
from webapp.common.errors import DATABASE_AWAY
from webapp.datasets.models import Dataset, DatasetState
from webapp.engine.services import run_create
from webapp.environments.models import Environment
from webapp.environments.orders import OrderFailed, dataset_generate
from webapp.environments.services import environment_register
from webapp.launch.held_out import hold_out
from webapp.ops.console import Console
from webapp.people.teams.models import Project, User
from webapp.rewards.models import RewardSpec
from webapp.rewards.services import reward_spec_save
from webapp.runs.metrics.models import MetricPoint
from webapp.runs.models import Run
from webapp.runs.states import LEASED, TERMINAL, RunState

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
    grpo.model.source, grpo.data.train = "starter", tasks.reference
    grpo.environment.name, grpo.environment.url = environment.reference, ""
    grpo.rewards.spec, grpo.rewards.components = spec.reference, []
    hold_out(project, grpo)
    sft.sft.held_out_share = grpo.evaluate.share  # the same tasks, so that the warm-up does not learn them either
    grpo.model.source = str(Reference("run", WARM_UP))
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


# Follow runs on the console: one updating line on a terminal, a line every few seconds elsewhere.

LOOK_EVERY_S = 1.0
LINE_EVERY_S = 5.0
AWAY_LIMIT_S = 300.0
ENDED = TERMINAL | {RunState.PAUSED}
LOOK_AGAIN_S = 2.0


def run_line(run: Run) -> str:
    """One run in one line: name, state, step, reward or loss."""
    parts = [f"{run.name:<12} {RunState(run.state).label}"]
    if run.step:
        parts.append(_("step %(step)d/%(total)d") % {"step": run.step, "total": run.total_steps})
    elif run.state == RunState.QUEUED and run.after_id:
        parts.append(_("waits for %(name)s") % {"name": run.after.name if run.after else ""})
    if run.method.plays and run.last_reward is not None:
        parts.append(_("reward %(value).3f") % {"value": run.last_reward})
    elif (loss := _newest_value(run, "loss")) is not None:
        parts.append(_("loss %(value).3f") % {"value": loss})
    return "  " + " · ".join(parts)


def _newest_value(run: Run, name: str) -> float | None:
    points = MetricPoint.objects.filter(run=run, name=name).order_by("-step", "-attempt")
    return points.values_list("value", flat=True).first()


def _first_and_last_reward(run: Run, share: float = 0.1) -> tuple[float, float] | None:
    """Mean reward of the first and of the last tenth of the steps."""
    values = list(MetricPoint.objects.filter(run=run, name="reward").order_by("step").values_list("value", flat=True))
    count = max(1, int(len(values) * share))
    return (sum(values[:count]) / count, sum(values[-count:]) / count) if values else None


@dataclass
class _Shown:
    """The lines that the console has shown."""

    lines: dict[object, str] = field(default_factory=dict)
    at: float = 0.0


def follow(runs: Sequence[Run], console: Console) -> None:
    """Print until all have ended or paused. If the database is away, wait for it, at most ``AWAY_LIMIT_S``."""
    shown, away_since = _Shown(), 0.0
    while True:
        try:
            if _print_news(runs, console, shown):
                return
            away_since = 0.0
        except DATABASE_AWAY:
            connection.close()
            if not away_since:
                away_since = time.monotonic()
                _print_line("  " + _("The database does not answer; looking again every few seconds."), console)
            elif time.monotonic() - away_since > AWAY_LIMIT_S:
                _print_line(
                    "  " + _("The database is still unreachable. The pages show how the runs continued."), console
                )
                return
        time.sleep(LOOK_AGAIN_S if away_since else LOOK_EVERY_S)


def _print_news(runs: Sequence[Run], console: Console, shown: _Shown) -> bool:
    """Read the runs and print what is new. Returns whether all have ended or paused."""
    for run in runs:
        run.refresh_from_db()
    open_runs = [run for run in runs if run.state not in ENDED]
    for run in runs:
        state = f"{run.pk}-{run.state}"
        if state not in shown.lines and (run.state in ENDED or not console.tty):
            line = run_line(run)
            _print_end(run, console) if run.state in ENDED else _print_line(line, console)
            shown.lines[state], shown.lines[run.pk] = "", line
    if not open_runs:
        return True
    active = next((run for run in open_runs if run.state in LEASED), open_runs[0])
    line = run_line(active)
    if console.tty:
        console.update(line)
    elif time.monotonic() - shown.at >= LINE_EVERY_S and shown.lines.get(active.pk) != line:
        console.line(line)
        shown.lines[active.pk], shown.at = line, time.monotonic()
    return False


def _print_line(text: str, console: Console) -> None:
    if console.tty:
        console.update("")
    console.line(text)


def _print_end(run: Run, console: Console) -> None:
    text = run_line(run)
    if (
        run.state == RunState.SUCCEEDED
        and run.method.learns_from == "rollouts"
        and (found := _first_and_last_reward(run))
    ):
        text += " · " + _("reward rose from %(first).2f to %(last).2f") % {"first": found[0], "last": found[1]}
    if run.error:
        text += f"\n    {run.error.get('message', '')} {run.error.get('hint', '')}"
    _print_line(text, console)
