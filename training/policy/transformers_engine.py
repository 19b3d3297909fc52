"""Sampling in the trainer's own process, from the very weights that are being trained.

How requests become batches:
 1. ``generate`` puts a request in the queue and wakes the worker thread if it sleeps.
 2. The worker takes what is ready. An idle worker first waits ``GATHER_S``, so that requests made together start
    together.
 3. A running batch admits newcomers when they are a quarter of it or have waited ``ADMIT_AFTER_STEPS`` decode steps:
    one prefill for many is far cheaper than one for each. It admits as many as memory holds at their longest; the
    others wait in the queue.
 4. Finished rows are answered at once and cut out of the batch when they are a quarter of it. On the fast path their
    cache is parked, so that the episode's next turn feeds only what came after; on the plain path each turn feeds the
    whole prompt.
 5. With nothing running and nothing queued the worker ends; the next request starts it again.
 6. When memory runs out, the cache is dropped and the rows begin again, with the tokens that they have drawn, half as
    many at once.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from training.errors import PolicyFault
from training.policy.attention import DecodeBatch, sampling_attention
from training.policy.engine import EngineFigures, Sample, SamplingParams, Watch
from training.policy.memory import (
    BATCH_SHARE,
    PARKED_SHARE,
    Parking,
    Place,
    RowCost,
    free_bytes,
    is_out_of_memory,
    measure_row,
    restore,
)

# Turns that wait for the sampler or are in its batch, and their answers.


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
        """Whether a caller still waits for it."""
        return not (self.done or self.future.cancelled())

    @property
    def to_feed(self) -> list[int]:
        """Ids that the model has not seen: of the prompt, and of the turn if it begins again after memory ran out."""
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
            continue  # the event loop is gone: no caller waits any more


def _settle(outcomes: list[tuple[asyncio.Future[Sample], Sample | PolicyFault]]) -> None:
    for future, outcome in outcomes:
        if future.done():
            continue
        if isinstance(outcome, Sample):
            future.set_result(outcome)
        else:
            future.set_exception(outcome)


# Drawing tokens: temperature, top-k, top-p and the inverse-CDF draw that makes sampling independent of batching.


def uniform_draws(seed: int, count: int) -> Tensor:
    """``count`` uniform numbers in [0, 1) for one turn, float32 on the CPU, fixed by ``seed``."""
    generator = torch.Generator().manual_seed(seed & 0x7FFF_FFFF_FFFF_FFFF)
    return torch.rand(count, generator=generator)


def draw(logits: Tensor, uniforms: Tensor, params: SamplingParams) -> tuple[Tensor, Tensor]:
    """Draw one token a row. ``logits`` (batch, vocabulary), ``uniforms`` (batch,); gives ids and log-probabilities
    (batch,).

    The log-probability is the one of the temperature-scaled distribution, before top-k and top-p. Nucleus sampling:
    Holtzman et al. 2020.
    """
    logprobs = torch.log_softmax(logits.float() / params.temperature, dim=-1)
    if params.top_k > 0 or params.top_p < 1:
        return _draw_cut(logprobs, uniforms, params)
    cumulative = logprobs.exp().cumsum(dim=-1)
    ids = _pick(cumulative, uniforms)
    return ids, logprobs.gather(-1, ids.unsqueeze(-1)).squeeze(-1)


def draw_rows(logits: Tensor, uniforms: Tensor, params: Sequence[SamplingParams]) -> tuple[Tensor, Tensor]:
    """``draw`` with parameters of each row's own, (batch,) of them; rows do not depend on each other."""
    kinds = set(params)
    if len(kinds) == 1:
        return draw(logits, uniforms, params[0])
    ids = torch.empty(len(params), dtype=torch.long, device=logits.device)
    logprobs = torch.empty(len(params), device=logits.device)
    for kind in kinds:
        rows = torch.tensor([row for row, own in enumerate(params) if own == kind], device=logits.device)
        ids[rows], logprobs[rows] = draw(logits[rows], uniforms[rows], kind)
    return ids, logprobs


