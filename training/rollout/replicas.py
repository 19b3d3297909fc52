"""Several servers of one environment: new episodes go where most slots are free, lost ones are replayed elsewhere.

1. ``Replicas.open`` picks the address with the most free slots. Before the first episode all are asked for their slots
   (``environment.sessions`` says it in their place); later loads are asked in the background, never waited for.
2. An episode that finds every slot taken by others of ours waits until one of them ends: that costs no attempt. A
   server that says it is full has shown how many it takes, for ``LEARNED_S``.
3. A replica that is unreachable, or full of others' episodes, rests for a while that grows, and the next one is tried.
4. When a server is lost in mid-episode and the environment is deterministic, the episode is played again on another
   replica (or the same one, restarted). It continues only if every answer is the one that the policy has already seen.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from envs.wire import Observation, ResetRequest, StepRequest
from training.config import EnvironmentConfig
from training.errors import (
    Boundary,
    EnvironmentFull,
    EnvironmentRefused,
    EnvironmentTimeout,
    EnvironmentUnreachable,
    TiltyardError,
)
from training.rollout.protocols import addresses, ask_server, open_session
from training.rollout.session import Session, SessionLost

REFRESH_S = 2.0
LEARNED_S = 60.0
REST_BASE_S, REST_CAP_S = 0.5, 30.0
REPLAY_PAUSE_S = 0.25
_GONE = (EnvironmentUnreachable, EnvironmentFull)
_LOST = (EnvironmentUnreachable, SessionLost)


@dataclass
class Replica:
    """One address and what is known of it.

    ``others`` are sessions that are not ours; of ours, ``in_flight``, ``playing`` have begun their episodes.
    """

    url: str
    slots: int | None = None
    others: int = 0
    in_flight: int = 0
    playing: int = 0
    failures: int = 0
    rests_until: float = 0.0
    learned: int = 0
    learned_until: float = float("-inf")

    def takes(self, now: float, sessions: int) -> bool:
        """Whether it takes one more of ours, as far as known; with none of ours in flight it is worth a try."""
        if not self.in_flight:
            return True
        known = [] if self.slots is None else [self.slots - self.others]
        known += [sessions] if sessions else []
        known += [self.learned] if now < self.learned_until else []
        return all(self.in_flight < bound for bound in known)

    def full(self, now: float, slots: int | None) -> bool:
        """It had no room for one more of ours. Returns whether that is because of ours, so that waiting will do."""
        if slots is not None:
            self.slots = slots
        self.learned, self.learned_until = self.in_flight, now + LEARNED_S
        return self.playing > 0 or (self.slots is not None and self.in_flight >= self.slots)

    @property
    def room(self) -> int:
        """Free slots as far as known; with an unknown number, fewer sessions of ours are more room."""
        return (self.slots or 0) - self.others - self.in_flight

    def failed(self, now: float) -> None:
        """Rest, longer each time; the failures of episodes that were under way together count as one."""
        if now >= self.rests_until:
            self.failures += 1
            self.rests_until = now + min(REST_CAP_S, REST_BASE_S * 2 ** (self.failures - 1))

    def answered(self) -> None:
        """It works: forget what was."""
        self.failures, self.rests_until = 0, 0.0


@dataclass
class Replicas:
    """All servers of a job's environment. ``open`` begins episodes; use from one event loop."""

    config: EnvironmentConfig
    all: list[Replica] = field(init=False)
    _asked_at: float = field(init=False, default=float("-inf"))
    _asking: asyncio.Task[None] | None = field(init=False, default=None)
    _known: bool = field(init=False, default=False)
    _waiting: deque[asyncio.Future[None]] = field(init=False, default_factory=deque)

    def __post_init__(self) -> None:
        self.all = [Replica(url) for url in addresses(self.config)]

    async def open(self) -> Session:
        """A session on the replica with most room. Raises the last replica's error when none can be reached."""
        await self._refresh()
        session = ReplicaSession(self)
        await session.connect()
        return session

    async def next(self, tried: set[str]) -> Replica | None:
        """``pick``, after waiting for a slot where all of them are taken by ours."""
        while (found := self.pick(tried)) is None and any(replica.url not in tried for replica in self.all):
            turn = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            with contextlib.suppress(TimeoutError):  # look again now and then: others may have left
                async with asyncio.timeout(REFRESH_S):
                    await turn
            self._ask_again()
        return found

    def pick(self, tried: set[str]) -> Replica | None:
        """The best replica that was not tried yet and takes one more; one that rests only when no other is left."""
        now = time.monotonic()
        left = [replica for replica in self.all if replica.url not in tried]
        awake = [replica for replica in left if now >= replica.rests_until]
        free = [replica for replica in awake or left if replica.takes(now, self.config.sessions)]
        if awake:
            return max(free, key=lambda replica: replica.room, default=None)
        return min(free, key=lambda replica: replica.rests_until, default=None)

    def left(self, replica: Replica, *, begun: bool) -> None:
        """One of our sessions on the replica is over: the session that waits longest may look again."""
        replica.in_flight -= 1
        replica.playing -= begun
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return

    async def _refresh(self) -> None:
        """Ask for loads: once before the first episode, then in the background where there is something to choose."""
        first = self._asking is None
        if len(self.all) > 1 or (first and not self.config.sessions):
            self._ask_again()
        if self._asking is not None and not self._known:
            await asyncio.shield(self._asking)
            self._known = True

    def _ask_again(self) -> None:
        """Ask for loads in the background, at most every ``REFRESH_S``."""
        now = time.monotonic()
        asking = self._asking is not None and not self._asking.done()
        if not asking and now - self._asked_at >= REFRESH_S:
            self._asked_at = now
            self._asking = asyncio.create_task(self._ask_all())

    async def _ask_all(self) -> None:
        await asyncio.gather(*(self._check_replica(replica) for replica in self.all))

    async def _check_replica(self, replica: Replica) -> None:
        began = time.monotonic()
        try:
            facts = await ask_server(self.config, replica.url)
        except TiltyardError as error:
            away = isinstance(error, EnvironmentUnreachable | EnvironmentTimeout)
            if isinstance(error, EnvironmentRefused) or not away:
                return  # it is there, and just does not say
            # Between steps the loop is blocked while the model learns; a limit that passed then says nothing.
            if time.monotonic() - began <= self.config.connect_timeout_s + 1:
                replica.failed(time.monotonic())
            return
        if replica.failures and time.monotonic() >= replica.rests_until:
            replica.answered()
        if facts.slots is not None and facts.free is not None:
            replica.slots = facts.slots
            replica.others = max(0, facts.slots - facts.free - replica.in_flight)


