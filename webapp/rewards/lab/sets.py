"""Rollout sets: the row now, and its files by a worker (``webapp.common.work``)."""

from __future__ import annotations

import json
import logging
import os
import shutil
import uuid
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any, BinaryIO

from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import Max, Q, QuerySet
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop
from pydantic import ValidationError as ShapeError

from envs.wire import Message
from training.config import RewardComponent
from training.data import read_records
from training.errors import Boundary, DataError, ErrorInfo, TiltyardError
from training.rewards import lab
from training.rewards.base import Episode
from webapp.common import work
from webapp.common.pages import clean_name
from webapp.common.work import Claim, Kind, register
from webapp.datasets.recorded import dataset_of_step
from webapp.people.teams.audit import audit
from webapp.people.teams.models import AuditAction, Project, User
from webapp.rewards.cases import cases_of
from webapp.rewards.lab.scoring import cache
from webapp.rewards.models import RolloutSet, SetKind, SetState
from webapp.rewards.pasted import TEXT_NAME, conversations_of, grouped
from webapp.runs.config import common_components, config_of, stage_at
from webapp.runs.models import Run
from webapp.runs.rollouts.figures import groups_read, groups_write
from webapp.runs.rollouts.models import Rollout, RolloutStatus
from webapp.runs.rollouts.selectors import BATCH, episodes_of

logger = logging.getLogger(__name__)
MAX_SETS = 200
KEEP_FREE_BYTES = 1 << 30


def rollout_set_create(
    *,
    project: Project,
    user: User | None,
    name: str,
    kind: str,
    run: Run | None = None,
    first_step: int | None = None,
    last_step: int | None = None,
    text: str = "",
    groups: Collection[tuple[int, int]] | None = None,
    found_by: str = "",
) -> RolloutSet:
    """Freeze a set of episodes: the row now, its files by a worker. Raises ``ValidationError`` by field.

    ``groups``: of a run these alone, each by step and number; ``found_by`` says in words how they were found.
    """
    if kind not in SetKind.values:
        raise ValidationError({"kind": _("Choose where the episodes come from.")})
    made = RolloutSet(
        id=uuid.uuid4(),
        project=project,
        created_by=user,
        name=clean_name(name),
        kind=kind,
        first_step=first_step,
        last_step=last_step,
        found_by=found_by[:500],
    )
    _check_room(project)
    if kind == SetKind.RUN:
        made.run, made.run_name = _checked_run(project, run, first_step, last_step)
        if groups is not None:
            groups_write(made.groups_path, groups)
    elif kind == SetKind.CASES and not cases_of(project).exists():
        raise ValidationError({"kind": _("This project has no reward test cases yet.")})
    elif kind == SetKind.PASTED:
        conversations_of(text)
        made.folder.mkdir(parents=True, mode=0o700)
        (made.folder / TEXT_NAME).write_text(text, encoding="utf-8", errors="replace")
    with transaction.atomic():
        made.save(force_insert=True)
        work.enqueue(made)
        audit(AuditAction.SET_ADDED, made, by=user)
    logger.info("rollout set made", extra={"set_id": made.pk, "project_id": project.pk, "kind": kind})
    return made


def _check_room(project: Project) -> None:
    if RolloutSet.objects.filter(project=project).count() >= MAX_SETS:
        raise ValidationError(_("This project has reached its limit of rollout sets. Delete one that is not needed."))
    if shutil.disk_usage(settings.DATA_DIR).free < KEEP_FREE_BYTES:
        raise ValidationError(_("The server's disk is nearly full, so no set was created."))


def _checked_run(project: Project, run: Run | None, first: int | None, last: int | None) -> tuple[Run, str]:
    if run is None or run.project_id != project.pk:
        raise ValidationError({"run": _("Choose a run of this project.")})
    if first is not None and last is not None and last < first:
        raise ValidationError({"last_step": _("The last step is before the first one.")})
    if not recorded_rollouts(run, first, last).exists():
        raise ValidationError({"run": _("There are no finished rollouts in these steps of the run.")})
    return run, run.name


