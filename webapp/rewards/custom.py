"""A reward in Python that is being written: the episodes that it is tested on, examples, and the test in a sandbox."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from contextlib import closing
from itertools import islice
from typing import Any, NamedTuple
from uuid import UUID

from django.core.exceptions import ValidationError
from django.db.models import QuerySet
from django.urls import reverse
from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from pydantic import ValidationError as ShapeError

from training.data import read_records
from training.errors import DataError
from training.rewards.base import Episode
from training.rewards.custom import CustomParams, Runner
from webapp.common.text import in_words
from webapp.datasets.models import Dataset
from webapp.people.teams.models import Project
from webapp.rewards.cases import cases_of, episode_of_case
from webapp.rewards.pasted import pasted_episodes
from webapp.runs.config import config_at, stage_at
from webapp.runs.models import Run
from webapp.runs.rollouts.models import Rollout, RolloutStatus
from webapp.runs.rollouts.selectors import episodes_of

# --- Sources --------------------------------------------------------------------------------------------------------
# The episodes that code is tested on: rollouts of a run, the project's reward cases, or pasted ones.

MAX_SAMPLES = 50
MAX_ROWS_READ = 100_000
RUNS_OFFERED = 30


class Sample(NamedTuple):
    """One episode with a name, and the address of its page."""

    label: str
    url: str
    episode: Episode


def runs_offered(project: Project) -> QuerySet[Run]:
    """Runs with finished rollouts, newest first."""
    finished = Rollout.objects.filter(run__project=project, finished_at__isnull=False).values("run")
    return Run.objects.filter(project=project, pk__in=finished).order_by("-created_at")[:RUNS_OFFERED]


def samples_of(project: Project, source: str, pasted: str) -> list[Sample]:
    """The episodes that a form's source names. Raises ``ValidationError`` by field where there are none."""
    if source == "pasted":
        return [
            Sample(_("Pasted %(n)s") % {"n": n}, "", item) for n, item in enumerate(_pasted_episodes(pasted), start=1)
        ]
    if source == "cases":
        found = _case_samples(project)
        missing = _("This project has no reward test cases yet.")
    else:
        found = _samples_of_run(project, source.removeprefix("run:"))
        missing = _("This run has no finished rollouts.")
    if not found:
        raise ValidationError({"source": missing})
    return found


def _pasted_episodes(text: str) -> list[Episode]:
    try:
        return pasted_episodes(text)
    except ValidationError as exc:
        raise ValidationError({"pasted": exc.messages}) from exc


def _case_samples(project: Project) -> list[Sample]:
    found = []
    for case in cases_of(project)[:MAX_SAMPLES]:
        try:
            found.append(Sample(case.name, "", episode_of_case(case)))
        except ShapeError:
            continue  # the page of the cases says that it cannot be read
    return found


def _samples_of_run(project: Project, raw: str) -> list[Sample]:
    try:
        run = Run.objects.filter(project=project, pk=UUID(raw)).first()
    except ValueError:
        run = None
    if run is None:
        raise ValidationError({"source": _("There is no such run in this project.")})
    ended = (RolloutStatus.COMPLETED, RolloutStatus.TRUNCATED)
    done = Rollout.objects.filter(run=run, status__in=ended, held_out=False)
    newest = list(done.order_by("-attempt", "-step", "group", "index")[:MAX_SAMPLES])
    newest = [
        item
        for item in newest
        if (stage_at(run, item.step), item.part) == (stage_at(run, newest[0].step), newest[0].part)
    ]
    rows = rows_at(run, newest)
    address = reverse("run-detail", args=[project.slug, run.pk])
    return [Sample(str(item), f"{address}?tab=rollouts", episode) for item, episode in episodes_of(newest, rows)]


def rows_at(run: Run, rollouts: Sequence[Rollout]) -> dict[int, dict[str, Any]]:
    """The rows of the dataset that these rollouts of one stage or part played, by place; empty where it is gone."""
    wanted = {item.row for item in rollouts if item.row is not None}
    config = config_at(run, rollouts[0].step, rollouts[0].part) if run.resolved and wanted else None
    train = config.data.train if config is not None else None
    dataset = next((item for item in Dataset.objects.filter(project=run.project) if str(item.rows_path) == train), None)
    if not wanted or dataset is None or not dataset.rows_path.is_file():
        return {}
    last = min(max(wanted) + 1, MAX_ROWS_READ)
    try:
        records = enumerate(islice(read_records(dataset.rows_path), last))
        return {place: record.row.raw for place, record in records if place in wanted and record.row is not None}
    except DataError:
        return {}


# --- Examples -------------------------------------------------------------------------------------------------------
# Short pieces of code to start from. Their comments are in the reader's language.


class Example(NamedTuple):
    """One example: its name in addresses, its title, a comment, and code with a placeholder for the comment."""

    key: str
    title: Promise | str
    comment: Promise | str
    body: str

    @property
    def code(self) -> str:
        """The code with its comment."""
        return f"# {self.comment}\n{self.body}"


