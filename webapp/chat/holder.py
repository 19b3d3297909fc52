"""The worker's side of all chats: it holds a place while people talk, and gives it back.

1. A hint (``chat.hold``) finds a free place: a device for models, one without a device for endpoints, and for small
   models while runs have the devices. It takes the oldest answers that wait for a place of its pool.
2. At most ``LOADED_MAX`` models are in memory, each in a process of its own; answers of one model are made together.
   A further model replaces one without an open answer, or waits.
3. What is written goes into the answer's row, every ``FLUSH_S`` while it grows; open pages read it there.
4. A run that waits for such a place and a worker that shuts down are noticed within ``LOOK_S``: answers get ``YIELD_S``
   to end, then they are cut off, and those that had not begun wait again. The place is also given back after
   ``CHAT_IDLE_S`` without a question.
5. A holder that is killed falls silent: ``chat.look`` cuts off what it was writing (``webapp/chat/tasks.py``).
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from queue import Empty, Queue
from typing import Any
from uuid import UUID

from celery import current_app
from django.conf import settings
from django.db import connection, transaction
from django.db.models import F, QuerySet
from django.db.models.functions import Now
from pydantic import ValidationError

from training.chat.wire import LINE_BYTES, Allowance, Ended, Failed, Line, Open, Ready, Said, Stop, Text, told_adapter
from training.errors import Boundary, BudgetSpent, ErrorInfo, PolicyFault, TiltyardError, boundary
from training.words import _, sentence
from webapp.chat.conversation import Contestant, ask_of, endpoint_meant, open_of, pool_of
from webapp.chat.models import Answer, AnswerState, Chat, Holder
from webapp.common.database import expiry
from webapp.common.errors import DATABASE_AWAY
from webapp.common.pools import ENDPOINT, TRAIN, device_env
from webapp.common.text import clean_json
from webapp.common.work import Claim, Lost, claim, silent
from webapp.common.workers.beating import draining, worker_here, worker_name
from webapp.endpoints.models import Endpoint
from webapp.endpoints.services import key_env
from webapp.endpoints.spending import chat_left, turn_used
from webapp.engine.attempts import new_owner
from webapp.engine.sampler import has_room
from webapp.engine.supervisor import closing
from webapp.engine.trainer import oom_kills, trainer_env
from webapp.runs.nudge import nudge
from webapp.runs.records.order import can_start, trainable

# --- Hints ----------------------------------------------------------------------------------------------------------
# Asking for a worker that answers chats.

logger = logging.getLogger(__name__)
HINT = "chat.hold"
EXPIRES_S = 20  # ``chat.look`` asks again
LIVES_FOR = timedelta(seconds=8)


def holders(*pools: str) -> QuerySet[Holder]:
    """Workers of these pools that answer chats now: they find what waits by themselves."""
    return Holder.objects.filter(pool__in=pools, heard_at__gt=Now() - LIVES_FOR)


def hint(pool: str) -> None:
    """Ask for a worker. A broker that is down costs only time."""
    try:
        current_app.send_task(HINT, args=[pool], queue=pool, retry=False, expires=expiry(EXPIRES_S))
    except Exception as exc:  # the boundary to the broker: kombu, redis and socket errors alike
        logger.warning("broker away, chat waits", extra={"action": "chat", "error": repr(exc)[:200]})


# --- Child ----------------------------------------------------------------------------------------------------------
# A chat process (``python -m training chat``) as its holder knows it.
#
# It leads a process group of its own and holds the read end of a pipe whose write end only we have, as a trainer does:
# it ends when we do, in any way. A thread reads its lines into the holder's queue.

Report = Ready | Text | Said | Ended | Failed
END_LIMIT_S = 5.0


class Child:
    """One process with one model, or that asks one endpoint. ``lines`` gets its lines, and ``None`` once it has
    ended; ``access`` has the endpoint's key."""

    def __init__(self, opened: Open, lines: Queue[tuple[Child, Report | None]], access: Mapping[str, str]) -> None:
        command = getattr(settings, "CHAT_COMMAND", [sys.executable, "-m", "training", "chat"])
        self._ended = False
        read_fd, self._alive_fd = os.pipe()
        try:
            self._process = subprocess.Popen(
                command,
                cwd=settings.BASE_DIR,
                env=trainer_env(read_fd, access),
                pass_fds=(read_fd,),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                start_new_session=True,
            )
        except OSError:
            os.close(self._alive_fd)
            raise
        finally:
            os.close(read_fd)
        self.ready, self.device = False, ""
        self._lines, self._waiting = lines, list[Line]()
        self._oom_kills = oom_kills()
        self._reader = threading.Thread(target=self._read_lines, name=f"chat-{self._process.pid}", daemon=True)
        self._reader.start()
        self._write_line(opened)

    def send(self, line: Line) -> None:
        """Send a line, once it is loaded: until then the process does not read, and a pipe holds little. A line that
        cannot be written is lost: the process has ended, and ``lines`` gets its end."""
        if self.ready:
            self._write_line(line)
        else:
            self._waiting.append(line)

    def loaded(self, device: str) -> None:
        """The process is ready on this device: send the lines that waited for that."""
        self.ready, self.device = True, device
        waiting, self._waiting = self._waiting, []
        for line in waiting:
            self._write_line(line)

    def end(self) -> None:
        """End it and everything it started, now. Calling it twice does nothing."""
        if self._ended:
            return
        self._ended = True
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(timeout=END_LIMIT_S)
        os.close(self._alive_fd)
        self._reader.join(timeout=END_LIMIT_S)
        for pipe in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(OSError):
                pipe.close()  # type: ignore[union-attr]

    def last_word(self) -> ErrorInfo:
        """The error for a process that ended by itself."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=END_LIMIT_S)
        before, now = self._oom_kills, oom_kills()
        starved = before is not None and now is not None and now > before
        what = f"The process that held the model ended ({self._process.returncode})."
        hint = "The kernel killed a process for want of memory: choose a smaller model." if starved else ""
        return ErrorInfo(code="chat_died", boundary=Boundary.POLICY, message=what, hint=hint)

    def _write_line(self, line: Line) -> None:
        assert self._process.stdin is not None  # noqa: S101 - it is a pipe
        with contextlib.suppress(OSError, ValueError):
            self._process.stdin.write(line.model_dump_json().encode() + b"\n")
            self._process.stdin.flush()

    def _read_lines(self) -> None:
        assert self._process.stdout is not None  # noqa: S101 - it is a pipe
        with contextlib.suppress(OSError, ValueError):
            while line := self._process.stdout.readline(LINE_BYTES):
                try:
                    self._lines.put((self, told_adapter.validate_json(line)))
                except ValidationError:
                    continue  # a line in another format
        self._lines.put((self, None))


# --- Writing --------------------------------------------------------------------------------------------------------
# Every write to a chat takes the chat's next ``seq`` in the same transaction, and wakes its open pages after it.


def seq_take(chat_id: UUID) -> int:
    """The chat's next number; holds its row until the transaction ends, so numbers are seen in their order.

    Raises ``Lost`` where the chat was deleted.
    """
    Chat.objects.filter(pk=chat_id).update(seq=F("seq") + 1)
    seq = Chat.objects.filter(pk=chat_id).values_list("seq", flat=True).first()
    if seq is None:
        raise Lost
    transaction.on_commit(lambda: nudge(chat_id, seq))
    return seq


def answer_keep(claim: Claim[Answer], chat_id: UUID, **columns: Any) -> None:
    """Write columns of an answer that this worker still has. Raises ``Lost``."""
    with transaction.atomic():
        claim.keep(seq=seq_take(chat_id), **clean_json(columns))


def answer_finish(claim: Claim[Answer], chat_id: UUID, **columns: Any) -> None:
    """Write an answer's end. Raises ``Lost``."""
    with transaction.atomic():
        claim.finish(seq=seq_take(chat_id), **clean_json(columns))


