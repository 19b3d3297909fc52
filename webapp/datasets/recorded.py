"""Making the file of a dataset of chosen rollouts (``rollouts.py`` says which and why).

*demonstrations*: each rollout's messages, with the tools that its prompt had where the journal has them, and where it
comes from. Left out are rollouts that failed outside the policy, those with calls that could not be read (the record
has only the parsed part, which is not what the model wrote), and those that no dataset holds. *tasks*: the rows of the
dataset that they played, each once, unchanged.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, Literal
from uuid import UUID

from django.conf import settings
from django.utils.translation import gettext as _

from training.data import RowError, check_tree, row_from_dict
from training.data.making import Made
from training.errors import DataError
from training.exports import PairsMade, write_pairs
from training.journal import JOURNAL_NAME, GroupScored, parse_event
from training.plain import number_in
from webapp.common.storage import attempt_dir, dataset_dir
from webapp.datasets.models import Dataset
from webapp.runs.config import config_at
from webapp.runs.models import Run
from webapp.runs.rollouts.figures import groups_read
from webapp.runs.rollouts.models import Rollout, RolloutStatus, Turn, rollout_id

# --- Of runs --------------------------------------------------------------------------------------------------------
# The dataset version that a run's steps drew their tasks from.


def dataset_of_step(run: Run, step: int, part: str = "") -> Dataset | None:
    """The version whose rows a step, or a ``part`` of its mix, was played on, if it is one of the run's project and
    still there."""
    config = config_at(run, step, part)
    path = Path(config.data.train) if config else Path()
    try:
        known = Dataset.objects.filter(pk=uuid.UUID(path.parent.name), project=run.project_id).first()
    except ValueError:
        return None
    return known if known and known.rows_path == path and path.is_file() else None


# --- Pair rows ------------------------------------------------------------------------------------------------------
# Making the file of a dataset of preference pairs from the journals of the run whose rollouts they are.

PAIRS = "pairs"
"""The operation, as a lineage names it."""


def pairs_make(dataset: Dataset, target: Path) -> PairsMade:
    """Write the file of a dataset of pairs. Raises ``DataError`` where there is nothing to write."""
    options = dataset.lineage["options"]
    run = Run.objects.filter(project=dataset.project_id, pk=options["run_id"]).first()
    journals = journals_of(run) if run is not None else []
    if not journals:
        raise DataError(_("The run %(name)s, whose rollouts these are, was deleted.") % {"name": options["run"]})
    file = groups_path(dataset)
    groups = groups_read(file) if options.get("chosen") else None
    return write_pairs(
        journals, target, float(options["min_gap"]), limit_bytes=settings.MAX_UPLOAD_BYTES, groups=groups
    )


def groups_path(dataset: Dataset) -> Path:
    """The file with the groups that pairs are made of, where a person chose them."""
    return dataset_dir(dataset.id) / "groups.json"


def journals_of(run: Run) -> list[Path]:
    """The journals of the run's attempts, oldest first."""
    paths = (attempt_dir(run.pk, number) / JOURNAL_NAME for number in range(1, run.attempt + 1))
    return [path for path in paths if path.is_file()]


ROLLOUTS = "rollouts"
"""The operation, as a lineage names it."""
Use = Literal["demonstrations", "tasks"]
CHUNK = 200
Value = dict[str, Any]
Report = Callable[[int, int], None]


def chosen_path(dataset: Dataset) -> Path:
    """The ids of the rollouts, in order."""
    return dataset_dir(dataset.id) / "rollouts.json"


def rollouts_make(dataset: Dataset, target: Path, on_progress: Report) -> Made:
    """Write the file of a dataset of rollouts. Raises ``DataError`` where there is nothing to write."""
    ids = [UUID(each) for each in json.loads(chosen_path(dataset).read_text())]
    tasks = dataset.lineage["options"]["use"] == "tasks"
    with target.open("xb") as file:
        writer = _Writer(file)
        for line in _task_lines(dataset, ids) if tasks else _demonstration_lines(dataset, ids, on_progress):
            writer.add(line)
    if not writer.rows:
        raise DataError(_("None of these rollouts can be a row of a dataset."))
    taken = [writer.rows] if len(dataset.lineage["parents"]) == 1 else [0 for _each in dataset.lineage["parents"]]
    return Made(writer.rows, writer.size, taken)


class _Writer:
    def __init__(self, file: BinaryIO) -> None:
        self._file, self.rows, self.size = file, 0, 0

    def add(self, line: bytes) -> None:
        self.rows, self.size = self.rows + 1, self.size + len(line)
        if self.size > settings.MAX_UPLOAD_BYTES:
            raise DataError(_("These rollouts are larger than a dataset may be."))
        self._file.write(line)


