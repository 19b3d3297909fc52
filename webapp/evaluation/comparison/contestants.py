"""The contestants of a comparison: runs of one project, in the order in which the page's address names them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

from django.db.models import Q
from django.utils.translation import gettext as _

from training.config import JobConfig, RewardComponent, name_in
from training.data import load_rows
from training.errors import DataError
from training.evaluation import DRAWN_TASKS, drawn_tasks, evaluated_places
from training.plain import number_in
from training.rewards.scoring import form_components
from webapp.datasets.models import Dataset
from webapp.datasets.rows import categories_in_file
from webapp.people.teams.models import Project
from webapp.runs.config import config_of
from webapp.runs.models import Run
from webapp.runs.states import TERMINAL

LEAST, MOST = 2, 8


class Played(NamedTuple):
    """The tasks that an evaluation plays. In two equal ones a task's number means the same task."""

    data: str
    environment: str
    seed: int | None


@dataclass(frozen=True)
class Contestant:
    """A run in a comparison. ``number`` is its place, which gives its colour; no ``config`` where it cannot be read."""

    number: int
    run: Run
    config: JobConfig | None

    @property
    def evaluates(self) -> bool:
        """Whether it played a set of tasks, each equally often."""
        return self.run.measures and self.config is not None

    @property
    def step(self) -> int | None:
        """The step after which a run that trains played its held-out tasks last; ``None`` where it has not, and where a
        row's number does not say which task it is: in a mix, and where the environment draws the tasks."""
        if self.config is None or not self.run.method.trains or self.config.mix.parts or not self.data:
            return None
        newest = (self.run.health.get("held_out") or {}).get("newest") or {}
        return number_in(str(newest.get("step", "")))

    @property
    def measured(self) -> bool:
        """Whether it has tries of tasks that can be compared: those of an evaluation, or those that it held out."""
        return self.evaluates or self.step is not None

    @property
    def rollouts(self) -> Q:
        """Its rollouts that a comparison counts."""
        found = Q(run=self.run)
        return found if self.step is None else found & Q(step=self.step, held_out=True)

    @property
    def data(self) -> str:
        """The file of the rows that it played; empty where the environment drew its tasks, or nothing can be read."""
        if self.config is None:
            return ""
        return (self.run.method.trains and self.config.evaluate.data) or self.config.data.train

    @property
    def ended(self) -> bool:
        """Whether the run has ended."""
        return self.run.state in TERMINAL

    @property
    def who(self) -> str:
        """The model or policy that played, or from which training began."""
        if self.config is None:
            return ""
        if self.config.policies:
            return ", ".join(dict.fromkeys(self.config.policies))
        if self.config.asks_endpoint:
            return " · ".join(name for name in (self.config.endpoint.name, self.config.endpoint.model) if name)
        return str(self.run.config.get("model", {}).get("source", "")) or self.config.model.source

    @property
    def components(self) -> list[RewardComponent]:
        """The components of its rewards."""
        return (self.config.rewards.components or form_components()) if self.config else []

    @property
    def spec(self) -> str:
        """Its reward spec by name, as the person wrote it; empty where the config has components."""
        return name_in("reward", str(self.run.config.get("rewards", {}).get("spec", "")))

    @property
    def played(self) -> Played | None:
        """The tasks that it played; ``None`` where none can be compared. The seed decides if the environment draws
        them."""
        if self.config is None or not self.measured:
            return None
        drawn = self.evaluates and self.config.draws_tasks
        place = self.config.environment
        environment = str(self.run.config.get("environment", {}).get("name", "")) or place.url
        return Played("" if drawn else self.data, environment, self.config.run.seed if drawn else None)


def contestants_of(project: Project, asked: Sequence[str]) -> tuple[list[Contestant], list[str]]:
    """The runs that an address names, ``MOST`` at most, and a sentence for each kind that is left out."""
    ids, notes = _parse_ids(asked)
    found = {run.pk: run for run in Run.objects.filter(project=project, pk__in=ids[:MOST]).select_related("created_by")}
    runs = [found[pk] for pk in ids[:MOST] if pk in found]
    if len(ids) > MOST:
        notes.append(
            _("%(most)d can be compared at once; the first %(most)d of %(n)d are shown.")
            % {"most": MOST, "n": len(ids)}
        )
    if gone := len(ids[:MOST]) - len(runs):
        notes.append(_("%(n)d that the address names are not in this project (any more).") % {"n": gone})
    return [Contestant(number, run, config_of(run)) for number, run in enumerate(runs)], notes