def answer_move(answer: Answer, pool: str, **columns: Any) -> bool:
    """Have a waiting answer wait for a place of another pool. Returns whether it still waited."""
    with transaction.atomic():
        seq = seq_take(answer.turn.chat_id)
        waiting = Answer.objects.filter(pk=answer.pk, state=AnswerState.WAITING, token="").order_by()
        return bool(waiting.update(pool=pool, seq=seq, **columns))


LOADED_MAX = 2
NO_ROOM = {"phase": "no_room"}  # it waits for a device: the processor's memory is too small for its model
FLUSH_S, WAIT_S, POLL_S, LOOK_S, BEAT_S = 0.05, 0.02, 0.04, 0.5, 3.0
YIELD_S = 4.0
QUEUED_FOR = timedelta(seconds=1)  # a free worker would have taken it by then
TAKE_AT_ONCE, MOVE_AT_ONCE = 16, 64
ROOM_HINT = _("There is room again: choose Regenerate.")


@dataclass
class Live:
    """An answer that is being made."""

    claim: Claim[Answer]
    chat_id: UUID
    child: Child
    endpoint: Endpoint | None = None
    title: str = ""
    text: str = ""
    messages: list[dict[str, Any]] = field(default_factory=list)
    dirty: bool = False
    written: float = 0.0
    began: float = field(default_factory=time.monotonic)

    @property
    def begun(self) -> bool:
        """Whether a reader could have seen a part of it."""
        return bool(self.text or self.messages)


