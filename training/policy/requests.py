"""Turns that wait for the sampler or are in its batch, and their answers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from training.errors import PolicyFault
from training.policy.engine import Sample, Watch
from training.policy.memory import Place


@dataclass(eq=False)
class Request:
    """A turn being sampled. ``stale``: columns of its row that were fed after the last id but one."""

    prompt_ids: list[int]
    max_tokens: int
    uniforms: list[float]
    episode: str
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Sample]
    watch: Watch | None = None
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    done: bool = False
    place: Place | None = None
    stale: int = 0

    @property
    def live(self) -> bool:
        """Whether somebody still waits for it."""
        return not (self.done or self.future.cancelled())

    @property
    def to_feed(self) -> list[int]:
        """What the model has not seen: of the prompt, and of the turn if it begins again after memory ran out."""
        known = len(self.place.ids) if self.place is not None else 0
        return (self.prompt_ids + self.ids)[known:]

    @property
    def most_columns(self) -> int:
        """Tokens of prompt and turn at its longest."""
        return len(self.prompt_ids) + self.max_tokens

    def add(self, token: int, logprob: float, *, ends: bool) -> Sample | None:
        """Take a drawn token; the whole turn if it is over."""
        self.ids.append(token)
        self.logprobs.append(logprob)
        if self.watch is not None:
            self.watch.on_token(token)
        if ends or len(self.ids) >= self.max_tokens:
            return Sample(self.ids, self.logprobs, ends)
        return None

    def begin_again(self) -> None:
        """Its row is lost; the tokens drawn so far stay."""
        self.place, self.stale = None, 0


def chunks(requests: list[Request], most_tokens: int) -> Iterator[list[Request]]:
    """Neighbours of similar length, with or without a place, at most so many padded new ids together.

    The requests are sorted: those with a place last, and each kind by its new ids.
    """
    chunk: list[Request] = []
    for request in requests:
        other_kind = bool(chunk) and (chunk[0].place is None) != (request.place is None)
        if chunk and (other_kind or len(request.to_feed) * (len(chunk) + 1) > most_tokens):
            yield chunk
            chunk = []
        chunk.append(request)
    yield chunk


def answer(answers: Sequence[tuple[Request, Sample | PolicyFault]]) -> None:
    """Hand outcomes to the coroutines that wait for them, from the worker thread; one wake-up for each event loop."""
    for request, _ in answers:
        request.done = True
    for loop in {request.loop for request, _ in answers}:
        theirs = [(request.future, outcome) for request, outcome in answers if request.loop is loop]
        try:
            loop.call_soon_threadsafe(_settle, theirs)
        except RuntimeError:
            continue  # the event loop is gone: nobody waits any more


def _settle(outcomes: list[tuple[asyncio.Future[Sample], Sample | PolicyFault]]) -> None:
    for future, outcome in outcomes:
        if future.done():
            continue
        if isinstance(outcome, Sample):
            future.set_result(outcome)
        else:
            future.set_exception(outcome)
