"""Evaluating a model while it is trained, on tasks that it is not trained on.

The weights after a step play every held-out task, with seeds that depend on the task alone: two evaluations of a run
are paired, and so are those of two runs with the same seed. Nothing of it reaches the loss. An evaluation comes before
the checkpoint of its step, which so knows how good it is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from training.algorithms.drawing import playable, short_prompts
from training.algorithms.job import Job
from training.algorithms.saving import random_states, restore_random
from training.algorithms.stages import Segment, named, parts_of
from training.config import RewardComponent
from training.data.identity import leaks, split_rows, task_key
from training.data.reader import load_rows
from training.data.schema import Row
from training.errors import ConfigError
from training.evaluation.figures import Report, Try, drawn_tasks, report_of, sheet_of
from training.journal import JOURNAL_NAME, HeldOutEvaluated, Metrics, TasksHeldOut, read_events
from training.policy.check import SamplerCheck
from training.policy.engine import Engine
from training.rewards.combining import SCHEDULES_ENDED
from training.rewards.scoring import score_episode
from training.rollout.collector import HeldOutCollector
from training.rollout.figures import SUCCESS_PART
from training.rollout.scoring import Scorer
from training.rollout.tokens import ChatTemplate
from training.rollout.trajectory import Rollout, StepRollouts

WHOLE_FILE = 1 << 50


class Tasks(NamedTuple):
    """Places of ``train`` rows, and what is played to evaluate: places ``played`` of ``rows``."""

    train: list[int]
    rows: Sequence[Row]
    played: list[int]


def choose_tasks(
    job: Job, rows: list[Row], template: ChatTemplate, also: Sequence[Row] = (), segments: Sequence[Segment] = ()
) -> Tasks:
    """Part the rows that fit into those that are trained on and those that are held out; journals what was held out.

    ``also`` are rows that the run trains on at another time; ``segments`` say which part of a mix has which rows.
    Raises ``ConfigError`` where nothing is left on one side.
    """
    if len(segments) > 1:
        return _of_parts(job, rows, template, segments)
    fits = playable(job, rows, template)
    if job.config.evaluate.data:
        return _other_dataset(job, rows, fits, template, also)
    if not job.config.evaluate.share:
        return Tasks(fits, rows, [])
    split = split_rows(rows, job.config.evaluate.share)
    can, held = set(fits), set(split.held_out)
    train = [place for place in fits if place not in held]
    _require(train, "evaluate.share", "The whole dataset would be held out.")
    played = drawn_tasks(job.config, [place for place in split.held_out if place in can])
    _require(played, "evaluate.share", "None of the held-out tasks fits rollout.max_prompt_tokens.")
    found = leaks([rows[place] for place in played], [rows[place] for place in train])
    _record_held_out(
        job, TasksHeldOut(source="share", rows=played, groups=split.groups, **_alike(found.alike, found.looked_at))
    )
    return Tasks(train, rows, played)


def _of_parts(job: Job, rows: list[Row], template: ChatTemplate, parts: Sequence[Segment]) -> Tasks:
    """A share of each part's data. A task that one part holds out is trained on in none."""
    share, fits, keys = job.config.evaluate.share, list[int](), set[str]()
    for part in parts:
        own = rows[part.begin : part.end]
        with named(part.name):
            fits += [part.begin + place for place in playable(job, own, template)]
        keys |= {task_key(own[place]) for place in (split_rows(own, share).held_out if share else ())}
    held = {place for place, row in enumerate(rows) if keys and task_key(row) in keys}
    train = [place for part in parts if part.weight for place in part.own(fits) if place not in held]
    played: list[int] = []
    for part in parts:
        if part.weight:
            _require(part.own(train), "evaluate.share", f"The whole dataset of part {part.name} would be held out.")
        if share:
            drawn = drawn_tasks(job.config, [place for place in part.own(fits) if place in held])
            _require(drawn, "evaluate.share", f"No held-out task of part {part.name} fits rollout.max_prompt_tokens.")
            found = leaks([rows[place] for place in drawn], [rows[place] for place in train])
            groups = len({task_key(row) for place, row in enumerate(rows) if place in held and part.own([place])})
            of_part = {"part": part.name, "rows": [place - part.begin for place in drawn], "groups": groups}
            _record_held_out(job, TasksHeldOut(source="share", **of_part, **_alike(found.alike, found.looked_at)))
            played += drawn
    return Tasks(train, rows, played)


def _other_dataset(job: Job, rows: list[Row], fits: list[int], template: ChatTemplate, also: Sequence[Row]) -> Tasks:
    others = load_rows(Path(job.config.evaluate.data))
    can = short_prompts(others, template, job.config.rollout.max_prompt_tokens)
    drawn = drawn_tasks(job.config, can)
    found = leaks([others[place] for place in drawn], [*(rows[place] for place in fits), *also])
    same = set(found.same)
    played = [place for number, place in enumerate(drawn) if number not in same]
    _require(played, "evaluate.data", "Every task of the held-out dataset is in the training dataset too.")
    groups = len({task_key(others[place]) for place in played})
    _record_held_out(
        job,
        TasksHeldOut(
            source="dataset", rows=played, groups=groups, leaked=len(same), **_alike(found.alike, found.looked_at)
        ),
    )
    return Tasks(fits, others, played)


