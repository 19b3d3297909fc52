"""Several servers of one environment: new episodes go where most slots are free, lost ones are replayed elsewhere.

1. ``Replicas.open`` picks the address with the most free slots. Loads are asked in the background, never waited for.
2. A replica that is unreachable or full rests for a while that grows, and the next one is tried at once.
3. When a server is lost in mid-episode and the environment is deterministic, the episode is played again on another
   replica (or the same one, restarted). It goes on only if every answer is the one that the policy has already seen.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from envs.wire import Observation, ResetRequest, StepRequest
from training.config import EnvironmentConfig
from training.errors import Boundary, EnvironmentFull, EnvironmentUnreachable, TiltyardError
from training.rollout.protocols import addresses, ask_server, open_session
from training.rollout.session import Session, SessionLost

REFRESH_S = 2.0
REST_BASE_S, REST_CAP_S = 0.5, 30.0
REPLAY_PAUSE_S = 0.25
_GONE = (EnvironmentUnreachable, EnvironmentFull)
_LOST = (EnvironmentUnreachable, SessionLost)


@dataclass
class Replica:
    """One address and what is known of it. ``others`` are sessions that are not ours."""

    url: str
    slots: int | None = None
    others: int = 0
    in_flight: int = 0
    failures: int = 0
    rests_until: float = 0.0

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

    def __post_init__(self) -> None:
        self.all = [Replica(url) for url in addresses(self.config)]

    async def open(self) -> Session:
        """A session on the replica with most room. Raises the last replica's error when none can be reached."""
        self._refresh()
        session = ReplicaSession(self)
        await session.connect()
        return session

    def pick(self, tried: set[str]) -> Replica | None:
        """The best replica that was not tried yet; one that rests only when no other is left."""
        now = time.monotonic()
        left = [replica for replica in self.all if replica.url not in tried]
        awake = [replica for replica in left if now >= replica.rests_until]
        if awake:
            return max(awake, key=lambda replica: replica.room)
        return min(left, key=lambda replica: replica.rests_until, default=None)

    def _refresh(self) -> None:
        """Ask for loads in the background, at most every ``REFRESH_S``. With one replica there is nothing to choose."""
        now = time.monotonic()
        asking = self._asking is not None and not self._asking.done()
        if len(self.all) > 1 and not asking and now - self._asked_at >= REFRESH_S:
            self._asked_at = now
            self._asking = asyncio.create_task(self._ask_all())

    async def _ask_all(self) -> None:
        await asyncio.gather(*(self._ask(replica) for replica in self.all))

    async def _ask(self, replica: Replica) -> None:
        began = time.monotonic()
        try:
            facts = await ask_server(self.config, replica.url)
        except TiltyardError:
            # Between steps the loop stands still while the model learns; a limit that passed then says nothing.
            if time.monotonic() - began <= self.config.connect_timeout_s + 1:
                replica.failed(time.monotonic())
            return
        if replica.failures and time.monotonic() >= replica.rests_until:
            replica.answered()
        if facts.slots is not None and facts.free is not None:
            replica.slots = facts.slots
            replica.others = max(0, facts.slots - facts.free - replica.in_flight)


class ReplicaSession:
    """One episode, on whichever replica plays it now. It remembers what was said, so that it can be said again."""

    def __init__(self, replicas: Replicas) -> None:
        self._replicas = replicas
        self._config = replicas.config
        self._inner: Session | None = None
        self._replica: Replica | None = None
        self._url = self._config.url
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
            return await self._begin(request)

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
        """Whose failure it is: whoever reads it may have several environments, and each several servers."""
        try:
            yield
        except TiltyardError as error:
            if error.boundary == Boundary.ENVIRONMENT:
                error.message = f"{self._config.name or 'environment'} at {self._url}: {error.message}"
            raise

    async def _begin(self, request: ResetRequest) -> Observation:
        self._reset, self._steps = request, []
        inner = self._open_inner()
        try:
            first = await inner.reset(request)
        except _GONE as exc:
            url = await self._leave(gone=True)
            if len(self._replicas.all) == 1:
                raise
            first = await self._start(request, tried={url}, error=exc)
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

    async def _start(
        self, request: ResetRequest | None, tried: set[str] | None = None, error: TiltyardError | None = None
    ) -> Observation:
        """Open a session, and begin the episode if there is a request, on the first replica that does it."""
        tried = set(tried or ())
        while (replica := self._replicas.pick(tried)) is not None:
            tried.add(replica.url)
            self._replica, self._url = replica, replica.url
            replica.in_flight += 1
            try:
                self._inner = await open_session(self._within_budget(), replica.url)
                return await self._inner.reset(request) if request is not None else Observation()
            except BaseException as exc:
                await self._leave(gone=isinstance(exc, _GONE))
                if not isinstance(exc, _GONE):
                    raise
                error = exc
        raise error or EnvironmentUnreachable("The environment has no address.")

    def _within_budget(self) -> EnvironmentConfig:
        """The config with what is left of the episode's limit: a replay is part of its episode."""
        if not self._spent:
            return self._config
        left = max(0.001, self._config.episode_timeout_s - sum(self._spent))
        return self._config.model_copy(update={"episode_timeout_s": left})

    async def _leave(self, *, gone: bool) -> str:
        """Close the session with its server. Returns the server's address."""
        inner, self._inner = self._inner, None
        replica, self._replica = self._replica, None
        if replica is not None:
            replica.in_flight -= 1
            if gone:
                replica.failed(time.monotonic())
        if inner is not None:
            self._spent += inner.latencies
            await inner.close()
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