def _chosen_in_batches(dataset: Dataset, ids: list[UUID]) -> Iterator[list[Rollout]]:
    """The rollouts that are still there, in the order in which they were chosen."""
    for begin in range(0, len(ids), CHUNK):
        found = (
            Rollout.objects.select_related("run")
            .filter(run__project=dataset.project_id)
            .in_bulk(ids[begin : begin + CHUNK])
        )
        yield [found[each] for each in ids[begin : begin + CHUNK] if each in found]


# --- Demonstrations -------------------------------------------------------------------------------------------------
def _demonstration_lines(dataset: Dataset, ids: list[UUID], on_progress: Report) -> Iterator[bytes]:
    runs = Run.objects.filter(project=dataset.project_id, pk__in=dataset.lineage["options"]["run_ids"])
    tools, done = tools_of(runs, set(ids)), 0
    for batch in _chosen_in_batches(dataset, ids):
        turns: dict[UUID, list[Turn]] = {}
        for turn in Turn.objects.filter(rollout__in=batch).defer("words").order_by("rollout", "number"):
            turns.setdefault(turn.rollout_id, []).append(turn)
        for rollout in batch:
            row = _demonstration_row(rollout, turns.get(rollout.pk, []), tools.get(rollout.pk))
            if row is not None:
                yield (json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n").encode()
        done += len(batch)
        on_progress(done, len(ids))


def _demonstration_row(rollout: Rollout, turns: list[Turn], tools: list[Value] | None) -> Value | None:
    if rollout.status in (RolloutStatus.EXCLUDED, RolloutStatus.RUNNING) or rollout.parse_errors or rollout.held_out:
        return None
    messages = [message for turn in turns for message in turn.messages]
    if not any(message.get("role") == "assistant" for message in messages):
        return None
    row: Value = {"messages": messages, **({"tools": tools} if tools else {})}
    row["provenance"] = {
        "source": "rollout",
        "run": str(rollout.run_id),
        "run_name": rollout.run.name,
        "rollout": str(rollout.pk),
        "step": rollout.step,
        "outcome": rollout.outcome,
        "reward": rollout.reward,
    }
    try:
        check_tree(row)
        row_from_dict(row)
    except RowError:
        return None
    return row


def tools_of(runs: Iterable[Run], wanted: set[UUID]) -> dict[UUID, list[Value]]:
    """The tools that the prompts of rollouts had, from their runs' journals; a journal has each list of tools once."""
    found: dict[UUID, list[Value]] = {}
    for run in runs:
        for number, path in enumerate(journals_of(run), start=1):
            named = number_in(path.parent.name)
            attempt = number if named is None else named
            known: dict[str, list[Value]] = {}
            for event in _journal_groups(path):
                if event.tools is not None:
                    known[event.tools_digest] = event.tools
                for name in event.rollouts if known.get(event.tools_digest) else ():
                    pk = rollout_id(run.pk, attempt, name)
                    if pk in wanted:
                        found[pk] = known[event.tools_digest]
    return found


def _journal_groups(path: Path) -> Iterator[GroupScored]:
    """The scored groups of a journal; other lines are not parsed, and one that cannot be read is skipped."""
    with path.open("rb") as file:
        for line in file:
            if b'"group_scored"' not in line:
                continue
            try:
                event = parse_event(line)
            except ValueError:
                continue
            if isinstance(event, GroupScored):
                yield event


# --- Tasks ----------------------------------------------------------------------------------------------------------
def _task_lines(dataset: Dataset, ids: list[UUID]) -> Iterator[bytes]:
    wanted: dict[UUID, set[int]] = {}
    sources: dict[UUID, Dataset] = {}
    known: dict[tuple[UUID, int, str], Dataset | None] = {}
    for batch in _chosen_in_batches(dataset, ids):
        for rollout in batch:
            if rollout.row is None or rollout.held_out:
                continue
            place = (rollout.run_id, rollout.step, rollout.part)
            if place not in known:
                known[place] = dataset_of_step(rollout.run, rollout.step, rollout.part)
            source = known[place]
            if source is not None:
                sources[source.pk] = source
                wanted.setdefault(source.pk, set()).add(rollout.row)
    for pk, places in wanted.items():
        yield from _lines_at(sources[pk].rows_path, places)


def rows_at(path: Path, places: Collection[int]) -> dict[int, Value]:
    """Rows of a dataset by their places; those that are not there are left out."""
    found: dict[int, Value] = {}
    with path.open("rb") as file:
        for place, line in enumerate(islice(file, max(places, default=-1) + 1)):
            if place in places:
                found[place] = dict(json.loads(line))
    return found


def _lines_at(path: Path, places: set[int]) -> Iterator[bytes]:
    last = max(places)
    with path.open("rb") as file:
        for place, line in enumerate(file):
            if place in places:
                yield line if line.endswith(b"\n") else line + b"\n"
            if place == last:
                return
