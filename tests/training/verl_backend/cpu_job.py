"""A job for verl on a CPU: an environment whose rewards differ, and which fails some episodes."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any
from weakref import WeakSet

import pytest
from websockets.asyncio.server import ServerConnection

from tests.training.helpers import TOOLS, demonstration_rows, error, job_config, observation, write_rows
from training.algorithms.job import Job
from training.errors import ConfigError
from training.journal import Journal
from training.main import run_job
from training.verl_backend.learner import verl_python

DOOMED = ("-g0-i1", "-g3-i0", "-g3-i2")
"""Episodes that fail whatever is written: their groups lose some of their rollouts, and two at least are left."""
_doomed: WeakSet[ServerConnection] = WeakSet()
_held_out: WeakSet[ServerConnection] = WeakSet()


async def behave(socket: ServerConnection, frame: dict[str, Any], turn: int, *, exact: bool = False) -> str:
    """Calls are answered, so an episode has several turns; what it pays follows from what was written, and one in nine
    messages makes it fail, where its task is trained on."""
    if frame["type"] == "reset":
        if frame["data"]["episode_id"].endswith(DOOMED):
            _doomed.add(socket)
        if "-e" in frame["data"]["episode_id"]:
            _held_out.add(socket)
        return observation(messages=[], tools=TOOLS)
    if socket in _doomed - _held_out:
        return error("EXECUTION_ERROR", "this episode has a fault")
    calls = frame["data"]["tool_calls"]
    written = len(frame["data"]["message"]) + sum(len(str(call["arguments"])) for call in calls)
    if not exact and written % 9 == 4 and socket not in _held_out:
        return error("EXECUTION_ERROR", "this episode has a fault")
    if calls and turn < 3:
        return observation(messages=[{"role": "tool", "content": "ok", "tool_call_id": calls[0]["id"], "name": "echo"}])
    reward = written % 7 / (8 if exact else 7)
    return observation(messages=[], done=True, reward=reward, reward_parts={"task_success": reward})


async def steady(socket: ServerConnection, frame: dict[str, Any], turn: int) -> str:
    """The same, where only the doomed episodes fail: no group has but one rollout left, which verl masks. Rewards are
    eighths: the mean of three equal ones is that number in float32, too, so TRL's advantages of them are 0."""
    return await behave(socket, frame, turn, exact=True)


def cpu_job(run_dir: Path, base: Path, url: str, **groups: Any) -> Job:
    """A GRPO job of two steps for verl on a CPU, two tasks of four rollouts each."""
    run_dir.mkdir(parents=True, exist_ok=True)
    data = write_rows(run_dir / "rows.jsonl", demonstration_rows(), prompts_only=True)
    given: dict[str, Any] = {
        "model": {"source": str(base)},
        "data": {"train": str(data)},
        "environment": {"url": url},
        "rollout": {"max_turn_tokens": 48, "max_prompt_tokens": 200, "max_completion_tokens": 160},
        "optim": {"micro_batch_size": 4},
        "hardware": {"backend": "verl"},
    }
    for name, group in groups.items():
        given[name] = given.get(name, {}) | group
    return Job(job_config(**given), run_dir, Journal(run_dir), threading.Event())


def run_by_verl(job: Job, run_dir: Path | None = None, **given: Any) -> int:
    """Run the job as a worker does, with a process of verl's; the exit code. ``given`` goes to ``run_job``.

    Skips where verl is not installed.
    """
    try:
        verl_python()
    except ConfigError:
        pytest.skip("There is no .venv-verl: run make setup-verl.")
    job.journal.close()
    return run_job(job.config, run_dir or job.run_dir, progress=False, **given)
