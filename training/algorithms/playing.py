"""Methods that train nothing: evaluate a set of tasks, or sample rollouts; and who plays there."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from training.algorithms.drawing import playable, reward_components, task_rows
from training.algorithms.job import Job, row_order
from training.algorithms.loading import STARTER
from training.chat_client import complete
from training.config import JobConfig, RewardComponent
from training.data.schema import Row
from training.errors import ConfigError, EndpointAway, StopRequested
from training.evaluation.figures import REPORT_NAME, drawn_tasks, evaluated_places, evaluation_of
from training.garbage import few_collections
from training.journal import JOURNAL_NAME, Metrics, read_events
from training.rewards.base import Episode, Score
from training.rewards.combining import SCHEDULES_ENDED
from training.rewards.scoring import score_episode
from training.rollout.collector import Collector, StreamingCollector
from training.rollout.endpoint import Budget, EndpointPlayer, budget_of, endpoint_of, endpoint_player
from training.rollout.figures import sample_figures
from training.rollout.holding import wait_for_environment
from training.rollout.players import make_player, scripted_player
from training.rollout.protocols import check_environment
from training.rollout.rewinding import read_past
from training.rollout.trajectory import Player, StepRollouts

if TYPE_CHECKING:
    from training.policy.check import SamplerCheck


# Who plays where nothing is trained: the job's model, or scripted policies, which need no training library.


class Cast(NamedTuple):
    """Who plays, on what device, the check of a model's sampler, and what an endpoint may use."""

    player: Player
    device: str
    check: SamplerCheck | None = None
    budget: Budget | None = None

    def last_spend(self, job: Job) -> None:
        """Journal what was used in the end: rollouts that were cut off have used something as well."""
        if self.budget is not None:
            with suppress(OSError):  # a full disk has been reported already
                job.journal.write(Metrics(step=job.step, values=self.budget.figures))


def prepare(job: Job) -> tuple[list[RewardComponent], list[Row]]:
    """What rollouts are scored by and the tasks they play, once the environment answers. Raises typed errors."""
    job.enter("preparing", 0)
    components = reward_components(job.config)
    job.keep_replies()
    _meet_environment(job)
    rows = task_rows(job.config)
    job.check_stop()
    return components, rows


def _meet_environment(job: Job) -> None:
    """Wait until the environment answers, if the job has one. Raises ``ConfigError`` where nothing names the tasks."""
    config = job.config
    if config.environment.url:
        place = config.environment
        wait_for_environment(lambda: check_environment(place), place, job.journal.write, job.stop)
    starter = config.needs_model and config.model.source == STARTER
    if config.draws_tasks and (starter or not config.environment.url):
        raise ConfigError(
            "without a dataset a run needs an environment that draws tasks, and no starter model.",
            option="data.train",
            hint="Set data.train.",
        )


@contextmanager
def cast_of(job: Job, rows: list[Row]) -> Iterator[Cast]:
    """The players of the job, as long as the block lasts."""
    if job.config.policies:
        yield Cast(scripted_player(job.config), "none")
        return
    if job.config.asks_endpoint:
        player = _endpoint(job)
        yield Cast(player, "none", budget=player.budget)
        return
    with _model(job, rows) as cast:
        yield cast


def _endpoint(job: Job) -> EndpointPlayer:
    """An endpoint that has answered once. Raises ``EndpointFault`` where it does not."""
    options = job.config.endpoint
    if not options.url:
        raise ConfigError("is known only in its project.", option="model.source", hint="Set endpoint.url and .model.")
    if options.max_cost and not options.priced:
        raise ConfigError("needs prices.", option="endpoint.max_cost", hint="Set endpoint.price_in and .price_out.")
    budget = budget_of(options)
    for folder in job.earlier:
        for _line, event in read_events(folder / JOURNAL_NAME, max_bytes=1 << 40):
            if isinstance(event, Metrics):
                budget.remember(event.values)
    budget.report = lambda: job.journal.write(Metrics(step=job.step, values=budget.figures))
    player = endpoint_player(job.config, budget, job.journal.write)
    _hello(job, player)
    return player


def _hello(job: Job, player: EndpointPlayer) -> None:
    """Wait until the endpoint has answered once, which is paid for as well."""
    body = {"messages": [{"role": "user", "content": "Say OK."}], "max_tokens": 16}
    while True:
        player.budget.check()
        try:
            reply = asyncio.run(complete(endpoint_of(job.config.endpoint), body))
        except EndpointAway as error:
            if job.stop.wait(player.wait.pause(error)):
                raise StopRequested("The run was asked to stop.") from None
        else:
            player.budget.spend(**reply.tokens)
            return player.wait.answered()


@contextmanager
def _model(job: Job, rows: list[Row]) -> Iterator[Cast]:
    """The model of the job, as GRPO would sample it."""
    from training.algorithms.loading import (
        autocast_dtype,
        fetch_base,
        load_model,
        load_tokenizer,
        prepare_device,
    )
    from training.algorithms.sampler import JobSampler
    from training.policy.check import forward_logprobs
    from training.rollout.templates import require_calls
    from training.rollout.tokens import ChatTemplate

    config = job.config
    device = prepare_device(config)
    tokenizer, note = load_tokenizer(folder := fetch_base(job, rows))
    if note:
        job.log(note, "warning")
    template = ChatTemplate(tokenizer)
    require_calls(template, config, rows)
    job.check_stop()
    with closing(JobSampler(job, folder, device)) as sampler:
        model = load_model(config, folder, device).to(device).eval()
        autocast = autocast_dtype(device)
        logprobs = forward_logprobs(model, temperature=config.rollout.temperature, autocast=autocast)
        engine, check = sampler.engine(model, tokenizer, logprobs, autocast)
        yield Cast(make_player(config, engine, template), device, check)


# Evaluate: every task of a set is played the same number of times and scored; nothing is trained.
#
# Two evaluations with the same tasks, seed and tries are paired: each try of a task meets the same episode for every
# player. A step is ``rollout.prompts_per_step`` tasks; steps overlap, so that slow rollouts delay no others. A later
# attempt continues after the last step that an earlier one finished.


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
            _play_set(job, rows, steps, components, cast)
    _report(job, drawn)


def _report(job: Job, tasks: list[int]) -> None:
    """Log the result, and leave it as JSON next to the journal."""
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


def _play_set(job: Job, rows: list[Row], steps: list[list[int]], components: list[RewardComponent], cast: Cast) -> None:
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


# Sample: rollouts against the real environment, scored and journalled; nothing is trained.
#
# The model plays, or an endpoint or scripted policies do, which need no model, no tokenizer and no training library. A
# later attempt continues after the last step that an earlier one finished.


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
            _play_samples(job, rows, places, components, cast)


def _play_samples(job: Job, rows: list[Row], places: list[int], components: list[RewardComponent], cast: Cast) -> None:
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
