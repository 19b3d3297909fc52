"""Scoring for people who wait for it, in child processes: the web server itself computes nothing.

1. Each process of ours has a few places. A person runs one job at a time, and people take turns: the person who was
   served last goes to the end of the line.
2. Further jobs of a person wait behind it, a few of them; the next one is refused (``TooMany``, 429).
3. A job ends at its time limit, or when its asker goes away: its child is killed and a fresh one is started.
4. One child more than runs is kept loaded, so that the next person does not wait for a start.
5. A child that dies by itself costs its own job alone; its earlier answers are kept.
"""

from __future__ import annotations

import atexit
import logging
import signal
import sys
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice

from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from training.children import Piped, bare_env, known, limit_child
from training.errors import RewardTimeout, ScorerDied
from training.rewards.custom import SWITCH_VARIABLE
from training.rewards.scorer.wire import READY, Asked, Job, Said, job_line, said_of
from training.words import Sentence, sentence
from webapp.common.errors import TooMany
from webapp.common.serving import when_asker_leaves

# --- Line -----------------------------------------------------------------------------------------------------------
# The line of people who wait for scores, and whose turn is next.

PLACES = 3  # a child takes 40 MB of its own; one place for each core would leave a second person waiting
JOBS_PER_PERSON = 4  # running and waiting
WAIT_S = 5  # how long a refused person is asked to wait: by then a job has ended
Person = object


class Turn:
    """One job in the line. ``leave`` may be called from any thread, before the job begins and after its end."""

    def __init__(self) -> None:
        self.gone = threading.Event()
        self._lock = threading.Lock()
        self._end: Callable[[], None] | None = None

    def ends_by(self, end: Callable[[], None] | None) -> None:
        """Set the function that ends the job; ``None`` once nothing may end it: its process then serves another job."""
        with self._lock:
            self._end = end
            if end is not None and self.gone.is_set():
                end()

    def leave(self) -> None:
        """Leave the line: the client is gone."""
        with self._lock:
            self.gone.set()
            if self._end is not None:
                self._end()


class Places:
    """Places that people take in turns; safe for many threads.

    1. A person's turns wait in order, and the people form a circle.
    2. A free place goes to the first one in the circle who has a turn waiting and none running.
    3. A person whose job has ended goes to the end of the circle, so that no person is passed over for long.
    """

    def __init__(self, places: int = PLACES, jobs_per_person: int = JOBS_PER_PERSON) -> None:
        self._places, self._most = places, jobs_per_person
        self._changed = threading.Condition()
        self._waiting: OrderedDict[Person, deque[Turn]] = OrderedDict()
        self._running: set[Person] = set()

    @contextmanager
    def taken(self, person: Person, turn: Turn, deadline: float) -> Iterator[bool]:
        """A place for the block; false where none got free before the deadline, or the asker left. Raises
        ``TooMany``."""
        took = self._wait_in_line(person, turn, deadline)
        try:
            yield took
        finally:
            if took:
                with self._changed:
                    self._running.remove(person)
                    self._waiting.move_to_end(person)
                    self._forget(person)
                    self._changed.notify_all()

    def wake(self) -> None:
        """Wake the waiting threads, so that those whose client has gone leave."""
        with self._changed:
            self._changed.notify_all()

    def _wait_in_line(self, person: Person, turn: Turn, deadline: float) -> bool:
        turn.ends_by(self.wake)  # before we take our lock: a leaving caller holds the turn's lock and waits for ours
        with self._changed:
            if len(self._waiting.get(person, ())) + (person in self._running) >= self._most:
                raise TooMany(_("You have reached the limit of scoring for one person; wait a moment."), wait_s=WAIT_S)
            self._waiting.setdefault(person, deque()).append(turn)
            try:
                self._changed.wait_for(
                    lambda: turn.gone.is_set() or self._next_turn() is turn, max(0.0, deadline - time.monotonic())
                )
                took = not turn.gone.is_set() and self._next_turn() is turn
                if took:
                    self._running.add(person)
                return took
            finally:
                self._waiting[person].remove(turn)
                self._forget(person)
                self._changed.notify_all()

    def _next_turn(self) -> Turn | None:
        """The turn that runs next, or ``None``."""
        if len(self._running) >= self._places:
            return None
        return next(
            (turns[0] for person, turns in self._waiting.items() if turns and person not in self._running), None
        )

    def _forget(self, person: Person) -> None:
        if not self._waiting.get(person) and person not in self._running:
            self._waiting.pop(person, None)


# --- Child ----------------------------------------------------------------------------------------------------------
# One scoring process as its parent sees it.

START_LIMIT_S = 20.0  # loading takes half a second of processor time; a machine that trains may be slow
MEMORY_BYTES = 1 << 30
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