def recorded_rollouts(run: Run, first: int | None, last: int | None) -> QuerySet[Rollout]:
    """The finished rollouts of some steps, of all attempts; not held-out ones, which no reward may be made to fit."""
    rows = Rollout.objects.filter(run=run, held_out=False).exclude(status=RolloutStatus.RUNNING)
    rows = rows if first is None else rows.filter(step__gte=first)
    return rows if last is None else rows.filter(step__lte=last)


def rollout_set_delete(*, rollout_set: RolloutSet) -> None:
    """Delete a set and its files; a worker that builds it gives up at its next report."""
    folder = rollout_set.folder
    cache.drop(rollout_set.pk)
    with transaction.atomic():
        audit(AuditAction.SET_DELETED, rollout_set)
        rollout_set.delete()
        transaction.on_commit(lambda: shutil.rmtree(folder, ignore_errors=True))


# --- Selectors ------------------------------------------------------------------------------------------------------
# Reading rollout sets.


def rollout_sets_of(project: Project) -> QuerySet[RolloutSet]:
    """All rollout sets of a project, newest first."""
    return RolloutSet.objects.filter(project=project).select_related("project", "run", "created_by")


def percent_of(rollout_set: RolloutSet) -> int:
    """The progress of the building, 0 to 100."""
    total = int(rollout_set.progress.get("total") or 0)
    return min(100, round(100 * int(rollout_set.progress.get("done") or 0) / total)) if total else 0


# --- Recorded -------------------------------------------------------------------------------------------------------
# A run's records, as episodes that can be scored, with the rows of its dataset: streamed, so of any size.

Place = tuple[int, str]
"""The number of a stage, and the name of a part of a mix."""
Found = Iterator[tuple[lab.Recorded, Episode | None]]


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