def _alike(alike: int, looked_at: int) -> dict[str, int]:
    return {"alike": alike, "looked_at": looked_at}


def _require(places: list[int], option: str, message: str) -> None:
    if not places:
        raise ConfigError(message, option=option, hint="Choose another share or dataset.")


def _record_held_out(job: Job, event: TasksHeldOut) -> None:
    job.journal.write(event)
    whose = f" of part {event.part}" if event.part else ""
    job.log(f"{len(event.rows)} tasks{whose} are held out; nothing is learned from them.")
    if event.leaked:
        job.log(f"{event.leaked} held-out tasks are in the training dataset too, so they are left out.", "warning")
    if event.alike:
        job.log(f"{event.alike} held-out tasks look much like one that is trained on.", "warning")


class HeldOut:
    """Plays the held-out tasks of one run when they are due."""

    def __init__(
        self,
        job: Job,
        tasks: Tasks,
        segments: Sequence[Segment],
        template: ChatTemplate,
        engine: Engine,
        scorer: Scorer | None = None,
        *,
        check: SamplerCheck | None = None,
        settle: Callable[[], None] = lambda: None,
        evaluated: Callable[[Report], None] | None = None,
    ) -> None:
        """``check`` is that of a sampler which has a copy of the weights. ``settle`` waits until nothing else is
        sampled; ``evaluated`` gets the reports on weights that were trained.
        """
        self._settle, self._evaluated = settle, evaluated
        self._job = job
        self._check = check
        self._tasks = tasks
        self._engine = engine
        config = job.config.held_out_samples
        self._size = config.group_size

        self._segments = segments

        def scorer_of(components: list[RewardComponent]) -> Scorer:
            return scorer or partial(score_episode, components=components, step=SCHEDULES_ENDED)

        first, parts = parts_of(segments, lambda part: part.held_out_samples, scorer_of, engine, template)
        self._collector = HeldOutCollector(
            config, tasks.rows, first.player, first.scorer, job.journal, job.stop, job.attempt, parts=parts
        )
        self._in_flight = job.config.rollouts_per_step
        self._done = _earlier(job)

    def due(self, step: int) -> bool:
        """Whether the weights after ``step`` are to be evaluated: every few steps, before the first, after the last."""
        run, every = self._job.config.run, self._job.config.evaluate.every
        last = max(self._done, default=-1)
        return step > last and (step // every > last // every or step == run.max_steps)

    def evaluate(self, step: int) -> bool:
        """Play every task once or as often as is set; whether no weights before had as high a success.

        Journals the rollouts, the figures and the report. Raises as ``Collector.collect`` does.
        """
        job, best = self._job, self.best
        self._settle()
        began = time.monotonic()
        job.enter("evaluating", step)
        played: list[Rollout] = []

        def finished(_step: int, result: StepRollouts) -> None:
            played.extend(result.rollouts)

        places = [place for place in self._tasks.played for _ in range(self._size)]
        self._engine.weights_changed()
        with self._engine.sampling():
            self._collector.stream([(step, places)], in_flight=self._in_flight, finished=finished)
        if self._check is not None:
            self._check(step, [rollout.trajectory for rollout in played])
        report = report_of(sheet_of([_try(rollout) for rollout in played], self._tasks.played))
        success = report.figures["success"].value if "success" in report.figures else None
        self._done[step] = success
        values = _figures(report) | self._figures_of_parts(played) | {"timing/evaluating": time.monotonic() - began}
        job.journal.write(Metrics(step=step, values=values))
        is_best = success is not None and (best is None or success > best)
        job.journal.write(HeldOutEvaluated(step=step, report=report.model_dump(mode="json"), best=is_best))
        if self._evaluated is not None and step > 0:
            self._evaluated(report)
        return is_best

    def _figures_of_parts(self, played: list[Rollout]) -> dict[str, float]:
        """Success and reward of each part of a mix, of its tasks alone."""
        figures: dict[str, float] = {}
        for part in self._segments if len(self._segments) > 1 else ():
            tasks = part.own(self._tasks.played)
            own = report_of(sheet_of([_try(rollout) for rollout in played if part.own([rollout.row])], tasks))
            for name in ("success", "reward"):
                if (figure := own.figures.get(name)) is not None and figure.value is not None:
                    figures[f"parts/{part.name}/heldout_{name}"] = figure.value
        return figures

    @property
    def best(self) -> float | None:
        """The highest success until now: of the run, or where that has stages, since this one began."""
        began = self._job.stage.began if self._job.stage is not None else 0
        own = (value for step, value in self._done.items() if step > began or not began)
        return max((value for value in own if value is not None), default=None)

    def success_of(self, step: int) -> float | None:
        """The success of the weights after ``step``, if they were evaluated."""
        return self._done.get(step)

    def close(self) -> None:
        """Close the event loop."""
        self._collector.close()


def _earlier(job: Job) -> dict[int, float | None]:
    """Success by step of the evaluations that the attempt continues after; later ones are played again."""
    found: dict[int, float | None] = {}
    for folder in (*job.earlier, job.run_dir):
        for _line, event in read_events(folder / JOURNAL_NAME, max_bytes=WHOLE_FILE):
            if isinstance(event, HeldOutEvaluated):
                figure = Report.model_validate(event.report).figures.get("success")
                found[event.step] = figure.value if figure is not None else None
    return {step: success for step, success in found.items() if step <= job.step}


def _try(rollout: Rollout) -> Try:
    trajectory = rollout.trajectory
    calls, failed_calls = trajectory.tool_calls()
    return Try(
        task=rollout.row,
        excluded=rollout.parts is None,
        success=trajectory.env_parts.get(SUCCESS_PART),
        reward=rollout.reward,
        parts=dict(rollout.parts or {}),
        turns=trajectory.turns,
        tokens=trajectory.sampled_tokens,
        seconds=trajectory.seconds,
        parse_errors=trajectory.parse_errors,
        calls=calls or 0,
        failed_calls=failed_calls or 0,
        truncated=trajectory.status == "truncated",
        cost=trajectory.cost,
    )


def _figures(report: Report) -> dict[str, float]:
    """The figures that are drawn over the steps; a figure that is missing is left out."""
    values: dict[str, float] = {"heldout/missing": float(report.excluded)}
    for name in ("success", "reward", "turns", "tokens"):
        figure = report.figures.get(name)
        if figure is not None and figure.value is not None:
            values[f"heldout/{name}"] = figure.value
    success = report.figures.get("success")
    if success is not None and success.low is not None and success.high is not None:
        values |= {"heldout/success_low": success.low, "heldout/success_high": success.high}
    return values


# --- Held out loss --------------------------------------------------------------------------------------------------
# The loss on demonstrations that are held out: when it rises while the loss of training falls, rows are learned by
# heart.
#
# It is the mean over all of their assistants' tokens, whatever the batches. Measuring leaves no trace in the run:
# weights and random states stay as they are.

Example = dict[str, list[int]]
Collator = Callable[[Sequence[Example]], dict[str, Any]]
LOSS, ACCURACY = "heldout/loss", "heldout/token_accuracy"


class HeldOutLoss:
    """Measures the loss of a run's weights on ``examples`` when that is due, in batches of ``size``."""

    def __init__(self, job: Job, trainer: Any, examples: Sequence[Example], collator: Collator, size: int) -> None:
        self._job = job
        self._trainer = trainer
        # Rows of one length share a batch: its width is computed for all; sums do not depend on their order.
        self._examples = sorted(examples, key=lambda example: len(example["input_ids"]), reverse=True)
        self._collator = collator
        self._size = size
        self._last = _measured(job)

    def due(self, step: int) -> bool:
        """Whether the weights after ``step`` are measured: every few steps, before the first, after the last."""
        run, every = self._job.config.run, self._job.config.sft.held_out_every
        return step > self._last and (step // every > self._last // every or step == run.max_steps)

    def evaluate(self, step: int) -> bool:
        """Journal the loss and the share of tokens that are the model's top choice. Nothing is saved because of it."""
        job = self._job
        job.enter("evaluating", step)
        states, began = random_states(), time.monotonic()
        try:
            loss, hits, tokens = self._sums()
        finally:
            restore_random(states)
        self._last = step
        values = {LOSS: loss / tokens, ACCURACY: hits / tokens, "timing/evaluating": time.monotonic() - began}
        job.journal.write(Metrics(step=step, values=values))
        if 0 < step < job.config.run.max_steps:
            job.enter("training", step + 1)
        return False

    def _sums(self) -> tuple[float, float, float]:
        """The loss of all tokens, how many are the top choice, and how many there are."""
        import torch

        trainer, sums = self._trainer, [0.0, 0.0, 0.0]
        model = trainer.model
        training = model.training
        model.eval()
        try:
            with torch.no_grad(), trainer.compute_loss_context_manager():
                for begin in range(0, len(self._examples), self._size):
                    self._job.check_stop()
                    batch = self._collator(self._examples[begin : begin + self._size])
                    given = {name: value.to(trainer.accelerator.device) for name, value in batch.items()}
                    found = model(**given, use_cache=False, fused_lm_head=True)
                    for place, value in enumerate((-found.log_probs, found.is_top1, found.label_mask)):
                        sums[place] += float(value.sum())
        finally:
            model.train(training)
        return sums[0], sums[1], sums[2]


def _measured(job: Job) -> int:
    """The last measured step up to where the attempt continues; -1 where none was."""
    last = -1
    for folder in (*job.earlier, job.run_dir):
        for _line, event in read_events(folder / JOURNAL_NAME, max_bytes=WHOLE_FILE):
            if isinstance(event, Metrics) and LOSS in event.values and event.step <= job.step:
                last = max(last, event.step)
    return last
