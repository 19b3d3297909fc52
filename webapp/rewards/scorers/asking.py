"""Scoring a job: in the person's turn, within its time, by a child process."""

from __future__ import annotations

import atexit
import logging
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice

from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from training.children import Piped, bare_env, known, limit_child
from training.errors import RewardTimeout, ScorerDied
from training.rewards.custom import SWITCH_VARIABLE
from training.rewards.scorer.wire import READY, Asked, Job, Said, job_line, said_of
from training.words import Sentence, sentence
from webapp.common.serving import when_asker_leaves
from webapp.rewards.scorers.places import Places, Turn

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
            said, rest = self._score(turn, line, wanted, limit_s)
            return _answers_by_name(asked, said, rest or Said(why=Sentence.of(late), code=RewardTimeout.code))

    def _score(self, turn: Turn, line: bytes, wanted: int, limit_s: float) -> tuple[list[Said], Said | None]:
        """The answers that came, and why the rest did not, unless the time was over."""
        try:
            child = self._take_child()
        except OSError:
            logger.exception("no scoring process started")
            return [], _dead_scorer_answer(ScorerDied(NOT_STARTED))
        turn.ends_by(child.stop)
        said: list[Said] = []
        rest: Said | None = None
        try:
            ready = child.ready()
            deadline = time.monotonic() + limit_s
            if ready:
                said.extend(islice(child.answers(line, deadline), wanted))
            if len(said) < wanted and not turn.gone.is_set() and not (ready and time.monotonic() >= deadline):
                rest = _end_of(child)
        finally:
            turn.ends_by(None)
            self._put_back(child, whole=len(said) == wanted and not turn.gone.is_set())
        return said, rest

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


def _answers_by_name(asked: Sequence[Asked], said: Sequence[Said], rest: Said) -> Answers:
    """The answers in order, by the component's name; missing ones are ``rest``."""
    left = iter(said)
    return [{item.name: next(left, rest) for item in one.components} for one in asked]


scorers = Scorers()
atexit.register(scorers.close)
