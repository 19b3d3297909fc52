"""The base of every session with an environment, whatever its protocol.

Each stage has one deadline over all its reads, so a server that drips bytes is cut off as surely as one that hangs.
Any failure leaves as a typed error of ``training/errors.py``.
"""

from __future__ import annotations

import asyncio
import json
import math
import ssl
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from types import FrameType
from typing import Any, Protocol

from envs.wire import Message, Observation, ResetRequest, StepRequest
from training.config import EnvironmentConfig
from training.errors import (
    EnvironmentFault,
    EnvironmentFull,
    EnvironmentProtocolError,
    EnvironmentRefused,
    EnvironmentTimeout,
    EnvironmentUnreachable,
    TiltyardError,
)
from training.plain import json_problem, json_reason, os_reason
from training.rewards.text import MAX_REWARD, within_bounds

CAUSES_MAX = 5  # how deep a client's exception is followed
MAX_MESSAGE_BYTES = 4 << 20
CLOSE_TIMEOUT_S = 0.5
BUSY_STATUSES = (429, 503)
GATEWAY_STATUSES = (502, 504)


class SessionLost(EnvironmentFault):
    """The server answers, but it no longer knows this episode."""


class MessageRefused(EnvironmentProtocolError):
    """The server's models did not accept our message; ``faults`` are the field, pydantic's type and its sentence."""

    faults: tuple[tuple[str, str, str], ...] = ()


class Session(Protocol):
    """One episode with one environment.

    ``latencies`` are the seconds each answer took, in order; ``failures`` counts what failed and was made good.
    """

    latencies: list[float]
    failures: int

    async def reset(self, request: ResetRequest) -> Observation: ...

    async def step(self, request: StepRequest) -> Observation: ...

    async def close(self) -> None: ...


class Waits:
    """The seconds that an episode may still wait for its environment, and those that each answer took.

    The episode limit counts only these waits, so a slow policy is never blamed on the environment.
    """

    def __init__(self, episode_timeout_s: float) -> None:
        self._left_s = episode_timeout_s
        self.latencies: list[float] = []

    @asynccontextmanager
    async def stage(self, kind: str, limit: float) -> AsyncIterator[None]:
        """One deadline over everything inside. Raises ``EnvironmentTimeout``."""
        allowed = min(limit, self._left_s)
        began = time.monotonic()
        try:
            async with asyncio.timeout(allowed):
                yield
        except TimeoutError as exc:
            which = "the episode's" if allowed < limit else "its"
            raise EnvironmentTimeout(f"No answer to {kind} within {which} limit of {allowed:.3g} s.") from exc
        finally:
            waited = time.monotonic() - began
            self._left_s -= waited
            self.latencies.append(waited)


class BaseSession:
    """A session of a protocol that is not our own. Subclasses say how an episode begins, continues and ends.

    ``_rewarded`` keeps the environment's reward over the turns: our wire wants cumulative truths.
    """

    def __init__(self, config: EnvironmentConfig, reward: str = "last") -> None:
        self._config = config
        self._waits = Waits(config.episode_timeout_s)
        self._sums = reward == "sum"
        self._reward: float | None = None
        self.latencies = self._waits.latencies
        self.failures = 0

    async def reset(self, request: ResetRequest) -> Observation:
        """Begin the episode."""
        async with self._waits.stage("reset", self._config.reset_timeout_s):
            return await self._begin_episode(request)

    async def step(self, request: StepRequest) -> Observation:
        """Play one turn; all calls of the turn share its limit."""
        async with self._waits.stage("step", self._config.step_timeout_s):
            return await self._play(request)

    async def close(self) -> None:
        """Say goodbye; never raises, never waits long."""
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await self._end()
        except (TimeoutError, TiltyardError, OSError):
            return

    async def _begin_episode(self, request: ResetRequest) -> Observation:
        raise NotImplementedError

    async def _play(self, request: StepRequest) -> Observation:
        raise NotImplementedError

    async def _end(self) -> None:
        return

    def _rewarded(self, value: object) -> float | None:
        """The reward so far, after an answer that gave ``value``. Booleans are the success of a task."""
        if value is None:
            return self._reward
        number = require_number("reward", float(value) if isinstance(value, bool) else value)
        self._reward = require_number("reward", number + (self._reward or 0.0)) if self._sums else number
        return self._reward