class Desk:
    """The open answers and processes of one worker in one of its places."""

    def __init__(self, pool: str) -> None:
        self.pool = pool
        self.owner = new_owner("chat:")
        self._lines: Queue[tuple[Child, Report | None]] = Queue()
        self._children: dict[str, Child] = {}
        self._titles: dict[str, str] = {}
        self._live: dict[str, Live] = {}
        self._used = time.monotonic()
        self._leave_at: float | None = None
        self._why: ErrorInfo | None = None
        self._next = dict.fromkeys(("poll", "look", "beat"), 0.0)

    def run(self) -> None:
        """Answer until there is nothing more to do, or a run needs the place."""
        try:
            while not self._is_over():
                self._read_lines()
                self._write_texts()
                self._do_due()
        except DATABASE_AWAY as exc:  # away: the open answers fall silent and are cut off
            logger.warning("chats given up", extra={"action": "chat", "error": repr(exc)[:200]})
            connection.close()
        finally:
            self._end_all()

    # --- When to leave -------------------------------------------------------------------------------------------
    def _is_over(self) -> bool:
        now = time.monotonic()
        if self._leave_at is not None:
            return not self._live or now >= self._leave_at
        return not self._live and now - self._used >= settings.CHAT_IDLE_S

    def _check_place(self) -> None:
        """Give way if a run needs this place, or the worker shuts down."""
        if self._leave_at is not None:
            return
        if closing():
            self._give_way(CLOSING)
        elif draining():
            self._leave_at = math.inf  # once the open answers have ended
        elif run_waits(self.pool):
            self._give_way(GAVE_WAY)

    def _give_way(self, why: ErrorInfo) -> None:
        self._why, self._leave_at = why, time.monotonic() + YIELD_S

    def _end_all(self) -> None:
        """End all processes and answers, and remove the holder's row."""
        for child in self._children.values():
            child.end()
        why = self._why or CLOSING
        try:
            for live in list(self._live.values()):
                self._cut_off(live, why)
            Holder.objects.filter(owner=self.owner).delete()
        except DATABASE_AWAY:
            connection.close()

    def _cut_off(self, live: Live, why: ErrorInfo) -> None:
        """An answer that had not begun waits again; another keeps what it has."""
        try:
            if live.begun:
                self._end_answer(live, AnswerState.CUT, error=why)
            else:
                answer_keep(live.claim, live.chat_id, state=AnswerState.WAITING, token="", tries=0, progress={})
        except Lost:
            return

    # --- What waits ----------------------------------------------------------------------------------------------
    def _do_due(self) -> None:
        """Do what is due: take waiting answers, stop those that a person stopped, renew the holder's row."""
        now = time.monotonic()
        if now >= self._next["look"]:
            self._next["look"] = now + LOOK_S
            self._check_place()
        if now >= self._next["beat"]:
            self._next["beat"] = now + BEAT_S
            self._write_beat()
        if now >= self._next["poll"]:
            self._next["poll"] = now + POLL_S
            self._stop_answers()
            if self._leave_at is None:
                self._take_waiting()

    def _write_beat(self) -> None:
        fields = {"heard_at": Now(), "loaded": sorted(self._titles.values())}
        first = {**fields, "worker": worker_name(), "pool": self.pool}
        Holder.objects.update_or_create(owner=self.owner, defaults=fields, create_defaults=first)
        for live in list(self._live.values()):
            try:
                live.claim.keep()
            except Lost:
                self._give_up(live)

    def _stop_answers(self) -> None:
        for pk in Answer.objects.filter(pk__in=list(self._live), stop=True).values_list("pk", flat=True):
            live = self._live[str(pk)]
            live.child.send(Stop(id=str(pk)))
            self._end_answer(live, AnswerState.STOPPED)

    def _take_waiting(self) -> None:
        rows = Answer.objects.filter(pool=self.pool, state=AnswerState.WAITING, token="").order_by("created_at")
        related = rows.select_related("turn__chat__project", "turn__chat__environment")
        for answer in related[:TAKE_AT_ONCE]:
            self._used = time.monotonic()
            self._begin_answer(answer)

    def _begin_answer(self, answer: Answer) -> None:
        """Ask the model for this answer, unless there is no room for its model."""
        chat = answer.turn.chat
        try:
            with boundary(PolicyFault, "preparing the answer"):  # one invalid row must not cost the others
                contestant = Contestant.model_validate(chat.contestants[answer.contestant])
                endpoint = endpoint_meant(chat.project, contestant)
                opened, ask = open_of(chat.project, contestant), ask_of(answer)
                access = key_env(chat.project, opened.endpoint) | device_env(self.pool)
            if endpoint is not None:
                ask.allowance = _allowance_for(endpoint, chat.pk)
        except TiltyardError as exc:
            if (taken := claim(Answer, answer.pk)) is not None:
                answer_finish(taken, chat.pk, state=AnswerState.FAILED, error=exc.info.model_dump(mode="json"))
            return
        key = json.dumps([opened.model_dump_json(), access])  # another key is another process
        if key not in self._children:
            if not self._free_slot():
                return
            if self.pool == ENDPOINT and endpoint is None and not has_room(opened.model):
                answer_move(answer, TRAIN, progress=NO_ROOM)
                return
        child = self._child_for(key, opened, contestant.title, access)
        if (taken := claim(Answer, answer.pk, at_work=AnswerState.ANSWERING)) is None:
            return
        live = self._live[str(answer.pk)] = Live(taken, chat.pk, child, endpoint, str(chat))
        child.send(ask)
        self._keep_answer(live, progress={} if child.ready else {"phase": "loading"})

    def _free_slot(self) -> bool:
        """Whether one more process may start; an idle one makes room for it."""
        if len(self._children) < LOADED_MAX:
            return True
        busy = {live.child for live in self._live.values()}
        idle = next((name for name, child in self._children.items() if child not in busy), None)
        if idle is None:
            return False
        self._drop_child(idle)
        return True

    def _child_for(self, key: str, opened: Open, title: str, access: dict[str, str]) -> Child:
        """The process of a model, started where it does not run."""
        if key not in self._children:
            self._children[key], self._titles[key] = Child(opened, self._lines, access), title
            self._next["beat"] = 0.0
        # The most recently used process is the last to be ended.
        self._children[key] = child = self._children.pop(key)
        return child

    def _drop_child(self, key: str) -> None:
        self._titles.pop(key)
        self._children.pop(key).end()

    # --- Lines of the processes ----------------------------------------------------------------------------------
    def _read_lines(self) -> None:
        """Handle all lines that have come; waits a moment for the first."""
        try:
            self._handle_line(*self._lines.get(timeout=WAIT_S))
            while True:
                self._handle_line(*self._lines.get_nowait())
        except Empty:
            return

    def _handle_line(self, child: Child, line: Report | None) -> None:
        if line is None or (isinstance(line, Failed) and not line.id):
            self._handle_end(child, line.error if line is not None else None)
            return
        if isinstance(line, Ready):
            child.loaded(line.device)
            for live in self._answers_of(child):
                self._keep_answer(live, progress={})
            return
        live_now = self._live.get(line.id)
        if live_now is not None:
            self._handle_answer(live_now, line)

    def _handle_answer(self, live: Live, line: Text | Said | Ended | Failed) -> None:
        self._used = time.monotonic()
        if isinstance(line, Text):
            live.text += line.text
            live.dirty = True
        elif isinstance(line, Said):
            live.messages.append(line.message.model_dump(mode="json", exclude_none=True))
            live.text, live.dirty, live.written = "", True, 0.0
            if live.endpoint is not None and line.message.role == "assistant":
                turn_used(live.endpoint, read=line.read, written=line.tokens, chat_id=live.chat_id, title=live.title)
        elif isinstance(line, Ended):
            state, error = AnswerState.STOPPED if line.why == "stopped" else AnswerState.DONE, None
            if line.why == "budget" and live.endpoint is not None:
                state, error = AnswerState.FAILED, _limit_error(live.endpoint, live.chat_id)
            ending = line.model_dump(mode="json", exclude={"id", "type"}) | {"device": live.child.device}
            self._end_answer(live, state, error, ending)
        else:
            self._end_answer(live, AnswerState.FAILED, error=line.error)

    def _handle_end(self, child: Child, error: ErrorInfo | None) -> None:
        """A process ended: by itself, or because it could not load its model."""
        key = next((name for name, other in self._children.items() if other is child), None)
        if key is None:
            return  # we ended it ourselves
        error = error or child.last_word()
        self._drop_child(key)
        for live in self._answers_of(child):
            self._end_answer(live, AnswerState.FAILED, error=error)

    def _answers_of(self, child: Child) -> list[Live]:
        return [live for live in self._live.values() if live.child is child]

    # --- Rows ----------------------------------------------------------------------------------------------------
    def _write_texts(self) -> None:
        now = time.monotonic()
        for live in list(self._live.values()):
            if live.dirty and now - live.written >= FLUSH_S:
                live.written, live.dirty = now, False
                self._keep_answer(live, messages=live.messages, partial=live.text)

    def _keep_answer(self, live: Live, **columns: Any) -> None:
        try:
            answer_keep(live.claim, live.chat_id, **columns)
        except Lost:
            self._give_up(live)

    def _end_answer(self, live: Live, state: AnswerState, error: ErrorInfo | None = None, ending: Any = None) -> None:
        self._forget_answer(live)
        failure = error.model_dump(mode="json") if error is not None else None
        ending = ending or {"why": str(state), "seconds": time.monotonic() - live.began}
        columns = {"messages": live.messages, "partial": live.text, "error": failure, "ending": ending}
        try:
            answer_finish(live.claim, live.chat_id, state=state, **columns)
        except Lost:
            return

    def _give_up(self, live: Live) -> None:
        """Stop an answer whose row is gone or belongs to another holder: its text is not needed."""
        live.child.send(Stop(id=str(live.claim.item.pk)))
        self._forget_answer(live)

    def _forget_answer(self, live: Live) -> None:
        self._used = time.monotonic()
        self._live.pop(str(live.claim.item.pk), None)


