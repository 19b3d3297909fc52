"""Sampling in the trainer's own process, from the very weights that are being trained.

How requests become batches:
 1. ``generate`` puts a request in the queue and wakes the worker thread if it sleeps.
 2. The worker takes what is ready. An idle worker first waits ``GATHER_S``, so that requests made together start
    together.
 3. A running batch admits newcomers when they are a quarter of it or have waited ``ADMIT_AFTER_STEPS`` decode steps:
    one prefill for many is far cheaper than one for each.
 4. Finished rows are answered at once and cut out of the batch when they are a quarter of it. Their cache is parked,
    so that the episode's next turn feeds only what came after.
 5. With nothing running and nothing queued the worker ends; the next request starts it again.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch

from training.errors import PolicyFault
from training.policy.attention import grouped_decoding
from training.policy.batch import DecodeBatch
from training.policy.engine import Sample
from training.policy.parking import Parking, Place, restore
from training.policy.sampling import SamplingParams, draw, uniform_draws

GATHER_S = 0.002
ADMIT_AFTER_STEPS = 6
PREFILL_TOKENS = 16_384


@dataclass(eq=False)
class _Request:
    """A turn being sampled."""

    prompt_ids: list[int]
    max_tokens: int
    uniforms: list[float]
    episode: str
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Sample]
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    done: bool = False
    place: Place | None = None
    stale: int = 0  # columns of its row that were fed after the last id but one

    @property
    def new_ids(self) -> list[int]:
        """What the model has not seen of the prompt."""
        return self.prompt_ids[len(self.place.ids) :] if self.place is not None else self.prompt_ids


class TransformersEngine:
    """Samples from a Hugging Face causal model with full-attention layers, on its own device.

    ``stop_ids`` end a turn. Use inside ``sampling()``, which puts the model into eval mode and restores its mode after.
    ``autocast`` is the precision that the trainer computes its loss in, if it is another than the weights'.
    """

    def __init__(
        self, model: Any, *, stop_ids: set[int], params: SamplingParams, autocast: torch.dtype | None = None
    ) -> None:
        self._model = model
        self._stop_ids = stop_ids
        self._params = params
        self._autocast = autocast
        self._lock = threading.Lock()
        self._queue: list[_Request] = []
        self._running = False
        self._aborted = False
        self._busy_s = 0.0
        self._parking = Parking()
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="sampler")

    @property
    def busy_seconds(self) -> float:
        """Seconds in which the worker computed, since the engine was made."""
        return self._busy_s

    @contextmanager
    def sampling(self) -> Iterator[None]:
        """Eval mode for the block, where modules were in training mode; on the way out pending turns are dropped."""
        training = [module for module in self._model.modules() if module.training]
        self._model.eval()
        self._aborted = False
        with grouped_decoding(self._model):
            try:
                yield
            finally:
                self._aborted = True
                self._pool.submit(lambda: None).result()  # the single worker has left the model when this ran
                self._parking.clear()
                for module in training:
                    module.training = True

    async def generate(self, prompt_ids: list[int], *, max_tokens: int, seed: int, episode: str = "") -> Sample:
        """See ``Engine.generate``."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Sample] = loop.create_future()
        request = _Request(prompt_ids, max_tokens, uniform_draws(seed, max_tokens).tolist(), episode, loop, future)
        with self._lock:
            self._queue.append(request)
            start, self._running = not self._running, True
        if start:
            self._pool.submit(self._work)
        return await future

    def release(self, episode: str) -> None:
        """See ``Engine.release``."""
        self._parking.release(episode)

    def close(self) -> None:
        """End the worker thread."""
        self._aborted = True
        self._pool.shutdown(wait=True, cancel_futures=True)

    # --- worker thread -------------------------------------------------------------------------------------------

    def _work(self) -> None:
        rows: list[_Request] = []
        time.sleep(GATHER_S)
        began = time.monotonic()
        try:
            with torch.inference_mode(), self._precision():
                self._decode_until_idle(rows)
        except Exception as exc:  # the boundary of the model: whatever it raises ends the turns, not the run
            with self._lock:
                waiting, self._queue, self._running = self._queue, [], False
            error = PolicyFault(f"Sampling failed: {type(exc).__name__}: {str(exc)[:300]}")
            _answer([(request, error) for request in rows + waiting])
        finally:
            self._busy_s += time.monotonic() - began

    def _precision(self) -> AbstractContextManager[Any]:
        if self._autocast is None:
            return nullcontext()
        return torch.autocast(next(self._model.parameters()).device.type, self._autocast)

    def _decode_until_idle(self, rows: list[_Request]) -> None:
        batch: DecodeBatch | None = None
        waited = 0
        while not self._aborted:
            live = [request for request in rows if not (request.done or request.future.cancelled())]
            admitted = self._admit(len(live), waited)
            if admitted is None:
                self._park(batch, rows)
                return
            newcomers, waited = admitted
            if not live and not newcomers:
                continue
            if batch is not None and (newcomers or len(live) <= 0.75 * len(rows)):
                batch = self._compact(batch, rows, live)
            if newcomers:
                for request in newcomers:
                    request.place = self._parking.take(request.episode, request.prompt_ids)
                newcomers.sort(key=lambda request: (request.place is not None, len(request.new_ids)))
                rows.extend(newcomers)  # before the prefill, so that its failure is answered to them too
                batch = self._prefill(batch, newcomers)
            assert batch is not None  # noqa: S101 - there is a live row, so there is a batch
            self._advance(batch, rows)
        with self._lock:
            self._running, dropped, self._queue = False, self._queue, []
        _answer([(request, PolicyFault("Sampling was stopped.")) for request in rows + dropped])

    def _admit(self, live: int, waited: int) -> tuple[list[_Request], int] | None:
        """Newcomers to take in now, and for how many steps others have waited; ``None`` when the worker may end.

        The check for work and the decision to end are one atomic act, or a request made between them would wait for
        ever.
        """
        with self._lock:
            queued = len(self._queue)
            if not queued:
                self._running = live > 0
                return ([], 0) if live else None
            if live and queued < live / 4 and waited < ADMIT_AFTER_STEPS:
                return [], waited + 1
            taken, self._queue = self._queue, []
        return [request for request in taken if not request.future.cancelled()], 0

    def _compact(self, batch: DecodeBatch, rows: list[_Request], live: list[_Request]) -> DecodeBatch | None:
        """Cut the rows that ended out of the batch and park them; ``rows`` becomes ``live``."""
        staying = set(live)
        kept = [index for index, request in enumerate(rows) if request in staying]
        self._park(batch, rows)
        whole = len(kept) == len(rows)
        rows[:] = live
        if not kept:
            return None
        return batch if whole else batch.select(kept)

    def _park(self, batch: DecodeBatch | None, rows: list[_Request]) -> None:
        ended = [index for index, request in enumerate(rows) if request.done and request.episode]
        if batch is None or not ended:
            return
        leaving = [rows[index] for index in ended]
        block = batch.select(ended, [request.stale for request in leaving])
        self._parking.park(block, [(request.episode, request.prompt_ids + request.ids[:-1]) for request in leaving])

    def _prefill(self, batch: DecodeBatch | None, newcomers: list[_Request]) -> DecodeBatch:
        """Bring the newcomers' prompts into the batch; those with a place are after the others."""
        device = next(self._model.parameters()).device
        parts = [batch] if batch is not None else []
        for chunk in _chunks(newcomers):
            places = [request.place for request in chunk if request.place is not None]
            if places:
                more = restore(places)
                more.extend(self._model, [request.new_ids for request in chunk])
                for request in chunk:
                    request.place = None  # it would keep the whole block alive while the row is decoded
            else:
                more = DecodeBatch.prefill(self._model, [request.prompt_ids for request in chunk], device)
            parts.append(more)
        return DecodeBatch.joined(parts)

    def _advance(self, batch: DecodeBatch, rows: list[_Request]) -> None:
        """Draw one token for each row, answer the rows that end with it, and feed it to the model."""
        uniforms = torch.tensor([r.uniforms[min(len(r.ids), r.max_tokens - 1)] for r in rows])
        ids, logprobs = draw(batch.logits, uniforms.to(batch.logits.device), self._params)
        answers: list[tuple[_Request, Sample]] = []
        for request, token, logprob in zip(rows, ids.tolist(), logprobs.tolist(), strict=True):
            if request.done:
                continue
            request.ids.append(token)
            request.logprobs.append(logprob)
            finished = token in self._stop_ids
            if finished or len(request.ids) >= request.max_tokens:
                answers.append((request, Sample(request.ids, request.logprobs, finished)))
        _answer(answers)
        if not all(request.done for request in rows):
            batch.step(self._model, ids)
            for request in rows:
                request.stale += request.done


def _chunks(requests: list[_Request]) -> Iterator[list[_Request]]:
    """Neighbours of similar length, with or without a place, at most ``PREFILL_TOKENS`` padded new ids together.

    The requests are sorted: those with a place last, and each kind by its new ids.
    """
    chunk: list[_Request] = []
    for request in requests:
        other_kind = bool(chunk) and (chunk[0].place is None) != (request.place is None)
        if chunk and (other_kind or len(request.new_ids) * (len(chunk) + 1) > PREFILL_TOKENS):
            yield chunk
            chunk = []
        chunk.append(request)
    yield chunk


def _answer(answers: Sequence[tuple[_Request, Sample | PolicyFault]]) -> None:
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
