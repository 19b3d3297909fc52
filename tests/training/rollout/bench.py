"""A collector as ``run_grpo`` makes it, environment servers as processes, and a clock that tests move."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx

from tests.training.helpers import (
    ScriptedEngine,
    call_text,
    demonstration_rows,
    job_config,
    of_type,
)
from training.dialects import DIALECTS
from training.errors import (
    RewardFault,
)
from training.journal import Journal
from training.rewards.base import Episode, Score
from training.rollout.collector import Collector
from training.rollout.replicas import Replicas
from training.rollout.tokens import ChatTemplate
from training.rollout.trajectory import Player, StepRollouts

ROOT = Path(__file__).resolve().parents[3]


def verdict(episode: Episode) -> Score:
    if episode.env_reward is None:
        raise RewardFault("no verdict")
    return Score(parts={"task_success": episode.env_reward}, total=episode.env_reward)


class Bench:
    """A collector as ``run_grpo`` makes it, with a scripted engine."""

    def __init__(self, folder: Path, tokenizer: Any, url: str, **over: Any) -> None:
        groups: dict[str, Any] = over.pop("config", {})
        groups["environment"] = {"url": url, **groups.get("environment", {})}
        self.config = job_config(**groups)
        self.engine = over.pop("engine", None) or ScriptedEngine(tokenizer, [call_text("hi"), "It is hi."])
        self.stop, self.journal, self.path = threading.Event(), Journal(folder), folder
        player = Player(
            engine=self.engine,
            template=ChatTemplate(tokenizer),
            parse=DIALECTS["hermes"],
            rollout=self.config.rollout,
            environment=self.config.environment,
            open_session=Replicas(self.config.environment).open,
        )
        rows = [row.model_copy(update={"messages": row.messages[:1]}) for row in demonstration_rows(6)]
        scorer = over.pop("scorer", verdict)
        self.collector = Collector(self.config, rows, player, scorer, self.journal, self.stop)

    def collect(self, step: int = 1) -> StepRollouts:
        rollout = self.config.rollout
        rows = [row for row in range(rollout.prompts_per_step) for _ in range(rollout.num_generations)]
        return self.collector.collect(step, rows)

    def held(self) -> list[Any]:
        return of_type(self.path, "held")


class Clock:
    """Time that passes only where ``holding`` sleeps."""

    def __init__(self) -> None:
        self.now = 1000.0

    async def sleep(self, seconds: float) -> None:
        target = self.now + seconds
        await asyncio.sleep(0.05)  # so that those who fail together also wait together
        self.now = max(self.now, target)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
    return port


@contextlib.contextmanager
def tools_server(port: int, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """Our own tools server on a port of the test's choice, so that it can come back there."""
    with _server(port, "-m", "envs.tools", "--port", str(port), "--log-level", "error", *options) as server:
        yield server


@contextlib.contextmanager
def openenv_server(*slots: int) -> Iterator[str]:
    """A server of the ``openenv`` package's own making; without ``slots``, with its default. Yields its URL."""
    port, script = free_port(), Path(__file__).with_name("text_environment.py")
    with _server(port, str(script), str(port), *map(str, slots)):
        yield f"http://127.0.0.1:{port}"


@contextlib.contextmanager
def _server(port: int, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    server = subprocess.Popen([sys.executable, *words], cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        end = time.monotonic() + 60
        while time.monotonic() < end and server.poll() is None:
            with contextlib.suppress(httpx.HTTPError):
                if httpx.get(f"http://127.0.0.1:{port}/health", timeout=1).status_code == 200:
                    break
            time.sleep(0.05)
        yield server
    finally:
        server.kill()
        server.wait(10)


@contextlib.contextmanager
def raw_server(session: Any, port: int) -> Iterator[None]:
    from websockets.asyncio.server import serve

    ready, stopped = threading.Event(), asyncio.Event()
    loops: list[asyncio.AbstractEventLoop] = []

    async def run() -> None:
        loops.append(asyncio.get_running_loop())
        async with serve(session, "127.0.0.1", port, close_timeout=0.2):
            ready.set()
            await stopped.wait()

    thread = threading.Thread(target=lambda: asyncio.run(run()), daemon=True)
    thread.start()
    assert ready.wait(5)
    try:
        yield
    finally:
        loops[0].call_soon_threadsafe(stopped.set)
        thread.join(5)
