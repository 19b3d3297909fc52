"""What one environment implements: ``reset`` and ``step`` over the wire models."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable
from typing import Any, ClassVar

from envs.wire import Observation, StepRequest


class EnvironmentRefusal(Exception):
    """The peer asked for something that cannot be done. Its text is a sentence that the client may read."""


class ToolEnvironment(ABC):
    """One session: a fresh instance for each connection, used by one caller at a time.

    ``reset`` and ``step`` may be plain functions (they run on the event loop, so they must be quick), coroutines, or,
    with ``blocking = True``, plain functions that take long and run in the server's thread pool.
    """

    blocking: ClassVar[bool] = False

    @abstractmethod
    def reset(self, task: dict[str, Any], seed: int, episode_id: str) -> Observation | Awaitable[Observation]:
        """Start an episode. The same ``task`` and ``seed`` give the same episode in every process."""

    @abstractmethod
    def step(self, request: StepRequest) -> Observation | Awaitable[Observation]:
        """Play one turn of the policy."""

    def close(self) -> None:  # noqa: B027 - most environments hold nothing that needs closing
        """Free what the session holds. Called once, from a worker thread."""