def _draw_cut(logprobs: Tensor, uniforms: Tensor, params: SamplingParams) -> tuple[Tensor, Tensor]:
    size = min(params.top_k, logprobs.shape[-1]) if params.top_k > 0 else logprobs.shape[-1]
    top, order = logprobs.topk(size, dim=-1)  # sorted, likeliest first
    kept = top.exp()
    if params.top_p < 1:
        share = kept / kept.sum(dim=-1, keepdim=True)
        # A token stays while the mass before it is below top_p, so at least one always stays.
        kept = kept * ((share.cumsum(dim=-1) - share) < params.top_p)
    choice = _pick(kept.cumsum(dim=-1), uniforms)
    ids = order.gather(-1, choice.unsqueeze(-1)).squeeze(-1)
    return ids, top.gather(-1, choice.unsqueeze(-1)).squeeze(-1)


def _pick(cumulative: Tensor, uniforms: Tensor) -> Tensor:
    """Index of the first cumulative mass above the row's uniform share of the total."""
    total = cumulative[:, -1:]
    picked = torch.searchsorted(cumulative, uniforms.to(cumulative).unsqueeze(-1) * total, right=True)
    # A product that rounds up to the total would fall behind the last token with any mass.
    last = torch.searchsorted(cumulative, total.contiguous(), right=False)
    return torch.minimum(picked, last).squeeze(-1)


GATHER_S = 0.002
ADMIT_AFTER_STEPS = 6
PREFILL_TOKENS = 16_384
_MEMORY_HINT = (
    "Lower rollout.max_prompt_tokens or rollout.max_completion_tokens, choose a smaller model, "
    "or use a machine with more memory."
)


