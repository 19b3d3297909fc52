"""The program: answers jobs, one after another, until its parent closes the pipe.

The parent counts the wall time of a job. What a parent that was killed can no longer do, the kernel does: a job that
uses more than its processor time ends the process. A pattern has a limit of its own of both.
"""

from __future__ import annotations

import math
import os
import resource
import sys
from collections.abc import Iterator

from training.config import RewardComponent
from training.errors import RewardFault, TiltyardError, boundary
from training.rewards.base import Component, Params
from training.rewards.custom import CUSTOM
from training.rewards.patterns import count_wall_time
from training.rewards.scorer.wire import READY, Asked, Job, Said, job_of, said_line
from training.rewards.scoring import not_here, raw_value, resolve, summed
from training.words import Sentence

NICE = 5  # below the web server, which answers all users


def main() -> None:
    """Answer until the pipe closes."""
    os.nice(NICE)
    count_wall_time()
    with os.fdopen(os.dup(1), "wb") as out:
        os.dup2(2, 1)  # what a library prints is no answer
        out.write(READY + b"\n")
        out.flush()
        for text in sys.stdin.buffer:
            for answer in answers(job_of(text)):
                out.write(said_line(answer))
                out.flush()


def answers(asked: Job) -> Iterator[Said]:
    """What each component says of each episode, in the order of the job."""
    _allow(asked.cpu_s)
    for one in asked.asked:
        yield from (answer_of(item, one) for item in one.components)


def answer_of(item: RewardComponent, asked: Asked) -> Said:
    """What one component says: the pieces of text first, so that a value that is missing does not take them along."""
    found = Said()
    try:
        component, params = resolve(item)
        if asked.spans and component.spans is not None:
            with boundary(RewardFault, f"looking for the words of `{item.name}`"):
                found.spans = component.spans(asked.episode, params)[: asked.spans]
        if asked.values and item.name not in asked.known:
            found.value = _component_value(item, component, params, asked)
    except TiltyardError as exc:
        found.why, found.code = Sentence.of(exc.message), exc.code
    return found


def _component_value(item: RewardComponent, component: Component, params: Params, asked: Asked) -> float:
    if component.outside and not (asked.sandbox and item.registered == CUSTOM):
        raise not_here(item)
    value = raw_value(item.name, component, params, asked.episode)
    if asked.weighed:
        summed({item.name: value}, [item.model_copy(update={"gate": None})])
    return value


def _allow(seconds: float) -> None:
    """Let this process use so much more processor time before the kernel ends it."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    limit = math.ceil(used.ru_utime + used.ru_stime + seconds)
    resource.setrlimit(resource.RLIMIT_CPU, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))