def require_number(name: str, value: object) -> float:
    """A finite number; a coerced string or NaN would poison a whole group."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise EnvironmentProtocolError(f"The environment's {name} is not a finite number: {str(value)[:60]!r}.")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise EnvironmentProtocolError(f"The environment's {name} is not a finite number: {str(value)[:60]!r}.")
    if not within_bounds(number):
        raise EnvironmentProtocolError(
            f"The environment's {name} is {number:g}; a reward may be ±{MAX_REWARD:g} at most."
        )
    return number


def require_flag(name: str, value: object) -> bool:
    """True or false; nothing else is taken for one."""
    if not isinstance(value, bool):
        raise EnvironmentProtocolError(f"The environment's `{name}` is neither true nor false.")
    return value


def decode(raw: bytes | str) -> Any:
    """JSON that others wrote, and that can be passed on. Raises ``EnvironmentProtocolError``."""
    try:
        text = raw if isinstance(raw, str) else raw.decode("utf-8")
        value = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError) as exc:
        raise EnvironmentProtocolError(f"The environment answered something that is not JSON: {short(exc)}.") from exc
    if (problem := json_problem(value, text)) is not None:
        raise EnvironmentProtocolError(f"The environment's answer cannot be used: {problem}.")
    return value


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def as_text(value: Any) -> str:
    """The text of a value for a model: text as it is, anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def refusal(status: int) -> TiltyardError:
    """What an HTTP status other than success means for the caller."""
    if status in (401, 403):
        return EnvironmentRefused(
            f"The environment refused us (HTTP {status}).", hint="Check the environment's access token."
        )
    if status in BUSY_STATUSES:
        return EnvironmentFull(f"The environment is too busy (HTTP {status}).")
    if 300 <= status < 400:
        return EnvironmentRefused(
            f"The environment redirects elsewhere (HTTP {status}), and redirects are not followed.",
            hint="Register the address that it redirects to.",
        )
    if status in GATEWAY_STATUSES:
        return EnvironmentUnreachable(f"The environment does not answer the gateway before it (HTTP {status}).")
    return EnvironmentRefused(f"The environment refused the connection (HTTP {status}).")


def no_connection(exc: BaseException) -> EnvironmentUnreachable:
    """The typed error of a connection that could not be made. A wrong certificate does not pass by waiting."""
    kind = EnvironmentRefused if "CERTIFICATE_VERIFY_FAILED" in str(exc) else EnvironmentUnreachable
    return kind(
        f"The environment cannot be reached: {short(exc)}.", hint="Start the environment server, or fix its URL."
    )


def short(exc: BaseException) -> str:
    """An exception in a few words, for the end of a sentence."""
    if isinstance(exc, json.JSONDecodeError):
        return json_reason(exc)
    if (refused := _refused(exc)) is not None:
        return os_reason(refused)
    text = str(exc) or type(exc).__name__
    return text[:200].rstrip(".")


def _refused(exc: BaseException) -> OSError | None:
    """The system's refusal behind a client's exception; TLS has words of its own."""
    cause: BaseException | None = exc
    for _link in range(CAUSES_MAX):
        if isinstance(cause, OSError) and not isinstance(cause, ssl.SSLError) and cause.args:
            return cause
        cause = cause.__cause__ or cause.__context__ if cause is not None else None
    return None


# --- Conversation ---------------------------------------------------------------------------------------------------
# How a conversation begins and what the policy hears of an answer; the same for a model and for a person.


def opening(prompt: list[Message], first: Observation) -> list[Message]:
    """The row's messages and the environment's first ones.

    An environment that owns the whole prompt repeats the row's messages; one that does not, adds to them.
    """
    repeated = _same_texts(first.messages[: len(prompt)], prompt)
    return list(first.messages) if repeated else [*prompt, *first.messages]


def heard(answer: Observation) -> list[Message]:
    """The answer's messages; tools that appear mid-episode are written into the last of them.

    The prompt that lists the tools was tokenised already and must not change, so the policy hears of new ones here.
    """
    if not answer.tools or answer.done:
        return list(answer.messages)
    lines = "\n".join(json.dumps(tool, ensure_ascii=False) for tool in answer.tools)
    note = f"The functions you may call are now:\n{lines}"
    if not answer.messages:
        return [Message(role="user", content=note)]
    *earlier, last = answer.messages
    return [*earlier, last.model_copy(update={"content": f"{last.content}\n{note}"})]


def _same_texts(left: list[Message], right: list[Message]) -> bool:
    return len(left) == len(right) and all(
        a.role == b.role and a.content == b.content for a, b in zip(left, right, strict=True)
    )


# --- Deadline -------------------------------------------------------------------------------------------------------
# An end for code that others wrote and that runs in our own process: chat templates.


class OutOfTime(BaseException):
    """The block took longer than it may. No ``Exception``: nothing inside may take it for an error and continue."""


@contextmanager
def deadline(seconds: float, *, clock: Callable[[], float] = time.monotonic) -> Iterator[None]:
    """Raise ``OutOfTime`` inside the block once it has taken so many seconds.

    It is looked at before each line of Python that the block runs, in this thread alone, so no exception can come
    later than the block's end. A template is compiled to Python, so its loops are lines too. A signal would need the
    main thread, and a child process the tokenizer's libraries again.
    """
    end = clock() + seconds

    def look(frame: FrameType, event: str, arg: object) -> Any:
        if clock() > end:
            raise OutOfTime
        return look

    before = sys.gettrace()
    sys.settrace(look)
    try:
        yield
    finally:
        sys.settrace(before)