class ReplicaSession:
    """One episode, on the replica that plays it now. It remembers what was said, so that it can be said again."""

    def __init__(self, replicas: Replicas) -> None:
        self._replicas = replicas
        self._config = replicas.config
        self._inner: Session | None = None
        self._replica: Replica | None = None
        self._url = self._config.url
        self._begun = False
        self._reset: ResetRequest | None = None
        self._seen: list[Observation] = []
        self._steps: list[StepRequest] = []
        self._spent: list[float] = []
        self.failures = 0

    @property
    def latencies(self) -> list[float]:
        """Seconds of all waits of the episode, those on lost servers too."""
        return self._spent + (self._inner.latencies if self._inner is not None else [])

    @latencies.setter
    def latencies(self, value: list[float]) -> None:
        raise AttributeError("the latencies of a session are its servers'")

    async def connect(self) -> None:
        """Open a session on the best replica that takes one."""
        with self._named():
            await self._start(None)

    async def reset(self, request: ResetRequest) -> Observation:
        """Begin the episode, on the next replica if the first one turns out to be full or gone."""
        with self._named():
            return await self._begin_episode(request)

    async def step(self, request: StepRequest) -> Observation:
        """Play one turn; a lost server is made good where that is sure to be the same episode."""
        with self._named():
            try:
                answer = await self._open_inner().step(request)
            except _LOST as exc:
                answer = await self._recover(request, exc)
        self._steps.append(request)
        self._seen.append(answer)
        return answer

    async def close(self) -> None:
        """Give the session back; never raises, never waits long."""
        await self._leave(gone=False)

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Add whose failure it is: its reader may have several environments, and each several servers."""
        try:
            yield
        except TiltyardError as error:
            if error.boundary == Boundary.ENVIRONMENT:
                error.message = f"{self._config.name or 'environment'} at {self._url}: {error.message}"
            raise

    async def _begin_episode(self, request: ResetRequest) -> Observation:
        self._reset, self._steps = request, []
        inner, url = self._open_inner(), self._url
        try:
            first = await inner.reset(request)
        except _GONE as exc:
            waits = await self._turned_away(exc)
            if len(self._replicas.all) == 1 and not waits:
                raise
            first = await self._start(request, tried=set() if waits else {url}, error=exc)
        self._arrived()
        self._seen = [first]
        return first

    def _open_inner(self) -> Session:
        if self._inner is None:
            raise EnvironmentUnreachable("The session with the environment is closed.")
        return self._inner

    def _arrived(self) -> None:
        if self._replica is not None:
            self._replica.answered()
            self._replica.playing += not self._begun
            self._begun = True

    async def _start(
        self, request: ResetRequest | None, tried: set[str] | None = None, error: TiltyardError | None = None
    ) -> Observation:
        """Open a session, and begin the episode if there is a request, on the first replica that does it."""
        tried = set(tried or ())
        while (replica := await self._replicas.next(tried)) is not None:
            tried.add(replica.url)
            self._replica, self._url = replica, replica.url
            replica.in_flight += 1
            try:
                self._inner = await open_session(self._within_budget(), replica.url)
                return await self._inner.reset(request) if request is not None else Observation()
            except _GONE as exc:
                error = exc
                if await self._turned_away(exc):
                    tried.discard(replica.url)
            except BaseException:
                await self._leave(gone=False)
                raise
        raise error or EnvironmentUnreachable("The environment has no address.")

    def _within_budget(self) -> EnvironmentConfig:
        """The config with what is left of the episode's limit: a replay is part of its episode."""
        if not self._spent:
            return self._config
        left = max(0.001, self._config.episode_timeout_s - sum(self._spent))
        return self._config.model_copy(update={"episode_timeout_s": left})

    async def _turned_away(self, error: TiltyardError) -> bool:
        """Leave a server that took no episode. Returns whether it is full of ours, so that waiting will do."""
        replica = self._replica
        if not isinstance(error, EnvironmentFull) or replica is None:
            await self._leave(gone=True)
            return False
        await self._leave(gone=False)
        waits = replica.full(time.monotonic(), error.slots)
        if not waits:
            replica.failed(time.monotonic())
        return waits

    async def _leave(self, *, gone: bool) -> str:
        """Close the session with its server. Returns the server's address."""
        inner, self._inner = self._inner, None
        replica, self._replica = self._replica, None
        if replica is not None and gone:
            replica.failed(time.monotonic())
        try:
            if inner is not None:
                self._spent += inner.latencies
                await inner.close()
        finally:
            if replica is not None:
                begun, self._begun = self._begun, False
                self._replicas.left(replica, begun=begun)  # only now: the server frees the slot at the goodbye
        return replica.url if replica is not None else ""

    async def _recover(self, request: StepRequest, lost: TiltyardError) -> Observation:
        """The answer to the turn whose server was lost, from a replay. Raises the loss when there can be none."""
        url = await self._leave(gone=isinstance(lost, EnvironmentUnreachable))
        avoided = {url} if len(self._replicas.all) > 1 else set()  # at first: it may come back meanwhile
        if not self._config.deterministic:
            raise _hinted(lost, "The environment is not marked as deterministic, so its episodes cannot be replayed.")
        for attempt in range(self._config.attempts):
            self.failures += 1
            if attempt:
                await asyncio.sleep(REPLAY_PAUSE_S * 2**attempt)
            try:
                if not await self._replay(avoided if attempt == 0 else set()):
                    await self._leave(gone=False)
                    raise _hinted(lost, "Its replay gave other answers: the environment is not deterministic.")
                answer = await self._open_inner().step(request)
            except (*_LOST, EnvironmentFull) as exc:
                if exc is lost:
                    raise
                await self._leave(gone=isinstance(exc, _GONE))
                continue
            return answer
        raise _hinted(lost, "No other replica took the episode over.")

    async def _replay(self, avoided: set[str]) -> bool:
        """Play the episode up to now on another replica; whether every answer is the one that was seen."""
        if not _same(await self._start(self._reset, avoided), self._seen[0]):
            return False
        self._arrived()
        for request, seen in zip(self._steps, self._seen[1:], strict=True):
            if not _same(await self._open_inner().step(request), seen):
                return False
        return True


def _same(left: Observation, right: Observation) -> bool:
    """Whether the policy and the rewards see the same; ``info`` may hold times and names of servers."""
    return left.model_copy(update={"info": {}}) == right.model_copy(update={"info": {}})


def _hinted(error: TiltyardError, hint: str) -> TiltyardError:
    """The same error, with the next action if it names none."""
    error.hint = error.hint or hint
    return error
