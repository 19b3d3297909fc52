"""The environment that docs/environments.md shows: short, it runs, proves itself and can be trained against."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator

import pytest

from envs.wire import ResetRequest, StepRequest, ToolCall
from tests.envs.client import ROOT, Server, run
from tests.envs.client import port_of as port_when_listening
from tests.envs.test_server import http
from training.config import EnvironmentConfig
from training.rollout.client import SocketSession, ask_health

MAX_LINES = 60


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("example")
    (script := folder / "guessing.py").write_text(source())
    log = folder / "server.log"
    with log.open("wb") as stderr:
        process = subprocess.Popen(
            [sys.executable, str(script), "--port", "0"], env={**os.environ, "PYTHONPATH": str(ROOT)}, stderr=stderr
        )
    try:
        yield Server(process, log, port_when_listening(log, process))
    finally:
        process.terminate()
        process.wait(10)


@pytest.fixture(autouse=True)
def own_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client of a person's own command line, which gets no allow-list."""
    monkeypatch.delenv("TILTYARD_OUTBOUND_ALLOW", raising=False)


def source() -> str:
    found = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "environments.md").read_text(), re.DOTALL)
    assert len(found) == 1
    return str(found[0])


def test_it_is_short() -> None:
    lines = [line for line in source().splitlines() if line.strip()]
    assert len(lines) < MAX_LINES, len(lines)


def test_it_says_who_it_is_and_proves_itself(example: Server) -> None:
    health = asyncio.run(ask_health(EnvironmentConfig(name="guessing", url=f"http://127.0.0.1:{example.port}")))
    assert (health.name, health.slots, health.deterministic) == ("guessing", 512, True)
    status, body = http(example, "/validate")
    assert (status, json.loads(body)) == (
        200,
        {"ok": True, "episodes": 201, "gold_reward": 1.0, "bad_reward": 0.0, "problems": []},
    )


def test_an_episode_is_played_by_halving(example: Server) -> None:
    async def play(seed: int) -> tuple[float | None, list[str]]:
        config = EnvironmentConfig(name="guessing", url=f"http://127.0.0.1:{example.port}")
        async with SocketSession(config) as session:
            await session.reset(ResetRequest(seed=seed))
            low, high, heard = 1, 100, []
            while True:
                guess = (low + high) // 2
                call = ToolCall(id="1", name="guess", arguments={"number": guess})
                seen = await session.step(StepRequest(tool_calls=[call]))
                heard.append(seen.messages[0].content)
                if seen.done:
                    return seen.reward, heard
                low, high = (guess + 1, high) if heard[-1] == "too low" else (low, guess - 1)

    for seed in range(20):
        reward, heard = run(play(seed))
        assert (reward, heard[-1]) == (1.0, "right") and len(heard) <= 7
    assert run(play(3)) == run(play(3))