class TransformersEngine:
    """Samples from a Hugging Face causal model on its own device.

    ``stop_ids`` end a turn. Use inside ``sampling()``, which puts the model into eval mode and restores its mode after.
    ``autocast`` is the precision that the trainer computes its loss in, if it is another than the weights'.
    ``parks`` is the fast path: the caches of waiting episodes are kept (see ``engine``).
    """

    def __init__(
        self,
        model: Any,
        *,
        stop_ids: set[int],
        params: SamplingParams,
        autocast: torch.dtype | None = None,
        parks: bool = True,
    ) -> None:
        self._model = model
        self._stop_ids = stop_ids
        self._params = params
        self._autocast = autocast
        self._parks = parks
        self._lock = threading.Lock()
        self._queue: list[Request] = []
        self._began: float | None = None  # when the worker was woken; None while it sleeps
        self._aborted = False
        self._done = EngineFigures()
        self._version = 0
        self._parking = Parking()
        self._budget = 0
        self._row_limit: int | None = None
        self._cost: RowCost | None = None
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="sampler")

    @property
    def figures(self) -> EngineFigures:
        """See ``Engine.figures``."""
        with self._lock:
            return self._counted() if self._began is not None else self._done

    @property
    def version(self) -> int:
        """See ``Engine.version``."""
        return self._version

    def weights_changed(self) -> int:
        """See ``Engine.weights_changed``."""
        self._parking.clear()
        self._version += 1
        return self._version

    @contextmanager
    def sampling(self) -> Iterator[None]:
        """Eval mode for the block, where modules were in training mode; on the way out pending turns are dropped."""
        training = [module for module in self._model.modules() if module.training]
        self._model.eval()
        self._aborted = False
        free = free_bytes(self._device)
        self._budget, self._parking.budget = int(BATCH_SHARE * free), int(PARKED_SHARE * free)
        with sampling_attention(self._model, gaps=self._parks):
            try:
                yield
            finally:
                self._aborted = True
                self._pool.submit(lambda: None).result()  # the single worker has left the model when this ran
                self._parking.clear()
                for module in training:
                    module.training = True

    async def generate(
        self, prompt_ids: list[int], *, max_tokens: int, seed: int, episode: str = "", watch: Watch | None = None
    ) -> Sample:
        """See ``WatchedEngine.generate``."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Sample] = loop.create_future()
        uniforms = uniform_draws(seed, max_tokens).tolist()
        request = Request(prompt_ids, max_tokens, uniforms, episode, loop, future, watch)
        with self._lock:
            self._queue.append(request)
            start = self._began is None
            if start:
                self._began = time.monotonic()
        if start:
            self._pool.submit(self._work)
        return replace(await future, version=self._version)

    def release(self, episode: str) -> None:
        """See ``Engine.release``."""
        self._parking.release(episode)

    def close(self) -> None:
        """End the worker thread."""
        self._aborted = True
        self._pool.shutdown(wait=True, cancel_futures=True)

    @property
    def _device(self) -> torch.device:
        device: torch.device = next(self._model.parameters()).device
        return device

    def _counted(self, **more: int) -> EngineFigures:
        """The figures with the worker's time until now, which begins again; the lock is held."""
        now = time.monotonic()
        busy = self._done.busy_seconds + (now - self._began if self._began is not None else 0.0)
        names = ("turns", "tokens", "memory_retries")
        self._done = EngineFigures(busy, *(getattr(self._done, name) + more.get(name, 0) for name in names))
        if self._began is not None:
            self._began = now
        return self._done

    def _sleep(self) -> list[Request]:
        """The worker ends; the lock is held. Gives the requests that no worker will take."""
        self._counted()
        self._began = None
        waiting, self._queue = self._queue, []
        return waiting

    # --- worker thread -------------------------------------------------------------------------------------------

    def _work(self) -> None:
        rows: list[Request] = []
        time.sleep(GATHER_S)
        try:
            with torch.inference_mode(), self._precision():
                if self._cost is None:
                    self._cost = measure_row(self._model, self._device, self._autocast)
                while (failure := self._attempt(rows)) is not None:
                    self._give_way(rows, failure)
        except Exception as exc:  # the boundary of the model: any error of it ends the turns, not the run
            with self._lock:
                waiting = self._sleep()
            error = PolicyFault(f"Sampling failed: {type(exc).__name__}: {str(exc)[:300]}")
            answer([(request, error) for request in rows + waiting])

    def _attempt(self, rows: list[Request]) -> str | None:
        """Decode until idle. What the system said if memory ran out; the batch is gone with this frame then."""
        try:
            self._decode_until_idle(rows)
        except Exception as exc:
            if not is_out_of_memory(exc):
                raise
            return str(exc)[:200]
        return None

    def _give_way(self, rows: list[Request], failure: str) -> None:
        """Memory ran out: the rows begin again, half as many at once. One that does not fit alone cannot be sampled."""
        self._parking.clear()
        if self._device.type == "cuda":
            torch.cuda.empty_cache()
        live = [request for request in rows if request.live]
        rows.clear()
        if len(live) <= 1:
            error = PolicyFault(
                f"Out of memory while sampling, with {len(live)} row in the batch: {failure}", hint=_MEMORY_HINT
            )
            answer([(request, error) for request in live])
            live = []
        for request in live:
            request.begin_again()
        with self._lock:
            self._row_limit = max(1, len(live) // 2)
            self._queue[:0] = live
            self._counted(memory_retries=1)

    def _precision(self) -> AbstractContextManager[Any]:
        if self._autocast is None:
            return nullcontext()
        return torch.autocast(self._device.type, self._autocast)

    def _decode_until_idle(self, rows: list[Request]) -> None:
        batch: DecodeBatch | None = None
        waited = 0
        while not self._aborted:
            live = [request for request in rows if request.live]
            admitted = self._admit(live, waited, batch.columns if batch is not None else 0)
            if admitted is None:
                self._park(batch, rows)
                return
            newcomers, waited = admitted
            if not live and not newcomers:
                continue
            if batch is not None and (newcomers or len(live) <= 0.75 * len(rows)):
                batch = self._compact(batch, rows, live)
            if newcomers:
                if self._parks:
                    for request in newcomers:
                        request.place = self._parking.take(request.episode, request.prompt_ids)
                newcomers.sort(key=lambda request: (request.place is not None, len(request.to_feed)))
                rows.extend(newcomers)  # before the prefill, so that its failure is answered to them too
                batch = self._prefill(batch, newcomers)
            assert batch is not None  # noqa: S101 - there is a live row, so there is a batch
            self._advance(batch, rows)
        with self._lock:
            dropped = self._sleep()
        answer([(request, PolicyFault("Sampling was stopped.")) for request in rows + dropped])

    def _admit(self, live: list[Request], waited: int, columns: int) -> tuple[list[Request], int] | None:
        """Newcomers to take in now, and for how many steps others have waited; ``None`` when the worker may end.

        The check for work and the decision to end are one atomic act, or a request made between them would wait for
        ever.
        """
        with self._lock:
            self._queue = [request for request in self._queue if request.live]
            queued = len(self._queue)
            if not queued:
                if live:
                    return [], 0
                self._sleep()
                return None
            if live and queued < len(live) / 4 and waited < ADMIT_AFTER_STEPS:
                return [], waited + 1
            fitting = self._fitting(live, columns)
            taken, self._queue = self._queue[:fitting], self._queue[fitting:]
        return taken, 0

    def _fitting(self, live: list[Request], columns: int) -> int:
        """How many of the queue, in order, fit into memory with the live rows when all are at their longest.

        A batch has the columns of its longest row. One row is always admitted.
        """
        assert self._cost is not None  # noqa: S101 - measured before the first batch
        longest = max((columns + request.max_tokens - len(request.ids) for request in live), default=0)
        rows = len(live)
        for request in self._queue:
            longest = max(longest, request.most_columns)
            full = self._row_limit is not None and rows >= self._row_limit
            if rows and (full or self._cost.of(rows + 1, longest) > self._budget):
                break
            rows += 1
        return rows - len(live)

    def _compact(self, batch: DecodeBatch, rows: list[Request], live: list[Request]) -> DecodeBatch | None:
        """Cut the rows that ended out of the batch and park them; ``rows`` becomes ``live``."""
        staying = set(live)
        kept = [index for index, request in enumerate(rows) if request in staying]
        self._park(batch, rows)
        whole = len(kept) == len(rows)
        rows[:] = live
        if not kept:
            return None
        if not whole:
            batch.keep(kept)
        return batch

    def _park(self, batch: DecodeBatch | None, rows: list[Request]) -> None:
        ended = [index for index, request in enumerate(rows) if request.done and request.episode]
        if batch is None or not ended or not self._parks:
            return
        leaving = [rows[index] for index in ended]
        block = batch.select(ended, [request.stale for request in leaving])
        self._parking.park(block, [(request.episode, request.prompt_ids + request.ids[:-1]) for request in leaving])

    def _prefill(self, batch: DecodeBatch | None, newcomers: list[Request]) -> DecodeBatch:
        """Bring the newcomers' prompts into the batch; those with a place are after the others."""
        parts = [batch] if batch is not None else []
        for chunk in chunks(newcomers, PREFILL_TOKENS):
            places = [request.place for request in chunk if request.place is not None]
            feeds = [request.to_feed for request in chunk]
            if places:
                more = restore(places)
                more.extend(self._model, feeds)
                for request in chunk:
                    request.place = None  # it would keep the whole block alive while the row is decoded
            else:
                more = DecodeBatch.prefill(self._model, feeds, self._device, self._autocast)
            parts.append(more)
        return DecodeBatch.joined(parts)

    def _advance(self, batch: DecodeBatch, rows: list[Request]) -> None:
        """Draw one token for each row, answer the rows that end with it, and feed it to the model."""
        uniforms = torch.tensor([r.uniforms[min(len(r.ids), r.max_tokens - 1)] for r in rows])
        params = [request.watch.params if request.watch is not None else self._params for request in rows]
        ids, logprobs = draw_rows(batch.logits, uniforms.to(batch.logits.device), params)
        answers: list[tuple[Request, Sample]] = []
        for request, token, logprob in zip(rows, ids.tolist(), logprobs.tolist(), strict=True):
            if request.done:
                continue
            sample = request.add(token, logprob, ends=token in self._stop_ids)
            if sample is not None:
                answers.append((request, sample))
        if answers:
            with self._lock:
                self._counted(turns=len(answers), tokens=sum(len(sample.ids) for _, sample in answers))
        answer(answers)
        if not all(request.done for request in rows):
            batch.step(self._model, ids)
            for request in rows:
                request.stale += request.done
