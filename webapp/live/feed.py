"""Shared by all sockets of this process: the reads from the database, and the listener on the channel layer.

1. Reads run in a few threads of their own that keep their database connections, away from the threads of requests.
2. The first frame, the frames after a given ``seq``, a step and curves that are asked for are read and encoded once,
   however many sockets of a run want them: five hundred tabs cost as much as one for each run.
3. One task for each watched run listens on the channel layer. If Redis is away it tries again with a growing pause, and
   wakes the sockets when it is back; they also look by themselves, so a lost nudge costs two seconds at most.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar
from uuid import UUID
from weakref import WeakKeyDictionary

from channels.layers import get_channel_layer

from webapp.common.serving import in_database
from webapp.live.snapshot import curves_text, encode, frames, snapshot_text
from webapp.runs.nudge import group_of
from webapp.runs.records.selectors import run_changes_after, run_events_after, run_read, run_view
from webapp.runs.rollouts.selectors import step_rollouts
from webapp.runs.states import TERMINAL

R = TypeVar("R", bound="Read")
logger = logging.getLogger(__name__)
CATCH_UP_MAX = 5_000
CHANGES_LIMIT = 2_000
KEEP_S, KEEP_BYTES = 3.0, 32 << 20
KEEP_ENDED_S = 600.0  # of a run that has ended: its page says which change it must not be older than
SNAPSHOT_KEEP_S = 1.0  # tabs that open together share one; each continues from its seq by shared changes
JOIN_S, LISTEN_S, RETRY_MAX_S = 10.0, 30.0, 5.0
CROWD_S, CROWD_MAX_S = 0.001, 0.4  # for each socket, and at most


class RunGone(Exception):
    """The run was deleted."""


@dataclass(frozen=True)
class Read:
    """Encoded frames, and the ``seq`` of a socket after them."""

    texts: list[str]
    seq: int
    more: bool = False
    ended: bool = False


@dataclass(frozen=True)
class News(Read):
    """An answer with a run's events, encoded; ``events`` are the same one by one, each with its ``seq``, and ``run`` is
    the run. ``over``: no more follow."""

    events: tuple[tuple[int, str], ...] = ()
    run: str = ""
    step: int = 0
    over: bool = False

    @property
    def found(self) -> bool:
        """Whether there are any."""
        return bool(self.events)


def _read_snapshot(run_id: UUID) -> Read:
    run = _run_or_gone(run_id)
    return Read([snapshot_text(run)], run.seq, ended=run.state in TERMINAL)


def _read_step(run_id: UUID, step: int) -> Read:
    run = _run_or_gone(run_id)
    head = {"type": "step", "step": step, "seq": run.seq}
    return Read(list(frames(head, step_rollouts(run, step), before=run.seq, then="step")), run.seq)


def _read_curves(run_id: UUID, names: tuple[str, ...], first: int | None, last: int | None) -> Read:
    run = _run_or_gone(run_id)
    return Read([curves_text(run, names, (first, last))], run.seq)


def _read_run(run_id: UUID) -> Read:
    run = _run_or_gone(run_id)
    return Read([encode(run_view(run))], run.seq)


def _read_missed(run_id: UUID, after: int) -> Read | None:
    """The changes after ``after``; ``None`` when that is too long ago, or was never."""
    run = _run_or_gone(run_id)
    if not (0 <= after <= run.seq and run.seq - after <= CATCH_UP_MAX):
        return None
    return _read_changes(run_id, after, empty=True)


def _read_changes(run_id: UUID, after: int, empty: bool = False) -> Read:
    run = _run_or_gone(run_id)
    if run.seq <= after and not empty:
        return Read([], after)
    found = run_changes_after(run, after, CHANGES_LIMIT)
    head = {"type": "changes", "seq": found.seq, "run": run_view(run)}
    return Read(list(frames(head, found.rows, before=after)), found.seq, found.more)


def _read_events(run_id: UUID, after: int, limit: int) -> News:
    found = run_events_after(_run_or_gone(run_id), after, limit)
    events = tuple((item["seq"], encode(item)) for item in found["items"])
    run, over = found["run"], found["ended"]
    whole = [encode(found)]
    return News(whole, found["after"], found["more"], events=events, run=encode(run), step=run["step"], over=over)


def _run_or_gone(run_id: UUID) -> Any:
    run = run_read(run_id)
    if run is None:
        raise RunGone
    return run


@dataclass(frozen=True)
class Held:
    """A read that sockets share: when it began, and the nudges for its run that had come by then."""

    since: float
    nudges: int
    task: asyncio.Task[Read]


def _kept_seconds(task: asyncio.Task[Read], keep_s: float) -> float:
    """How many seconds a finished read is kept: long for a run that has ended, else ``keep_s``."""
    whole = not task.cancelled() and task.exception() is None
    return KEEP_ENDED_S if whole and task.result().ended else keep_s


class Feed:
    """The shared reads and listeners of one event loop."""

    def __init__(self) -> None:
        self._reads: OrderedDict[tuple[Any, ...], Held] = OrderedDict()
        self._sockets: dict[UUID, set[asyncio.Event]] = {}
        self._nudges: Counter[UUID] = Counter()
        self._ears: dict[UUID, asyncio.Task[None]] = {}

    async def first(self, run_id: UUID, after: int | None, least: int = 0) -> Read:
        """Frames for a socket that has just opened: the changes after ``after`` if it is not long ago, else a
        snapshot, not older than the change ``least`` that its page was made of."""
        missed = None if after is None else await in_database(_read_missed, run_id, after)
        return missed or (await self._read_shared(_read_snapshot, run_id, at_least=least, keep_s=SNAPSHOT_KEEP_S))[0]

    async def step(self, run_id: UUID, step: int, at_least: int) -> Read:
        """All of a step, not older than the change ``at_least`` that the socket has already sent."""
        return (await self._read_shared(_read_step, run_id, step, at_least=at_least))[0]

    async def curves(
        self, run_id: UUID, names: tuple[str, ...], at_least: int, first: int | None = None, last: int | None = None
    ) -> Read:
        """Curves by name, between two steps where they are given, not older than the change ``at_least``."""
        return (await self._read_shared(_read_curves, run_id, names, first, last, at_least=at_least))[0]

    async def run(self, run_id: UUID) -> str:
        """The run, at most a second old, encoded."""
        return (await self._read_shared(_read_run, run_id, keep_s=SNAPSHOT_KEEP_S))[0].texts[0]

    async def changes(self, run_id: UUID, after: int) -> tuple[Read, bool]:
        """The changes after ``after``, and whether there may be more by now: sockets that ask for the same share one
        read, and a nudge may have come since it began."""
        read, nudges = await self._read_shared(_read_changes, run_id, after)
        if read.seq == after:  # nothing yet: the next caller must read again
            self._reads.pop((_read_changes, run_id, after), None)
        return read, nudges < self._nudges[run_id]

    async def events(self, run_id: UUID, after: int, limit: int) -> tuple[News, bool]:
        """Events after ``after`` as an answer, and whether there may be more by now; shared as changes are."""
        read, nudges = await self._read_shared(_read_events, run_id, after, limit)
        if not read.found:  # nothing yet: the next caller must read again
            self._reads.pop((_read_events, run_id, after, limit), None)
        return read, nudges < self._nudges[run_id]

    @property
    def crowd_s(self) -> float:
        """How many seconds longer changes are collected where many sockets share one process."""
        return min(CROWD_MAX_S, CROWD_S * sum(len(sockets) for sockets in self._sockets.values()))

    async def _read_shared(
        self, action: Callable[..., R], run_id: UUID, *more: Any, at_least: int = 0, keep_s: float = KEEP_S
    ) -> tuple[R, int]:
        """One read for all sockets that want the same within ``keep_s``, and how many nudges had come before it;
        a caller that needs a newer one reads again."""
        key = (action, run_id, *more)
        while True:
            held = self._reads.get(key)
            fresh = held is None or (
                held.task.done() and time.monotonic() - held.since > _kept_seconds(held.task, keep_s)
            )
            if held is None or fresh:
                self._forget_reads()
                task = asyncio.ensure_future(in_database(action, run_id, *more))
                held = self._reads[key] = Held(time.monotonic(), self._nudges[run_id], task)
            try:
                read: Any = await asyncio.shield(held.task)
            except Exception:
                self._reads.pop(key, None)
                raise
            if read.seq >= at_least or fresh:
                return read, held.nudges
            if self._reads.get(key) is held:
                del self._reads[key]

    def _forget_reads(self) -> None:
        now, size = time.monotonic(), 0
        for key in reversed(list(self._reads)):
            held = self._reads[key]
            if held.task.done() and not held.task.cancelled() and held.task.exception() is None:
                size += sum(len(text) for text in held.task.result().texts)
            if held.task.done() and (now - held.since > _kept_seconds(held.task, KEEP_S) or size > KEEP_BYTES):
                self._reads.pop(key, None)

    async def subscribe(self, run_id: UUID, wake: asyncio.Event) -> None:
        """Set ``wake`` at every nudge for the run. Waits until the listener runs, but not for a Redis that is away."""
        self._sockets.setdefault(run_id, set()).add(wake)
        if run_id not in self._ears:
            ready = asyncio.Event()
            self._ears[run_id] = asyncio.create_task(self._listen(run_id, ready), name=f"ear-{run_id}")
            try:
                async with asyncio.timeout(1.0):
                    await ready.wait()
            except TimeoutError:
                logger.warning("channel layer is slow or away", extra={"action": "subscribe", "run_id": run_id})

    def unsubscribe(self, run_id: UUID, wake: asyncio.Event) -> None:
        """Remove the socket; the last one ends the listener."""
        sockets = self._sockets.get(run_id, set())
        sockets.discard(wake)
        if not sockets:
            self._sockets.pop(run_id, None)
            self._nudges.pop(run_id, None)
            ear = self._ears.pop(run_id, None)
            if ear is not None:
                ear.cancel()

    def _wake_sockets(self, run_id: UUID) -> None:
        self._nudges[run_id] += 1
        for wake in self._sockets.get(run_id, ()):
            wake.set()

    async def _listen(self, run_id: UUID, ready: asyncio.Event) -> None:
        pause, group = 0.1, group_of(run_id)
        while True:
            try:
                layer = get_channel_layer()
                channel = await layer.new_channel("live")
                # Joining again from time to time repairs the subscription after Redis was emptied.
                while True:
                    async with asyncio.timeout(JOIN_S):
                        await layer.group_add(group, channel)
                    ready.set()
                    pause = 0.1
                    await self._receive_nudges(layer, channel, run_id)
            except asyncio.CancelledError:
                raise
            except Exception as exc:  # the boundary to Redis
                logger.info("ear lost", extra={"action": "listen", "run_id": run_id, "error": repr(exc)})
                await asyncio.sleep(pause * random.uniform(0.5, 1))  # noqa: S311 (jitter)
                pause = min(pause * 2, RETRY_MAX_S)
            self._wake_sockets(run_id)

    async def _receive_nudges(self, layer: Any, channel: str, run_id: UUID) -> None:
        until = time.monotonic() + LISTEN_S
        while (left := until - time.monotonic()) > 0:
            try:
                async with asyncio.timeout(left):
                    await layer.receive(channel)
            except TimeoutError:
                return
            self._wake_sockets(run_id)


_feeds: WeakKeyDictionary[asyncio.AbstractEventLoop, Feed] = WeakKeyDictionary()


def feed() -> Feed:
    """The feed of the running event loop."""
    return _feeds.setdefault(asyncio.get_running_loop(), Feed())
