"""What all sockets of this process share: reads from the database, first frames, and the channel layer's listener."""

from __future__ import annotations

import asyncio
import json
import logging
import random
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar
from uuid import UUID
from weakref import WeakKeyDictionary

from channels.layers import get_channel_layer
from django.utils import translation

from webapp.common.answers import Extended, as_json, in_shape
from webapp.common.serving import in_database
from webapp.common.text import clean_json
from webapp.runs import answers
from webapp.runs.answers import LIVE
from webapp.runs.metrics import selectors as metrics
from webapp.runs.models import Run, RunEvent
from webapp.runs.nudge import group_of
from webapp.runs.records.queue import read_queue
from webapp.runs.records.queue_words import queue_answer
from webapp.runs.records.selectors import Rows, run_changes_after, run_events_after, run_read
from webapp.runs.registry.models import Checkpoint
from webapp.runs.rollouts.models import Rollout, RolloutGroup
from webapp.runs.rollouts.selectors import current_step, newest_rollouts, step_rollouts
from webapp.runs.states import TERMINAL, RunState

# The first frame of a tab, of bounded size, and the later requests of a tab (docs/live.md).
#
# A run of 20,000 rollouts begins with at most 200 kB: the curves that a page shows first, thinned; the newest step's
# rollouts without their turns; the last events and checkpoints. Each part has a share of the bytes, so that no run is
# too large to begin with, and what was left out is counted in the frame (``more``), never dropped silently.

# Frames: JSON text for the browser, valid for ``JSON.parse`` with any values, and of bounded size.

FRAME_BYTES = 4 << 20
_HEAD_ROOM = 64 << 10


def encode(value: Any) -> str:
    """JSON without NaN; ASCII only, so that a lone surrogate or a separator cannot break a frame."""
    try:
        return json.dumps(value, allow_nan=False, separators=(",", ":"))
    except ValueError:
        return json.dumps(clean_json(value), allow_nan=False, separators=(",", ":"))


def frames(head: dict[str, Any], rows: Rows, *, before: int, then: str = "changes") -> Iterator[str]:
    """The head with its rows as one frame, or as several of at most ``FRAME_BYTES``.

    Further frames have the type ``then``. All but the last carry ``seq`` = ``before``: a reader that loses the line
    between two of them asks again from there, and no row is lost.
    """
    parts: dict[str, list[str]] = {key: [] for key in LIVE if key in rows}
    size, kind = 0, str(head["type"])
    for key in parts:
        for row in rows[key]:
            text = as_json(LIVE[key], row)
            if size and size + len(text) > FRAME_BYTES - _HEAD_ROOM:
                yield _encode_frame(head | {"type": kind, "seq": before}, parts)
                parts, size, kind = {name: [] for name in parts}, 0, then
            parts[key].append(text)
            size += len(text) + 1
    yield _encode_frame(head | {"type": kind}, parts)


def _encode_frame(head: dict[str, Any], parts: dict[str, list[str]]) -> str:
    body = "".join(f',"{key}":[{",".join(texts)}]' for key, texts in parts.items())
    return f"{encode(head)[:-1]}{body}}}"


# Shares of the 200 kB; with the curves (``metrics.FIRST_POINTS`` of about 20 bytes each) they stay below the whole.
NAMES_BYTES, ROLLOUTS_BYTES, GROUPS_BYTES, EVENTS_BYTES, CHECKPOINTS_BYTES = 25_000, 40_000, 10_000, 15_000, 15_000
EVENTS_MAX, CHECKPOINTS_MAX = 200, 100
TASK_SHOWN = 200  # characters; a step that is asked for has the whole task
CURVES_ASKED_MAX = 32
NAME_MAX = 120