def rollouts_of(contestants: Iterable[Contestant]) -> Q:
    """The rollouts that a comparison of these counts."""
    found = Q(pk__in=[])
    for item in contestants:
        found |= item.rollouts
    return found


def _parse_ids(asked: Sequence[str]) -> tuple[list[UUID], list[str]]:
    ids: dict[UUID, None] = {}
    unread = 0
    for text in asked[:100]:
        try:
            ids[UUID(text)] = None
        except ValueError:
            unread += 1
    return list(ids), [_("A part of the address names no run.")] if unread else []


def datasets_of(contestants: Sequence[Contestant]) -> list[Dataset | None]:
    """The dataset of its project whose rows each one played, in one query; ``None`` where it drew its tasks, or
    the dataset is gone."""
    names = {_dataset_named(item)[0] for item in contestants}
    projects = {item.run.project_id for item in contestants}
    rows = Dataset.objects.filter(project__in=projects, name__in=names).order_by("-version")
    known = list(rows.only("project", "name", "version", "rows", "state"))
    return [_dataset_among(item, known) for item in contestants]


def tasks_sets(contestants: Sequence[Contestant], datasets: Sequence[Dataset | None]) -> list[list[int] | None]:
    """The numbers of the tasks that each evaluation was to play; ``None`` where that cannot be known any more.

    And for a run that trains: which of its held-out tasks it left out as leaked is known only from what it played.
    """
    return [_tasks_set(item, dataset) for item, dataset in zip(contestants, datasets, strict=True)]


def _dataset_named(contestant: Contestant) -> tuple[str, int | None]:
    """Name and version of its dataset as the person wrote it; ``None`` means the newest."""
    written = contestant.run.config
    reference = str(written.get("data", {}).get("train", ""))
    if contestant.run.method.trains:
        reference = str(written.get("evaluate", {}).get("data") or "") or reference
    name, _at, version = name_in("dataset", reference).partition("@")
    return name, number_in(version)


def _dataset_among(contestant: Contestant, known: Sequence[Dataset]) -> Dataset | None:
    config, run = contestant.config, contestant.run
    if config is None or config.draws_tasks:
        return None
    name, version = _dataset_named(contestant)
    found = (
        item
        for item in known
        if (item.project_id, item.name) == (run.project_id, name) and version in (None, item.version)
    )
    dataset = next(found, None)
    return dataset if dataset is not None and str(dataset.rows_path) == contestant.data else None


def _tasks_set(contestant: Contestant, dataset: Dataset | None) -> list[int] | None:
    config = contestant.config
    if config is None or not contestant.evaluates:
        return None
    if config.draws_tasks:
        return list(range(config.evaluate.tasks or DRAWN_TASKS))
    if dataset is None:
        return None
    if config.evaluate.share:
        return _held_out(config)
    count = min(dataset.rows, config.data.max_rows) if config.data.max_rows else dataset.rows
    return drawn_tasks(config, range(count))


def _held_out(config: JobConfig) -> list[int] | None:
    """The tasks of an evaluation that plays a held-out share: only their texts show which rows those are."""
    try:
        rows = load_rows(Path(config.data.train), config.data.max_rows)
    except (DataError, OSError):
        return None
    return drawn_tasks(config, evaluated_places(config, rows))


# --- Categories ------------------------------------------------------------------------------------------------------
# The categories of a dataset's tasks.

READ_BYTES = 256 << 20


def categories_of(contestant: Contestant, tasks: Sequence[int]) -> dict[int, str]:
    """The categories of the dataset's rows; tasks without one are left out."""
    if not contestant.data or not tasks:
        return {}
    known = categories_in_file(Path(contestant.data))
    return {task: name for task in tasks if (name := known.of(task))}


def texts_of_rows(contestant: Contestant, tasks: Sequence[int], read: Callable[[Any], str]) -> dict[int, str]:
    """The texts that ``read`` finds in the dataset's rows of these tasks; empty texts are left out.

    Reading ends after ``READ_BYTES`` of a dataset; later tasks have none.
    """
    if not contestant.data or not tasks:
        return {}
    wanted, found = set(tasks), dict[int, str]()
    try:
        with Path(contestant.data).open("rb") as file:
            left = READ_BYTES
            for place, line in enumerate(islice(file, max(wanted) + 1)):
                left -= len(line)
                if left < 0:
                    break
                if place in wanted and (text := read(_parse_row(line))):
                    found[place] = text
    except OSError:
        return {}
    return found


def _parse_row(line: bytes) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None