def _allowance_for(endpoint: Endpoint, chat_id: UUID) -> Allowance:
    """How many tokens and how much money an answer may use. Raises ``BudgetSpent`` where nothing is left."""
    left = chat_left(endpoint, chat_id)
    prices = {"price_in": endpoint.price_in or 0.0, "price_out": endpoint.price_out or 0.0}
    return Allowance(tokens=left.tokens, cost=left.cost or 0.0, **prices)


def _limit_error(endpoint: Endpoint, chat_id: UUID) -> ErrorInfo:
    """The error for the limit that an answer ended at, also where a new day has begun meanwhile."""
    try:
        chat_left(endpoint, chat_id)
    except BudgetSpent as exc:
        return exc.info
    text = _("The answer reached the limit that the endpoint {name} had when it began.")
    return BudgetSpent(sentence(text, name=endpoint.name), hint=ROOM_HINT).info


CLOSING = ErrorInfo(code="chat_cut", boundary=Boundary.LEASE, message="The worker was shut down.")
# Without the run's name: it may be one of another project.
GAVE_WAY = ErrorInfo(code="chat_gave_way", boundary=Boundary.LEASE, message="A run needed the worker.")


def run_waits(pool: str) -> bool:
    """Whether a run that this worker can train only waits for a place of this pool."""
    return trainable(can_start(pool), worker_here()).filter(queued_at__lt=Now() - QUEUED_FOR).exists()


