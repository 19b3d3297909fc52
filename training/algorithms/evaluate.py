"""Evaluate: every task of a set is played the same number of times and scored; nothing is trained.

Two evaluations with the same tasks, seed and tries are paired: each try of a task meets the same episode, whoever
plays. A step is ``rollout.prompts_per_step`` tasks; steps overlap, so that slow rollouts delay nobody. A later attempt
goes on after the last step that an earlier one finished.
"""

from __future__ import annotations

from pathlib import Path

from training.algorithms.cast import Cast, cast_of, prepare
from training.algorithms.drawing import playable
from training.algorithms.job import Job
from training.config import JobConfig, RewardComponent
from training.data.schema import Row
from training.evaluation.recorded import REPORT_NAME, evaluation_of
from training.evaluation.suites import drawn_tasks, evaluated_places
from training.events import Metrics
from training.garbage import few_collections
from training.rewards.base import Episode, Score
from training.rewards.combining import SCHEDULES_ENDED
from training.rewards.scoring import score_episode
from training.rollout.figures import sample_figures
from training.rollout.past import read_past
from training.rollout.streaming import StreamingCollector
from training.rollout.trajectory import StepRollouts


def run_evaluate(job: Job) -> None:
    """Play and score every task. Raises typed errors, ``StopRequested`` among them."""
    config = job.config
    components, rows = prepare(job)
    with cast_of(job, rows) as cast:
        fits = set(playable(job, rows, cast.player.template))
        drawn = drawn_tasks(config, evaluated_places(config, rows))
        tasks = [place for place in drawn if place in fits]
        steps = steps_of(config, tasks)
        job.check_stop()
        job.started(len(tasks), cast.device, min(job.steps_done(), len(steps)), len(steps))
        with few_collections():
            _play(job, rows, steps, components, cast)
    _report(job, drawn)


def _report(job: Job, tasks: list[int]) -> None:
    """Say what came out, and leave it as JSON beside the journal."""
    report = evaluation_of([*job.earlier, job.run_dir], tasks)
    (job.run_dir / REPORT_NAME).write_text(report.model_dump_json(indent=1) + "\n", encoding="utf-8")
    for name in ("success", "reward"):
        found = report.figures.get(name)
        if found is not None and found.value is not None:
            ends = f" (95%: {found.low:.4g} to {found.high:.4g})" if found.low is not None else ""
            job.log(f"{name}: {found.value:.4g}{ends} over {found.tasks} tasks")
    if report.excluded or report.missing_tasks:
        job.log(f"{report.excluded} tries are missing, and {report.missing_tasks} tasks wholly.", "warning")


def steps_of(config: JobConfig, tasks: list[int]) -> list[list[int]]:
    """The tasks of each step."""
    size = config.rollout.prompts_per_step
    return [tasks[start : start + size] for start in range(0, len(tasks), size)]


def _play(job: Job, rows: list[Row], steps: list[list[int]], components: list[RewardComponent], cast: Cast) -> None:
    config = job.config

    def score(episode: Episode) -> Score:
        return score_episode(episode, components, step=SCHEDULES_ENDED)

    def finished(step: int, result: StepRollouts) -> None:
        figures = sample_figures(result.rollouts, config.group_size, components, SCHEDULES_ENDED)
        if cast.check is not None:
            figures |= cast.check(step, [rollout.trajectory for rollout in result.rollouts])
        if cast.budget is not None:
            figures |= cast.budget.figures
        job.journal.write(Metrics(step=step, values=result.figures | figures))
        job.step = step

    collector = StreamingCollector(config, rows, cast.player, score, job.journal, job.stop, job.attempt)
    if config.evaluate.continue_from:
        collector.past = read_past(Path(config.evaluate.continue_from))
    todo = [
        (number, [place for place in tasks for _ in range(config.group_size)])
        for number, tasks in enumerate(steps, 1)
        if number > job.step
    ]
    try:
        with cast.player.engine.sampling():
            collector.stream(todo, in_flight=config.rollouts_per_step, finished=finished)
    finally:
        cast.last_spend(job)
        collector.close()
