"""Who plays where nothing is trained: the job's model, or scripted policies, which need no training library."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING, NamedTuple

from training.algorithms.drawing import reward_components, task_rows
from training.algorithms.job import Job
from training.algorithms.loading import STARTER
from training.chat_client import complete
from training.config import RewardComponent
from training.data.schema import Row
from training.errors import ConfigError, EndpointAway, StopRequested
from training.events import Metrics, PhaseChanged
from training.journal import JOURNAL_NAME, read_events
from training.rollout.endpoint import Budget, EndpointPlayer, budget_of, endpoint_of, endpoint_player
from training.rollout.holding import wait_for_environment
from training.rollout.players import make_player
from training.rollout.protocols import check_environment
from training.rollout.scripted import scripted_player
from training.rollout.trajectory import Player

if TYPE_CHECKING:
    from training.policy.check import SamplerCheck


class Cast(NamedTuple):
    """Who plays, on what device, the check of a model's sampler, and what an endpoint may use."""

    player: Player
    device: str
    check: SamplerCheck | None = None
    budget: Budget | None = None

    def last_spend(self, job: Job) -> None:
        """Journal what was used in the end: rollouts that were cut off have used something as well."""
        if self.budget is not None:
            with suppress(OSError):  # a full disk has been told already
                job.journal.write(Metrics(step=job.step, values=self.budget.figures))


def prepare(job: Job) -> tuple[list[RewardComponent], list[Row]]:
    """What rollouts are scored by and the tasks they play, once the environment answers. Raises typed errors."""
    job.journal.write(PhaseChanged(phase="preparing", step=0))
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
    """Whoever plays the job, as long as the block lasts."""
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
    budget.tell = lambda: job.journal.write(Metrics(step=job.step, values=budget.figures))
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
