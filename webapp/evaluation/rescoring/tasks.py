"""What workers do to score recorded rollouts."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import numpy as np
from django.db.models.functions import Now
from django.utils.translation import gettext_noop

from training.children import CERTIFICATES, MODELS, PLACES, REWARD_MODELS, child_env
from training.config import RewardComponent
from training.errors import DataError
from training.rewards import lab
from training.rewards.base import Episode
from training.words import Sentence, sentence
from webapp.common.work import Claim, Kind, register
from webapp.engine.trainer import access_env
from webapp.engine.trainer_variables import judge_keys
from webapp.evaluation.rescoring.columns import Mark, column_merge, values_of_function
from webapp.evaluation.rescoring.models import Rescoring, RescoringState
from webapp.evaluation.rescoring.services import Plan, plan_of, rescoring_failed
from webapp.rewards.lab.scoring import ONE_THREAD, ScoringFailed, computing_env, score_in_child
from webapp.rewards.lab.sets import Rows, found_in
from webapp.runs.config import config_of
from webapp.runs.models import Run
from webapp.runs.rollouts.models import Rollout

# --- Scoring ---------------------------------------------------------------------------------------------------------
# The worker's part: recorded rollouts become a set of the reward lab, and the lab's process scores them.
#
# 1. Of each run the rollouts that lack a value are written into a folder, with the rows that they played.
# 2. What is known of the components already, from the run or from earlier work, is written with them: nothing is
#    computed twice.
# 3. The lab's process computes the rest. Its results are kept every ``KEEP_EVERY_S``, and at the end, so that work
#    which is cancelled, late or lost is not wasted.

KEEP_EVERY_S = 10.0
NO_TRANSCRIPT = gettext_noop("Its transcript is not stored (any more).")
NO_ROW = gettext_noop("The dataset that it was played from is gone, so its task is not known (any more).")
DIED = gettext_noop("The scoring process ended early; it may have had too little memory.")
LATE = gettext_noop("Scoring the rollouts took too long.")


def rescoring_run(claim: Claim[Rescoring]) -> None:
    """Compute the missing values of each run of a claimed rescoring, one run after another."""
    rescoring = claim.item
    components = [RewardComponent.model_validate(item) for item in rescoring.components]
    runs = {str(run.pk): run for run in Run.objects.filter(project=rescoring.project_id, pk__in=rescoring.runs)}
    plans = [plan_of(runs[pk], components) for pk in rescoring.runs if pk in runs]
    total, done = sum(len(plan.rollouts) for plan in plans), 0
    try:
        shutil.rmtree(rescoring.folder, ignore_errors=True)  # left by an earlier worker that was killed
        for plan in plans:
            if plan.components:
                _Pass(claim, plan, done, total).run()
                done += len(plan.rollouts)
        claim.finish(state=RescoringState.DONE, rollouts=total, error=None, ended_at=Now())
    finally:
        shutil.rmtree(rescoring.folder / claim.token, ignore_errors=True)


class _Pass:
    """The scoring of one run."""

    def __init__(self, claim: Claim[Rescoring], plan: Plan, before: int, total: int) -> None:
        self._claim, self._plan, self._before, self._total = claim, plan, before, total
        self._folder: Path = claim.item.folder / claim.token / str(plan.run.pk)
        self._kept = time.monotonic()

    def run(self) -> None:
        """Write, compute, keep. Raises ``DataError`` where the process fails."""
        self._report_progress(0, at_once=True)
        with lab.SetWriter(self._folder, self._plan.own) as writer:
            for record, episode in self._episodes():
                writer.add(record, episode)
            writer.finish()
        table = lab.table_load(self._folder)
        for item in self._plan.components:
            lab.column_save(self._folder, item, _starting_column(table, values_of_function(self._plan.run, item)))
        try:
            self._compute(table)
        except ScoringFailed as exc:
            self._keep_marks(table)
            words = sentence(gettext_noop("Scoring ended: {reason}"), reason=exc.said) if exc.said else None
            raise DataError(words or sentence(LATE if exc.late else DIED)) from exc
        self._keep_marks(table)

    def _report_progress(self, done: int, *, at_once: bool = False) -> None:
        progress = {"done": self._before + min(done, len(self._plan.rollouts)), "total": self._total}
        self._claim.report(progress, at_once=at_once)

    def _episodes(self) -> Iterator[tuple[lab.Recorded, Episode | None]]:
        """The rollouts with their episodes, or with the reason why there is none to score."""
        run, config = self._plan.run, config_of(self._plan.run)
        rollouts = Rollout.objects.filter(run=run, pk__in=self._plan.rollouts)
        has_rows = config is None or not config.draws_tasks
        with open(self._folder / "dataset.jsonl", "w+b") as file:
            rows = Rows(file, run, rollouts, lambda: self._report_progress(0))
            for record, episode in found_in(rollouts.order_by("step", "group", "index"), rows):
                self._report_progress(0)
                yield _with_reason(record, episode, has_rows), episode

    def _compute(self, table: lab.Table) -> None:
        components = self._plan.components
        ask = any(lab.asks_others(item) for item in components)
        score_in_child(
            self._folder,
            components,
            lambda done, _of: self._report(table, done),
            env=_asking_env() if ask else computing_env(),
            wall_s=Rescoring.LIMIT_S,
            ask=ask,
            loads_model=any(lab.loads_model(item) for item in components),
        )

    def _report(self, table: lab.Table, done: int) -> None:
        self._report_progress(done)
        if time.monotonic() - self._kept > KEEP_EVERY_S:
            self._keep_marks(table)

    def _keep_marks(self, table: lab.Table) -> None:
        """Keep what is known so far, as long as this worker holds the claim."""
        self._kept = time.monotonic()
        with self._claim.held():
            for item in self._plan.components:
                column_merge(self._plan.run, item, _marks_of(table, item))


def _with_reason(record: lab.Recorded, episode: Episode | None, has_rows: bool) -> lab.Recorded:
    reason = record.error
    if episode is None:
        reason = NO_TRANSCRIPT
    elif has_rows and record.row is not None and not episode.row:
        reason = NO_ROW
    return lab.Recorded(**{**vars(record), "error": reason})


def _starting_column(table: lab.Table, known: dict[UUID, float]) -> lab.Column:
    value = np.array([known.get(_rollout_id(table, place), np.nan) for place in range(table.size)])
    return lab.Column(value, np.where(np.isfinite(value), lab.KNOWN, lab.UNKNOWN).astype(np.int32), [])


def _marks_of(table: lab.Table, item: RewardComponent) -> dict[UUID, Mark]:
    """The known marks of a component now, without rollouts that are still to be scored."""
    column, counts = lab.column_of(table, item), lab.counted(table, item)
    marks = {}
    for place in range(table.size):
        code = int(column.code[place])
        if table.excluded[place]:
            marks[_rollout_id(table, place)] = Mark(None, Sentence(table.reason_of(place)))
        elif not counts[place]:
            marks[_rollout_id(table, place)] = Mark(None)
        elif code == lab.KNOWN:
            marks[_rollout_id(table, place)] = Mark(float(column.value[place]))
        elif code != lab.UNKNOWN:
            marks[_rollout_id(table, place)] = Mark(None, column.reasons[code])
    return marks


def _rollout_id(table: lab.Table, place: int) -> UUID:
    return UUID(bytes=table.ids[place].tobytes())


def _asking_env() -> dict[str, str]:
    """Judges are reached as trainers reach them: with the operator's keys, at the addresses that are allowed."""
    return child_env(PLACES, MODELS, CERTIFICATES, judge_keys(), (REWARD_MODELS,), **ONE_THREAD, **access_env({}))


register(Kind(Rescoring, rescoring_run, rescoring_failed, too_long=LATE, at_work=RescoringState.SCORING))