def snapshot_text(run: Run) -> str:
    """The encoded first frame."""
    found = metrics.last_values(run)
    names = _first_names(found)
    fitting = _fitting(names, NAMES_BYTES, lambda name: encode([name, found[name]]))
    shown = names[: len(fitting)]
    step = current_step(run)
    rollouts, groups, more_rollouts = _rows_of_step(run, step)
    found_events = RunEvent.objects.filter(run=run).order_by("-seq")[:EVENTS_MAX]
    events = _fitting(found_events, EVENTS_BYTES, partial(as_json, answers.Event))
    checkpoints = Checkpoint.objects.filter(run=run).order_by("-step", "-attempt")[:CHECKPOINTS_MAX]
    saved = _fitting(checkpoints, CHECKPOINTS_BYTES, partial(as_json, answers.Checkpoint))
    head = {"type": "snapshot", "seq": run.seq, "run": in_shape(answers.FrameRun, run), "step": step}
    more = {"names": len(names) - len(shown), "rollouts": more_rollouts}
    head |= {"more": more, "names": {name: found[name] for name in shown}, "curves": metrics.first_curves(run, shown)}
    lists = {"rollouts": rollouts, "groups": groups, "events": events[::-1], "checkpoints": saved[::-1]}
    return _encode_frame(head, lists)


def curves_text(run: Run, names: Sequence[str], span: metrics.Steps = (None, None)) -> str:
    """The encoded answer to a tab that asks for curves, or for the part of them between two steps that it shows:
    all their points, up to some 2,000 of each."""
    head = {"type": "curves", "seq": run.seq}
    if span != (None, None):
        head |= {"first": span[0], "last": span[1]}
    return encode(head | {"curves": metrics.asked_curves(run, names, span)})


def _first_names(names: Iterable[str]) -> list[str]:
    """The names of a run's metrics, those that a page shows first in front."""
    return sorted(names, key=lambda name: (not metrics.is_first(name), name))


def _fitting(rows: Iterable[Any], limit: int, text_of: Callable[[Any], str]) -> list[str]:
    """The texts of as many rows as fit into ``limit`` bytes."""
    fitting: list[str] = []
    left = limit
    for row in rows:
        text = text_of(row)
        left -= len(text) + 1
        if left < 0:
            break
        fitting.append(text)
    return fitting


def _rows_of_step(run: Run, step: int | None) -> tuple[list[str], list[str], int]:
    """The newest step's rollouts, those in flight first; its groups; and how many rollouts were left out."""
    if step is None:
        return [], [], 0
    rows = newest_rollouts(run, step)
    rows.sort(key=lambda row: (row.status != "running", row.group, row.index))
    rollouts = _fitting(rows, ROLLOUTS_BYTES, _rollout_text)
    attempt = rows[0].attempt if rows else 0
    found = RolloutGroup.objects.filter(run=run, attempt=attempt, step=step).order_by("group")
    groups = _fitting(found, GROUPS_BYTES, partial(as_json, answers.Group))
    return rollouts, groups, len(rows) - len(rollouts)


def _rollout_text(rollout: Rollout) -> str:
    """A rollout with its task cut; ``short`` makes the page take the whole row when it comes."""
    if len(rollout.task) <= TASK_SHOWN:
        return as_json(answers.FrameRollout, rollout)
    return as_json(answers.ShortRollout, Extended(rollout, task=f"{rollout.task[:TASK_SHOWN]}…", short=True))


# Shared by all sockets of this process: the reads from the database, and the listener on the channel layer.
#
# 1. Reads run in a few threads of their own that keep their database connections, away from the threads of requests.
# 2. The first frame, the frames after a given ``seq``, a step and curves that are asked for are read and encoded once
#    for each language, however many sockets of a run want them: five hundred tabs cost as much as one or two.
# 3. One task for each watched run listens on the channel layer. If Redis is away it tries again with a growing pause,
#    and wakes the sockets when it is back; they also look by themselves, so a lost nudge costs two seconds at most.

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
    queued: bool = False


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


def _in_language(language: str | None, action: Callable[..., Any], *arguments: Any) -> Any:
    """Read in the language of the reader, which the threads of the database do not know."""
    with translation.override(language):
        return action(*arguments)


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
    return Read([as_json(answers.FrameRun, run)], run.seq)