# --- Upkeep ---------------------------------------------------------------------------------------------------------
# The clockwork's job for chats: lost workers' answers are cut off, and waiting ones get a worker.

WAITED = timedelta(seconds=4)
GONE = timedelta(seconds=30)
LOST = ErrorInfo(code="chat_cut", boundary=Boundary.LEASE, message="The worker that wrote this answer was lost.")


def look() -> None:
    """Cut off what lost workers were writing, and ask again for a worker where answers wait."""
    cut_lost()
    Holder.objects.filter(heard_at__lt=Now() - GONE).delete()
    waiting = Answer.objects.filter(state=AnswerState.WAITING, token="", created_at__lt=Now() - WAITED)
    move_small(waiting)
    for pool in set(waiting.order_by().values_list("pool", flat=True)):
        hint(pool)


def move_small(waiting: QuerySet[Answer]) -> None:
    """Have small models whose device a run took meanwhile answer without one, and on a device that is free again."""
    rows = waiting.exclude(progress=NO_ROOM).select_related("turn__chat__project")
    for answer in rows.order_by("created_at")[:MOVE_AT_ONCE]:
        chat = answer.turn.chat
        pool = pool_of(chat.project, chat.contestants[answer.contestant]["source"])
        if pool != answer.pool:
            answer_move(answer, pool)


def cut_lost() -> int:
    """End answers whose worker fell silent with the text that they have. Returns how many."""
    count = 0
    for answer in silent(Answer).select_related("turn")[:200]:
        with transaction.atomic():
            seq = seq_take(answer.turn.chat_id)
            mine = Answer.objects.filter(pk=answer.pk, token=answer.token, heard_at=answer.heard_at).order_by()
            error = LOST.model_dump(mode="json")
            count += mine.update(state=AnswerState.CUT, error=error, seq=seq, token="", progress={})
    return count