EXAMPLES = (
    Example(
        "contains",
        gettext_lazy("The answer contains the truth"),
        gettext_lazy("1 if the final answer contains the row's answer, else 0."),
        """def reward(episode):
    truth = str(episode["row"].get("answer", "")).strip()
    return 1.0 if truth and truth in episode["final_answer"] else 0.0
""",
    ),
    Example(
        "errors",
        gettext_lazy("Few failed tool calls"),
        gettext_lazy("The share of tool calls that worked; 1 when nothing was called."),
        """def reward(episode):
    calls = episode["calls"]
    failed = sum(call["error"] is not None for call in calls)
    return 1.0 - failed / len(calls) if calls else 1.0
""",
    ),
    Example(
        "number",
        gettext_lazy("A number close to the truth"),
        gettext_lazy("1 for the exact number, falling to 0 when the error reaches twice the number."),
        """import re


def reward(episode):
    found = re.findall(r"-?\\d+(?:\\.\\d+)?", episode["final_answer"])
    truth = float(episode["row"]["answer"])
    if not found:
        return 0.0
    off = abs(float(found[-1]) - truth)
    return max(0.0, 1.0 - off / (2 * abs(truth) or 1.0))
""",
    ),
    Example(
        "short",
        gettext_lazy("Solved, and in few turns"),
        gettext_lazy("The environment's reward, less 0.05 for each model turn after the first."),
        """def reward(episode):
    after = episode["messages"][episode["prompt_length"]:]
    turns = sum(message["role"] == "assistant" for message in after)
    return (episode["env_reward"] or 0.0) - 0.05 * max(0, turns - 1)
""",
    ),
)
BY_KEY = {example.key: example for example in EXAMPLES}


# --- Testing --------------------------------------------------------------------------------------------------------
# Runs code on episodes in a sandbox of its own, twice, and reports the results.
#
# 1. Each episode is scored; a failure is shown with its line, and the next episode runs in a new process if need be.
# 2. Where all worked, everything is scored once more in a new process and in the opposite order: a reward that comes
#    out differently depends on something else than the episode (time, chance, earlier episodes).
# 3. The whole test has a time limit, and few tests run at once: pages must stay fast.

WALL_LIMIT_S = 20.0
WAIT_LIMIT_S = 10.0
_running = threading.BoundedSemaphore(2)


class Line(NamedTuple):
    """The code's result for one episode: a value, or the error and its line."""

    sample: Sample
    value: float | None
    problem: str = ""
    line: int | None = None
    printed: str = ""


class Tested(NamedTuple):
    """The outcome of a test."""

    sha256: str
    lines: list[Line]
    seconds: float

    @property
    def passed(self) -> bool:
        """Whether the code may be saved: it ran over at least one episode, and failed on none."""
        return bool(self.lines) and all(line.value is not None for line in self.lines)

    @property
    def failed(self) -> int:
        """On how many episodes it failed."""
        return sum(line.value is None for line in self.lines)

    @property
    def values(self) -> list[float]:
        """The values that the code returned."""
        return [line.value for line in self.lines if line.value is not None]

    @property
    def constant(self) -> bool:
        """Whether it returned the same value for all episodes, which gives no learning signal."""
        return len(self.values) > 1 and len(set(self.values)) == 1


def code_test(params: CustomParams, samples: list[Sample]) -> Tested:
    """Test code on samples. Raises ``ValidationError`` when too many tests run already."""
    if not _running.acquire(timeout=WAIT_LIMIT_S):
        raise ValidationError(_("Other tests are running. Try again in a moment."))
    began = time.monotonic()
    try:
        lines = _score_all(params, samples, began + WALL_LIMIT_S)
        if all(line.value is not None for line in lines):
            again = _score_all(params, samples[::-1], began + WALL_LIMIT_S)[::-1]
            lines = [_compare_lines(first, second) for first, second in zip(lines, again, strict=True)]
    finally:
        _running.release()
    return Tested(params.sha256, lines, time.monotonic() - began)


def _score_all(params: CustomParams, samples: list[Sample], deadline: float) -> list[Line]:
    with closing(Runner(params)) as runner:
        return [_score_one(runner, sample, deadline) for sample in samples]


def _score_one(runner: Runner, sample: Sample, deadline: float) -> Line:
    if time.monotonic() > deadline:
        return Line(
            sample, None, _("The test took longer than %(s)g seconds, so this was not reached.") % {"s": WALL_LIMIT_S}
        )
    tried = runner.try_on(sample.episode)
    return Line(sample, tried.value, in_words(tried.problem), tried.line, tried.printed)


def _compare_lines(first: Line, second: Line) -> Line:
    if first.value == second.value or second.value is None:
        return first if second.value is not None else second
    differs = _("It returned %(first)g, then %(second)g for the same episode: it depends on something else.")
    return first._replace(value=None, problem=differs % {"first": first.value, "second": second.value})
