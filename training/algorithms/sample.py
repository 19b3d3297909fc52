"""Sample: rollouts against the real environment, scored and journalled; nothing is trained.

The model plays, or an endpoint or scripted policies do, which need no model, no tokenizer and no training library. A
later attempt goes on after the last step that an earlier one finished.
"""

from __future__ import annotations

from training.algorithms.cast import Cast, cast_of, prepare
from training.algorithms.drawing import playable
from training.algorithms.job import Job, row_order
from training.config import RewardComponent
from training.data.schema import Row
from training.events import Metrics
from training.garbage import few_collections
from training.rewards.base import Episode, Score
from training.rewards.scoring import score_episode
from training.rollout.collector import Collector
from training.rollout.figures import sample_figures


def run_sample(job: Job) -> None:
    """Play and score ``run.max_steps`` batches, or fewer where the time budget is over.

    Raises typed errors, ``StopRequested`` among them.
    """
    components, rows = prepare(job)
    with cast_of(job, rows) as cast:
        places = playable(job, rows, cast.player.template)
        job.check_stop()
        job.started(len(places), cast.device, job.steps_done())
        with few_collections():
            _play(job, rows, places, components, cast)


def _play(job: Job, rows: list[Row], places: list[int], components: list[RewardComponent], cast: Cast) -> None:
    config = job.config
    prompts, steps = config.rollout.prompts_per_step, config.run.max_steps
    order = row_order(len(places), prompts * steps, seed=config.run.seed, shuffle=config.data.shuffle)

    def score(episode: Episode) -> Score:
        return score_episode(episode, components, step=job.step + 1)

    collector = Collector(config, rows, cast.player, score, job.journal, job.stop, job.attempt)
    try:
        for step in range(job.step + 1, steps + 1):
            job.check_stop()
            chosen = [places[place] for place in order[(step - 1) * prompts : step * prompts]]
            with cast.player.engine.sampling():
                result = collector.collect(step, [place for place in chosen for _ in range(config.group_size)])
            figures = sample_figures(result.rollouts, config.group_size, components, step)
            if cast.check is not None:
                figures |= cast.check(step, [rollout.trajectory for rollout in result.rollouts])
            if cast.budget is not None:
                figures |= cast.budget.figures
            figures |= job.time_figures()
            job.journal.write(Metrics(step=step, values=result.figures | figures))
            job.step = step
            if job.time_is_over(figures):
                return
    finally:
        cast.last_spend(job)
        collector.close()
