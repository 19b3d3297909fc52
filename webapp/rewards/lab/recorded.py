"""A run's records, as episodes that can be scored, with the rows of its dataset: streamed, so of any size."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any, BinaryIO

from django.db.models import QuerySet
from django.utils.translation import gettext_noop

from training.data.reader import read_records
from training.errors import Boundary
from training.rewards.base import Episode
from training.rewards.lab.writing import Recorded, message_head
from webapp.datasets.of_runs import dataset_of_step
from webapp.runs.config import stage_at
from webapp.runs.models import Run
from webapp.runs.rollouts.episodes import BATCH, episodes_of
from webapp.runs.rollouts.models import Rollout, RolloutStatus

Place = tuple[int, str]
"""The number of a stage, and the name of a part of a mix."""
Found = Iterator[tuple[Recorded, Episode | None]]


def found_in(rollouts: QuerySet[Rollout], rows: Rows) -> Found:
    """The rollouts in their order, each with its episode; ``None`` where no transcript is stored."""
    batch: list[Rollout] = []
    for rollout in rollouts.iterator(chunk_size=BATCH):
        batch.append(rollout)
        if len(batch) == BATCH:
            yield from _episodes_of_batch(batch, rows)
            batch = []
    yield from _episodes_of_batch(batch, rows)


def _episodes_of_batch(batch: list[Rollout], rows: Rows) -> Found:
    episodes: dict[uuid.UUID, Episode] = {}
    for place, some in groupby(batch, key=rows.place_of):
        alike = list(some)
        held = {item.row: rows.get(place, item.row) for item in alike if item.row is not None}
        episodes |= {rollout.pk: episode for rollout, episode in episodes_of(alike, held)}
    for rollout in batch:
        episode = episodes.get(rollout.pk)
        yield _recorded_of(rollout, episode), episode


def _recorded_of(rollout: Rollout, episode: Episode | None) -> Recorded:
    """The record of a rollout. One whose reward alone failed is not excluded: another reward can still be computed."""
    error = ""
    if rollout.status == RolloutStatus.EXCLUDED and (rollout.error or {}).get("boundary") != Boundary.REWARD:
        error = str(
            (rollout.error or {}).get("message") or gettext_noop("It was already excluded when it was recorded.")
        )
    prompt = episode.messages[: episode.prompt_length] if episode else []
    return Recorded(
        rollout.pk,
        step=rollout.step,
        group=rollout.group,
        index=rollout.index,
        policy=rollout.policy,
        status=rollout.status,
        reward=rollout.reward,
        parts={name: value for name, value in rollout.parts.items() if value is not None},
        error=error,
        task=rollout.task or message_head(prompt),
        row=rollout.row,
        turn_rewards=rollout.turn_rewards,
    )


class Rows:
    """The rows of the run's dataset, or of its stages' or parts' datasets, that its rollouts played: on disk, not in
    memory."""

    def __init__(self, file: BinaryIO, run: Run, rollouts: QuerySet[Rollout], tick: Callable[[], None]) -> None:
        self._file, self._run = file, run
        self._places: dict[tuple[Place, int], int] = {}
        wanted: dict[Place, tuple[int, set[int]]] = {}
        for step, part, row in rollouts.order_by().values_list("step", "part", "row").distinct():
            if row is not None:
                wanted.setdefault((stage_at(run, step), part), (step, set()))[1].add(row)
        for place, (step, rows) in wanted.items():
            self._keep_rows(place, dataset_path(run, step, place[1]), rows, tick)

    def _keep_rows(self, place: Place, path: Path | None, wanted: set[int], tick: Callable[[], None]) -> None:
        if path is None:
            return
        last = max(wanted)
        for number, record in enumerate(read_records(path)):
            if number % 1000 == 0:
                tick()
            if number in wanted and record.row is not None:
                self._places[place, number] = self._file.tell()
                self._file.write(json.dumps(record.row.raw, ensure_ascii=False).encode("utf-8", "replace") + b"\n")
            if number == last:
                break

    def place_of(self, rollout: Rollout) -> Place:
        """The number of the stage that a rollout was played in, 0 without stages, and the part of a mix."""
        return stage_at(self._run, rollout.step), rollout.part

    def get(self, place: Place, row: int) -> dict[str, Any]:
        """A row of the dataset of a stage or part; empty where the dataset is gone."""
        at = self._places.get((place, row))
        if at is None:
            return {}
        self._file.seek(at)
        return dict(json.loads(self._file.readline()))


def dataset_path(run: Run, step: int, part: str = "") -> Path | None:
    """The rows that a step, or a part of its mix, was trained on, if they are those of a dataset of its project: no
    other path is read."""
    known = dataset_of_step(run, step, part)
    return known.rows_path if known else None
