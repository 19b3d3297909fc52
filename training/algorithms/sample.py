"""Sample: rollouts against the real environment, scored and journalled; nothing is trained.

The model plays, or scripted policies do, which need no model, no tokenizer and no training library. A later attempt
goes on after the last step that an earlier one finished.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from training.algorithms.job import Job, row_order
from training.algorithms.loading import STARTER
from training.algorithms.tasks import playable, reward_components, task_rows
from training.config import RewardComponent
from training.data.schema import Row
from training.errors import ConfigError
from training.journal import JOURNAL_NAME, Metrics, PhaseChanged
from training.rewards.base import Episode, Score
from training.rewards.scoring import score_episode
from training.rollout.collector import Collector
from training.rollout.figures import sample_figures
from training.rollout.holding import wait_for_environment
from training.rollout.players import make_player
from training.rollout.protocols import check_environment
from training.rollout.scripted import scripted_player
from training.rollout.trajectory import Player
from training.tail import last_step

if TYPE_CHECKING:
    from training.policy.check import SamplerCheck


class _Cast(NamedTuple):
    """Who plays, on what device, and the check of a model's sampler."""

    player: Player
    device: str
    check: SamplerCheck | None = None


def run_sample(job: Job) -> None:
    """Play and score ``run.max_steps`` batches. Raises typed errors, ``StopRequested`` among them."""
    config = job.config
    job.journal.write(PhaseChanged(phase="preparing", step=0))
    components = reward_components(config)
    job.keep_replies()
    if config.environment.url:
        place = config.environment
        wait_for_environment(lambda: check_environment(place), place, job.journal.write, job.stop)
    if config.draws_tasks and not (config.environment.url and (config.policies or config.model.source != STARTER)):
        raise ConfigError(
            "without a dataset a run needs an environment that draws tasks, and no starter model.",
            option="data.train",
            hint="Set data.train.",
        )
    rows = task_rows(config)
    job.check_stop()
    with _scripted(job) if config.policies else _model(job, rows) as cast:
        places = playable(job, rows, cast.player.template)
        job.check_stop()
        job.started(len(places), cast.device, _steps_done(job))
        _play(job, rows, places, components, cast)


def _play(job: Job, rows: list[Row], places: list[int], components: list[RewardComponent], cast: _Cast) -> None:
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
            job.journal.write(Metrics(step=step, values=result.figures | figures))
            job.step = step
    finally:
        collector.close()


@contextmanager
def _scripted(job: Job) -> Iterator[_Cast]:
    yield _Cast(scripted_player(job.config), "none")


@contextmanager
def _model(job: Job, rows: list[Row]) -> Iterator[_Cast]:
    """The model of the job, as GRPO would sample it."""
    from training.algorithms.loading import (
        autocast_dtype,
        fetch_model,
        load_model,
        load_tokenizer,
        prepare_device,
        revision_of,
    )
    from training.policy.check import SamplerCheck, forward_logprobs, tolerance_for
    from training.policy.make import make_engine
    from training.rollout.tokens import ChatTemplate

    config = job.config
    device = prepare_device(config)
    tokenizer, note = load_tokenizer(folder := fetch_model(config, rows, job.run_dir))
    job.resolved |= revision_of(folder)
    if note:
        job.log(note, "warning")
    job.check_stop()
    model = load_model(config, folder, device).to(device).eval()
    autocast = autocast_dtype(device)
    engine = make_engine(config, model, tokenizer, autocast=autocast, log=job.log)
    logprobs = forward_logprobs(model, temperature=config.rollout.temperature, autocast=autocast)
    try:
        player = make_player(config, engine, ChatTemplate(tokenizer))
        yield _Cast(player, device, SamplerCheck(logprobs, tolerance_for(model, autocast), job.journal.write))
    finally:
        engine.close()


def _steps_done(job: Job) -> int:
    """The last step that an earlier attempt of this run finished, as its journal tells."""
    return next((step for folder in reversed(job.earlier) if (step := last_step(folder / JOURNAL_NAME))), 0)
