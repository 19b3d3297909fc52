"""Scripts that wait for what happens to a run: one answer, or a stream of server-sent events (docs/live.md).

They wait as sockets do, on the shared reads and listeners of ``feed``, without a thread or a database connection of
their own. A few requests of one person may wait at a time, and the right to see the run is checked again meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import NamedTuple
from uuid import UUID

from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.utils import translation
from django.utils.translation import gettext as _

from webapp.common.errors import DATABASE_AWAY, TooMany, too_many
from webapp.common.serving import in_database
from webapp.live.feed import News, RunGone, feed

JSON = "application/json; charset=utf-8"
WAIT_MAX_S = 30
WAITING_MAX, WAITING_ALL = 20, 400
"""Waiting requests of one person, and of all, in one web process, which answers a thousand requests at a time."""
LOOK_S, GATHER_S, RECHECK_S, BEAT_S, RETRY_AFTER_S = 2.0, 0.2, 5.0, 15.0, 5
_waiting: Counter[UUID] = Counter()


class Refused(Exception):
    """The person may not see the run any more; ``answer`` is the response that says so."""

    def __init__(self, answer: HttpResponse) -> None:
        super().__init__(answer.status_code)
        self.answer = answer


class Question(NamedTuple):
    """A client's question: events of a run after ``after``, or another step than ``step``.

    Sentences are in ``language``. ``refusal`` checks in the database whether ``person`` may still see the run:
    ``None``, or the answer that says no.
    """

    person: UUID
    run_id: UUID
    after: int
    limit: int
    step: int | None
    language: str | None
    refusal: Callable[[], HttpResponse | None]


@contextmanager
def _take_place(person: UUID) -> Iterator[None]:
    if _waiting[person] >= WAITING_MAX or _waiting.total() >= WAITING_ALL:
        sentence = _("Too many requests wait for updates of runs; at most %(n)d per person may.")
        raise TooMany(sentence % {"n": WAITING_MAX}, wait_s=RETRY_AFTER_S)
    _waiting[person] += 1
    try:
        yield
    finally:
        _waiting[person] -= 1
        if not _waiting[person]:
            del _waiting[person]


class Waiter:
    """One request that waits."""

    def __init__(self, question: Question) -> None:
        self.question, self.after = question, question.after
        self.wake, self._checked = asyncio.Event(), time.monotonic()

    async def next(self, until: float) -> News:
        """The next answer with news in it, or an answer at ``until``. Raises ``Refused`` and ``RunGone``."""
        asked = self.question
        while True:
            self.wake.clear()
            if time.monotonic() - self._checked >= RECHECK_S:
                await self.check()
            with translation.override(asked.language):
                read, stale = await feed().events(asked.run_id, self.after, asked.limit)
            stepped = asked.step is not None and read.step != asked.step
            left_s = until - time.monotonic()
            if read.found or read.over or stepped or left_s <= 0:
                self.after = read.seq
                return read
            if not stale:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(min(LOOK_S, left_s)):
                        await self.wake.wait()
            await asyncio.sleep(min(GATHER_S + feed().crowd_s, left_s))  # changes at the same time come in one answer

    async def check(self) -> None:
        """Check whether the person may still see the run. Raises ``Refused``."""
        answer = await in_database(self.question.refusal)
        if answer is not None:
            raise Refused(answer)
        self._checked = time.monotonic()


@asynccontextmanager
async def _open_waiter(question: Question) -> AsyncIterator[Waiter]:
    waiter = Waiter(question)
    with _take_place(question.person):
        try:
            await feed().subscribe(question.run_id, waiter.wake)  # before the first read: misses nothing
            yield waiter
        finally:
            feed().unsubscribe(question.run_id, waiter.wake)


@asynccontextmanager
async def one_answer(request: HttpRequest, question: Question, wait_s: float) -> AsyncIterator[HttpResponseBase]:
    """The answer as soon as there is news, or after ``wait_s`` seconds."""
    try:
        async with _open_waiter(question) as waiter:
            read = await waiter.next(time.monotonic() + wait_s)
            await waiter.check()  # much may have changed since the request
            answer: HttpResponse = HttpResponse(read.texts[0], content_type=JSON)
    except TooMany as exc:
        answer = too_many(request, exc)
    except Refused as exc:
        answer = exc.answer
    except RunGone:
        refused = await in_database(question.refusal)
        answer = refused if refused is not None else HttpResponse(status=404)
    yield answer


@asynccontextmanager
async def stream(request: HttpRequest, question: Question) -> AsyncIterator[HttpResponseBase]:
    """Events as they come, until the run has ended."""
    async with contextlib.AsyncExitStack() as stack:
        try:
            waiter = await stack.enter_async_context(_open_waiter(question))
        except TooMany as exc:
            yield too_many(request, exc)
            return
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        yield StreamingHttpResponse(_stream_text(waiter), content_type="text/event-stream", headers=headers)


async def _stream_text(waiter: Waiter) -> AsyncIterator[str]:
    """The text of the stream. A client that is cut off connects again with the last ``id`` and misses nothing."""
    while True:
        try:
            read = await waiter.next(time.monotonic() + BEAT_S)
        except Refused as exc:
            yield f"event: closed\ndata: {exc.answer.content.decode()}\n\n"
            return
        except (RunGone, *DATABASE_AWAY):
            return
        for seq, text in read.events:
            yield f"id: {seq}\ndata: {text}\n\n"
        if read.over:
            yield f"event: ended\ndata: {read.run}\n\n"
            return
        if not read.found:
            yield ": waiting\n\n"