def _recorded_of(rollout: Rollout, episode: Episode | None) -> lab.Recorded:
    """The record of a rollout. One whose reward alone failed is not excluded: another reward can still be computed."""
    error = ""
    if rollout.status == RolloutStatus.EXCLUDED and (rollout.error or {}).get("boundary") != Boundary.REWARD:
        error = str(
            (rollout.error or {}).get("message") or gettext_noop("It was already excluded when it was recorded.")
        )
    prompt = episode.messages[: episode.prompt_length] if episode else []
    return lab.Recorded(
        rollout.pk,
        step=rollout.step,
        group=rollout.group,
        index=rollout.index,
        policy=rollout.policy,
        status=rollout.status,
        reward=rollout.reward,
        parts={name: value for name, value in rollout.parts.items() if value is not None},
        error=error,
        task=rollout.task or lab.message_head(prompt),
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


TOO_MANY = "A rollout set holds at most {limit:,} rollouts; these steps have {total:,}."


def set_build(claim: Claim[RolloutSet]) -> None:
    """Build a claimed set and write the outcome."""
    rollout_set = claim.item
    folder = rollout_set.folder / claim.token
    report = _progress_reporter(claim)
    try:
        _forget_others(rollout_set.folder, claim.token)
        with lab.SetWriter(folder, _recorded_components(rollout_set)) as writer:
            for record, episode in _rollouts_of(rollout_set, folder, report):
                writer.add(record, episode)
                report(writer.rollouts, None)
            writer.finish()
        _finish_set(claim, folder, writer)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def set_failed(_set: RolloutSet, error: TiltyardError) -> dict[str, Any]:
    """The columns of a set that could not be built."""
    words = f"{error.message} {error.hint}".strip()
    info = ErrorInfo(code="set_unbuildable", boundary=Boundary.DATA, message=words)
    return {"state": SetState.FAILED, "error": info.model_dump(mode="json")}


def _forget_others(folder: Path, token: str) -> None:
    """Remove the files of earlier workers that were killed."""
    for path in folder.glob("*/"):
        if path.name != token:
            shutil.rmtree(path, ignore_errors=True)


def _progress_reporter(claim: Claim[RolloutSet]) -> Callable[[int, int | None], None]:
    known = 0

    def report(done: int, total: int | None) -> None:
        nonlocal known
        known = known if total is None else total
        claim.report({"done": done, "total": known}, at_once=total is not None)

    return report


def _recorded_components(rollout_set: RolloutSet) -> list[RewardComponent]:
    """The run's reward components, which the recorded values belong to."""
    return common_components(config_of(rollout_set.run)) if rollout_set.run else []


def _rollouts_of(rollout_set: RolloutSet, folder: Path, report: Callable[[int, int | None], None]) -> Found:
    if rollout_set.kind == SetKind.PASTED:
        pasted = conversations_of((rollout_set.folder / TEXT_NAME).read_text("utf-8"))
        report(0, len(pasted))
        yield from grouped(pasted, rollout_set.pk)
    elif rollout_set.kind == SetKind.CASES:
        yield from _case_rollouts(rollout_set)
    elif rollout_set.run is None:
        raise DataError("The run was deleted before its rollouts were read.")
    else:
        yield from _rollouts_of_run(rollout_set, rollout_set.run, folder, report)


def _case_rollouts(rollout_set: RolloutSet) -> Found:
    for group, case in enumerate(cases_of(rollout_set.project)):
        status = "truncated" if case.truncated else "completed"
        record = lab.Recorded(uuid.uuid5(rollout_set.pk, str(case.pk)), group=group, status=status, task=case.name)
        try:
            messages = [Message.model_validate(item) for item in case.messages]
        except ShapeError:
            yield replace(record, error=gettext_noop("The stored conversation cannot be read.")), None
            continue
        yield (
            record,
            Episode(
                messages=messages,
                prompt_length=case.prompt_length,
                row=case.row,
                env_reward=case.env_reward,
                env_parts=case.env_parts,
                truncated=case.truncated,
            ),
        )


def _rollouts_of_run(
    rollout_set: RolloutSet, run: Run, folder: Path, report: Callable[[int, int | None], None]
) -> Found:
    """The finished rollouts of each step as its newest attempt played it."""
    rollouts = recorded_rollouts(run, rollout_set.first_step, rollout_set.last_step)
    if rollout_set.groups_path.exists():
        rollouts = rollouts.filter(_chosen_groups(rollout_set))
    steps = list(rollouts.order_by("step").values_list("step").annotate(newest=Max("attempt")))
    total = sum(rollouts.filter(step=step, attempt=newest).count() for step, newest in steps)
    if total > lab.MAX_ROLLOUTS:
        raise DataError(TOO_MANY.format(limit=lab.MAX_ROLLOUTS, total=total), hint="Choose fewer steps.")
    report(0, total)
    with open(folder / "dataset.jsonl", "w+b") as file:
        rows = Rows(file, run, rollouts, lambda: report(0, None))
        for step, newest in steps:
            yield from found_in(rollouts.filter(step=step, attempt=newest).order_by("group", "index"), rows)


def _chosen_groups(rollout_set: RolloutSet) -> Q:
    """A filter for all rollouts of the groups that were chosen."""
    by_step: dict[int, list[int]] = {}
    for step, group in groups_read(rollout_set.groups_path):
        by_step.setdefault(step, []).append(group)
    wanted = Q(pk=None)
    for step, groups in by_step.items():
        wanted |= Q(step=step, group__in=groups)
    return wanted


def _finish_set(claim: Claim[RolloutSet], folder: Path, writer: lab.SetWriter) -> None:
    """Move the files to their place, the columns last, and mark the set as ready."""
    with claim.held():
        for name in (lab.EPISODES_NAME, lab.ROWS_NAME, lab.META_NAME, lab.COLUMNS_NAME):
            os.replace(folder / name, claim.item.folder / name)
        claim.finish(state=SetState.READY, rollouts=writer.rollouts, groups=writer.groups, error=None)


TOO_LONG = gettext_noop("Reading the rollouts took too long. Choose fewer steps.")

register(Kind(RolloutSet, set_build, set_failed, too_long=TOO_LONG))