def _read_missed(run_id: UUID, after: int) -> Read | None:
    """The changes after ``after``; ``None`` when that is too long ago, or was never."""
    run = _run_or_gone(run_id)
    if not (0 <= after <= run.seq and run.seq - after <= CATCH_UP_MAX):
        return None
    return _read_changes(run_id, after, empty=True)


def _read_changes(run_id: UUID, after: int, empty: bool = False) -> Read:
    run = _run_or_gone(run_id)
    queued = run.state == RunState.QUEUED
    if run.seq <= after and not empty:
        return Read([], after, queued=queued)
    found = run_changes_after(run, after, CHANGES_LIMIT)
    head = {"type": "changes", "seq": found.seq, "run": in_shape(answers.FrameRun, run)}
    return Read(list(frames(head, found.rows, before=after)), found.seq, found.more, queued=queued)


def _read_place(run_id: UUID, sees: frozenset[UUID]) -> Read:
    """The run's place in the queue, for readers of these projects."""
    found = queue_answer(read_queue().queued(run_id), sees)
    words = in_shape(answers.QueueWords, found) if found is not None else None
    return Read([encode({"type": "queue", "queue": words})], 0)


def _read_events(run_id: UUID, after: int, limit: int) -> News:
    found = run_events_after(_run_or_gone(run_id), after, limit)
    events = tuple((event.seq, as_json(answers.Event, event)) for event in found["items"])
    run, whole = found["run"], [as_json(answers.Events, found)]
    shown = {"events": events, "run": as_json(answers.RunView, run), "step": run.step, "over": found["ended"]}
    return News(whole, found["after"], found["more"], **shown)


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


def _key(action: Callable[..., Read], *arguments: Any) -> tuple[Any, ...]:
    """What callers share: the same read, in the same language."""
    return (action, *arguments, translation.get_language())


class Feed:
    """The shared reads and listeners of one event loop. Sentences are in the language that is active at the caller."""

    def __init__(self) -> None:
        self._reads: OrderedDict[tuple[Any, ...], Held] = OrderedDict()
        self._sockets: dict[UUID, set[asyncio.Event]] = {}
        self._nudges: Counter[UUID] = Counter()
        self._ears: dict[UUID, asyncio.Task[None]] = {}

    async def first(self, run_id: UUID, after: int | None, least: int = 0) -> Read:
        """Frames for a socket that has just opened: the changes after ``after`` if it is not long ago, else a
        snapshot, not older than the change ``least`` that its page was made of."""
        language = translation.get_language()
        missed = None if after is None else await in_database(_in_language, language, _read_missed, run_id, after)
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
            self._reads.pop(_key(_read_changes, run_id, after), None)
        return read, nudges < self._nudges[run_id]

    async def place(self, run_id: UUID, sees: frozenset[UUID]) -> str:
        """The frame with the run's place in the queue, at most a second old: readers of the same projects share it."""
        return (await self._read_shared(_read_place, run_id, sees, keep_s=SNAPSHOT_KEEP_S))[0].texts[0]

    async def events(self, run_id: UUID, after: int, limit: int) -> tuple[News, bool]:
        """Events after ``after`` as an answer, and whether there may be more by now; shared as changes are."""
        read, nudges = await self._read_shared(_read_events, run_id, after, limit)
        if not read.found:  # nothing yet: the next caller must read again
            self._reads.pop(_key(_read_events, run_id, after, limit), None)
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
        key = _key(action, run_id, *more)
        while True:
            held = self._reads.get(key)
            fresh = held is None or (
                held.task.done() and time.monotonic() - held.since > _kept_seconds(held.task, keep_s)
            )
            if held is None or fresh:
                self._forget_reads()
                language = translation.get_language()
                task = asyncio.ensure_future(in_database(_in_language, language, action, run_id, *more))
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