class Child(Piped):
    """A process that loads in advance, and then answers one job after another."""

    def __init__(self) -> None:
        """Start it. Raises ``OSError``."""
        env = bare_env(**ONE_THREAD, **known((SWITCH_VARIABLE,)))
        super().__init__([sys.executable, "-P", "-m", "training.rewards.scorer"], env=env)
        limit_child(self.pid, {"RLIMIT_AS": MEMORY_BYTES, "RLIMIT_CORE": 0})
        self._ready = False

    def ready(self) -> bool:
        """Whether it has loaded; waited for, but not longer than ``START_LIMIT_S``."""
        if not self._ready:
            first = next(self.lines(b"", time.monotonic() + START_LIMIT_S), b"")
            self._ready = first == READY
        return self._ready

    def answers(self, job: bytes, deadline: float) -> Iterator[Said]:
        """Its answers, as they come; ends early at the deadline, at the process's end, or at an invalid answer."""
        for line in self.lines(job, deadline):
            try:
                yield said_of(line)
            except ValueError:
                return


logger = logging.getLogger(__name__)
DIED = gettext_noop("The scoring process ended ({how}); a new one replaces it.")
NOT_STARTED = gettext_noop("No scoring process could be started on this server.")
TOO_DEEP = gettext_noop("This JSON is nested too deeply.")
Answers = list[dict[str, Said]]
"""For each episode the answer of each component, by name."""


class Scorers:
    """A few processes and the line before them; safe for many threads."""

    def __init__(self, places: Places | None = None) -> None:
        self._places = places or Places()
        self._lock = threading.Lock()
        self._idle: list[Child] = []

    def ask(self, person: object, asked: Sequence[Asked], limit_s: float, *, late: str = "") -> Answers:
        """The answers within ``limit_s``, after at most as long again in the line. ``late`` is why the rest is
        missing. Raises ``TooMany``."""
        wanted = sum(len(one.components) for one in asked)
        if not wanted:
            return unscored(asked, "")
        late = late or _("Scoring took longer than %(s)g seconds.") % {"s": limit_s}
        turn = Turn()
        when_asker_leaves(turn.leave)
        try:
            line = job_line(Job(asked=list(asked), cpu_s=limit_s))
        except (ValueError, RecursionError):
            return unscored(asked, TOO_DEEP)
        with self._places.taken(person, turn, time.monotonic() + limit_s) as took:
            if not took:
                return unscored(asked, late)
            answers, rest = self._score(turn, line, wanted, limit_s)
            return _answers_by_name(asked, answers, rest or Said(why=Sentence.of(late), code=RewardTimeout.code))

    def _score(self, turn: Turn, line: bytes, wanted: int, limit_s: float) -> tuple[list[Said], Said | None]:
        """The answers that came, and why the rest did not, unless the time was over."""
        try:
            child = self._take_child()
        except OSError:
            logger.exception("no scoring process started")
            return [], _dead_scorer_answer(ScorerDied(NOT_STARTED))
        turn.ends_by(child.stop)
        answers: list[Said] = []
        rest: Said | None = None
        try:
            ready = child.ready()
            deadline = time.monotonic() + limit_s
            if ready:
                answers.extend(islice(child.answers(line, deadline), wanted))
            if len(answers) < wanted and not turn.gone.is_set() and not (ready and time.monotonic() >= deadline):
                rest = _end_of(child)
        finally:
            turn.ends_by(None)
            self._put_back(child, whole=len(answers) == wanted and not turn.gone.is_set())
        return answers, rest

    def _take_child(self) -> Child:
        """A process that waits, or a new one. Raises ``OSError``."""
        child = self._waiting() or Child()
        with self._lock:
            lonely = not self._idle
        if lonely:  # the next person shall not wait until another one has loaded
            self._add_spare()
        return child

    def _waiting(self) -> Child | None:
        with self._lock:
            while self._idle:
                child = self._idle.pop()
                if child.alive:
                    return child
                child.kill()  # closes its pipes
        return None

    def _put_back(self, child: Child, *, whole: bool) -> None:
        """Keep the child for the next job; if it did not complete this one, kill it and start another."""
        if whole and child.alive:
            with self._lock:
                self._idle.append(child)
        else:
            child.kill()
            self._add_spare()

    def _add_spare(self) -> None:
        """Start a child that loads before a person waits for it."""
        with suppress(OSError):  # the job that needs one reports the failure
            child = Child()
            with self._lock:
                self._idle.insert(0, child)

    def close(self) -> None:
        """End all that wait."""
        with self._lock:
            idle, self._idle = self._idle, []
        for child in idle:
            child.kill()


def _end_of(child: Child) -> Said | None:
    """The error for a process that ended by itself; ``None`` where the kernel ended it for its time limit."""
    code = child.ended()
    if code == -signal.SIGXCPU:
        return None
    how = signal.Signals(-code).name if code is not None and -code in set(signal.Signals) else str(code)
    logger.warning("a scoring process ended by itself", extra={"how": how})
    return _dead_scorer_answer(ScorerDied(sentence(DIED, how=how)))


def unscored(asked: Sequence[Asked], why: str) -> Answers:
    """Answers without values, all with the same reason."""
    return _answers_by_name(asked, [], Said(why=Sentence.of(why)))


def _dead_scorer_answer(error: ScorerDied) -> Said:
    return Said(why=Sentence.of(error.message), code=error.code)


def _answers_by_name(asked: Sequence[Asked], answers: Sequence[Said], rest: Said) -> Answers:
    """The answers in order, by the component's name; missing ones are ``rest``."""
    left = iter(answers)
    return [{item.name: next(left, rest) for item in one.components} for one in asked]


scorers = Scorers()
atexit.register(scorers.close)
