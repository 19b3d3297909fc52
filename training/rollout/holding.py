"""Holding: while the environment is away, a step waits and tries again; nothing is excluded and nothing scored.

1. *Away* means unreachable or full (``passing``), or late and silent: a server that still answers was just too slow. A
   server that has played in this run and said who it is is away, too, while it says something else: the error page of
   an outage, the login page of a proxy, a refusal.
2. The first failure begins a hold. Each try that fails too makes the pause longer, up to ``PAUSE_CAP_S``; all rollouts
   that wait share one pause. Each try is journalled as ``Held``.
3. After a pause the server is asked who it is. Only if it answers are episodes begun again.
4. An episode that begins ends the hold (``answered``), and the pauses start again.
5. After ``environment.patience_s`` without that, the typed error leaves: the run pauses.
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence

from training.config import EnvironmentConfig, RolloutConfig
from training.errors import (
    Boundary,
    EnvironmentFault,
    EnvironmentFull,
    EnvironmentProtocolError,
    EnvironmentRefused,
    EnvironmentTimeout,
    EnvironmentUnreachable,
    ErrorInfo,
    RolloutEnded,
    StopRequested,
    TiltyardError,
    TooManyFailures,
)
from training.journal import Event, Held
from training.rollout.protocols import addresses, ask_server
from training.rollout.session import SessionLost
from training.rollout.trajectory import Rollout
from training.words import _, sentence

PAUSE_BASE_S, PAUSE_CAP_S = 0.5, 30.0
HINT = "Start the environment again, then press Resume."
STRANGE = (EnvironmentRefused, EnvironmentFault, EnvironmentProtocolError)
"""What a server says that is not itself, or has a fault in one episode."""
_now = time.monotonic
_sleep = asyncio.sleep


def passing(error: TiltyardError) -> bool:
    """Whether the environment is away, and may be back by itself. A refusal lasts until a person acts."""
    if isinstance(error, EnvironmentRefused):
        return False
    return isinstance(error, EnvironmentUnreachable | EnvironmentFull | SessionLost)


class Wait:
    """Growing pauses with an end, shared by the rollouts of one loop. Use from one thread."""

    def __init__(self, patience_s: float, write: Callable[[Event], None], part: str = "") -> None:
        """``part`` is the part of a mix that waits."""
        self._patience_s = patience_s
        self._write = write
        self._part = part
        self.step = 0
        self._tries = 0
        self._since: float | None = None
        self._next = 0.0

    def answered(self) -> None:
        """It is back: the waiting is over."""
        if self._since is not None:
            self._since, self._tries, self._next = None, 0, 0.0
            self._write(Held(step=self.step, part=self._part))

    def pause(self, error: TiltyardError) -> float:
        """Seconds until the next try. Raises the error for the run when the patience is spent."""
        now = _now()
        if self._since is None:
            self._since = now
        if now < self._next:  # another rollout of the step has begun this pause
            return self._next - now
        left = self._patience_s - (now - self._since)
        if left <= 0:
            raise self._spent(error, now - self._since)
        self._tries += 1
        ceiling = min(PAUSE_CAP_S, PAUSE_BASE_S * 2 ** min(self._tries - 1, 16))
        pause = min(left, ceiling * random.uniform(0.75, 1.0))  # noqa: S311 - spreads load, guards nothing
        self._next = now + pause
        waits = {"tries": self._tries, "next_try_s": pause, "patience_left_s": left - pause}
        self._write(Held(step=self.step, part=self._part, error=self._info(error), **waits))
        return pause

    def _info(self, error: TiltyardError) -> ErrorInfo:
        """The error as it is stored, with the part whose rollouts wait."""
        if not self._part:
            return error.info
        text = sentence(_("Part {part}: {text}"), part=self._part, text=error.message)
        return error.info.model_copy(update={"message": text, "told": text})

    def _spent(self, error: TiltyardError, waited_s: float) -> TiltyardError:
        """The error that is raised when the patience is spent."""
        return error

    def _tried(self, waited_s: float) -> str:
        return f"for {_duration(waited_s)} ({self._tries} tries)" if self._tries else "and the patience is 0"


class Hold(Wait):
    """The wait of one step for its environment, or for that of one part of a mix."""

    def __init__(self, config: EnvironmentConfig, write: Callable[[Event], None], part: str = "") -> None:
        super().__init__(config.patience_s, write, part)
        self._config = config
        self._asking: asyncio.Task[bool] | None = None
        self._says_who = False
        self._learning: asyncio.Task[None] | None = None
        self._learned_in: int | None = None

    def begun(self) -> None:
        """An episode has begun: it is there, and it is the right one. Whether it says who it is, where it is asked, is
        learned in the background, once a step until it has: some servers play well and never do."""
        self.answered()
        known = self._says_who or self._learned_in == self.step
        if not known and (self._learning is None or self._learning.done()):
            self._learning = asyncio.create_task(self._learn())

    async def _learn(self) -> None:
        self._says_who = await self._ask_all(strictly=True)
        self._learned_in = self.step

    async def learned(self) -> None:
        """Wait for the question in the background: a step that ended before its answer would hear it in an outage."""
        if self._learning is not None and not self._learning.done():  # one that is done may be of a closed loop
            await asyncio.wait([self._learning])

    async def away(self, error: TiltyardError) -> bool:
        """Whether an episode failed because the environment is away, and not by a fault of its own."""
        if passing(error):
            return True
        if isinstance(error, STRANGE):
            await self.learned()
        doubtful = isinstance(error, EnvironmentTimeout) or (self._says_who and isinstance(error, STRANGE))
        return doubtful and not await self._answers()

    async def wait(self, error: TiltyardError) -> None:
        """Wait until it is worth while to begin again. Raises the error for the run when the patience is spent."""
        while True:
            await _sleep(self.pause(error))
            if await self._answers():
                return

    async def _answers(self) -> bool:
        """Whether any of the servers answers; those who ask at the same time share one question."""
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(self._ask_all(strictly=self._says_who))
        return await asyncio.shield(self._asking)

    async def _ask_all(self, *, strictly: bool) -> bool:
        return any(await asyncio.gather(*(self._is_answering(url, strictly) for url in addresses(self._config))))

    async def _is_answering(self, url: str, strictly: bool) -> bool:
        try:
            await ask_server(self._config, url)
        except TiltyardError as error:  # nonsense is an answer too; the episode will say what is wrong
            return not (strictly or isinstance(error, EnvironmentTimeout) or passing(error))
        return True

    def _spent(self, error: TiltyardError, waited_s: float) -> TiltyardError:
        kind = EnvironmentFull if isinstance(error, EnvironmentFull) else EnvironmentUnreachable
        what = "was full" if kind is EnvironmentFull else "could not be reached"
        whose = f"The environment of part {self._part}" if self._part else "The environment"
        return kind(f"{whose} {what} {self._tried(waited_s)}. The last failure: {error.message}", hint=HINT)


def _duration(seconds: float) -> str:
    return f"{seconds / 60:.3g} min" if seconds >= 90 else f"{seconds:.3g} s"


def wait_for_environment(
    ask: Callable[[], object],
    config: EnvironmentConfig,
    write: Callable[[Event], None],
    stop: threading.Event,
    part: str = "",
) -> None:
    """Hold until ``ask`` finds the environment, of a ``part`` of a mix. Raises what it raises when the patience is
    spent.

    Nothing has begun yet, so a timeout is held too. Raises ``StopRequested`` as soon as the flag is set.
    """
    hold = Hold(config, write, part)
    while True:
        try:
            ask()
        except TiltyardError as error:
            if not (passing(error) or isinstance(error, EnvironmentTimeout)):
                raise
            if stop.wait(hold.pause(error)):
                raise StopRequested("The run was asked to stop.") from None
        else:
            return hold.answered()


# --- Failures -------------------------------------------------------------------------------------------------------
# When failed rollouts pause a run: too large a share of them, over too many steps in a row.

BAD_STEP_S = 20.0
"""A bad step that took less is followed by a wait for the rest, so that an outage of seconds costs no run."""


class FailureShare:
    """Counts the bad steps of a run. ``rest`` waits so many seconds, and says whether the run was asked to stop."""

    def __init__(self, limit: RolloutConfig, write: Callable[[Event], None], rest: Callable[[float], bool]) -> None:
        self._limit, self._write, self._rest = limit, write, rest
        self._bad_steps: list[Counter[Boundary]] = []

    def check(self, step: int, rollouts: Sequence[Rollout], took_s: float) -> None:
        """Count a step. Raises ``TooManyFailures``, or ``StopRequested`` while it waits."""
        errors = [error for r in rollouts if (error := r.trajectory.error) and not isinstance(error, RolloutEnded)]
        if len(errors) <= self._limit.failure_pause_share * len(rollouts):
            self._bad_steps.clear()
            return
        self._bad_steps.append(Counter(error.boundary for error in errors))
        if len(self._bad_steps) >= self._limit.failure_pause_steps:
            raise self._too_many(errors[0])
        if took_s < BAD_STEP_S:
            self._hold_back(step, errors[0], BAD_STEP_S - took_s)

    def _too_many(self, example: TiltyardError) -> TooManyFailures:
        worst, count = sum(self._bad_steps, Counter()).most_common(1)[0]
        error = TooManyFailures(
            f"More than {self._limit.failure_pause_share:.0%} of the rollouts failed "
            f"in {len(self._bad_steps)} steps in a row; "
            f"{count} failures at the boundary '{worst}'. One of the last: {example.message}",
            hint=example.hint or f"Fix the {worst}, then resume the run.",
        )
        error.boundary = worst
        return error

    def _hold_back(self, step: int, example: TiltyardError, seconds: float) -> None:
        """Wait after a step that failed at once: what made it fail may pass, and the next one would fail as well."""
        left = self._limit.failure_pause_steps - len(self._bad_steps)
        patience_s = (left - 1) * BAD_STEP_S
        tries = len(self._bad_steps)
        self._write(Held(step=step, error=example.info, tries=tries, next_try_s=seconds, patience_left_s=patience_s))
        if self._rest(seconds):
            raise StopRequested("The run was asked to stop.")
        self._write(Held(step=step))
