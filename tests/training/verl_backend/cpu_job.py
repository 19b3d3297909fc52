"""A job for verl on a CPU: an environment whose rewards differ, and which fails some episodes; settings for the CPU."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any
from weakref import WeakSet

from websockets.asyncio.server import ServerConnection

from tests.training.helpers import TOOLS, demonstration_rows, error, job_config, observation, write_rows
from training.algorithms.job import Job
from training.exports.verl_options import ACTOR, ROLLOUT
from training.journal import Journal
from training.verl_backend.folder import JobFolder
from training.verl_backend.launch import make_folder
from training.verl_backend.settings import Devices

VARIABLES = {
    "VERL_PLATFORM": "cpu",
    "VERL_USE_EXTERNAL_MODULES": "tests.training.verl_backend.on_cpu",
    "VERL_USE_EXTERNAL_PLUGINS": "none",
    "RAY_USAGE_STATS_ENABLED": "0",
}
_FSDP = f"{ACTOR}.fsdp_config"
SETTINGS: dict[str, Any] = {
    f"{ROLLOUT}.name": "hf",
    f"{ROLLOUT}.dtype": "float32",
    f"{ROLLOUT}.free_cache_engine": False,
    f"{ROLLOUT}.agent.num_workers": 2,
    "actor_rollout_ref.model.override_config.attn_implementation": "eager",
    f"{ACTOR}.use_torch_compile": False,
    f"{_FSDP}.dtype": "float32",
    f"{_FSDP}.use_torch_compile": False,
    **{f"{_FSDP}.mixed_precision.{name}_dtype": "fp32" for name in ("param", "reduce", "buffer")},
    "trainer.device": "cpu",
    "ray_kwargs.ray_init.num_cpus": 16,
    "ray_kwargs.ray_init.num_gpus": 1,
    "ray_kwargs.ray_init.include_dashboard": False,
    "ray_kwargs.ray_init.object_store_memory": 200 << 20,
}


DOOMED = ("-g0-i1", "-g3-i0", "-g3-i2")
"""Episodes that fail whatever is written: their groups lose some of their rollouts, and two at least are left."""
_doomed: WeakSet[ServerConnection] = WeakSet()


async def behave(socket: ServerConnection, frame: dict[str, Any], turn: int) -> str:
    """Calls are answered, so an episode has several turns; what it pays follows from what was written, and one in nine
    messages makes it fail."""
    if frame["type"] == "reset":
        if frame["data"]["episode_id"].endswith(DOOMED):
            _doomed.add(socket)
        return observation(messages=[], tools=TOOLS)
    if socket in _doomed:
        return error("EXECUTION_ERROR", "this episode has a fault")
    calls = frame["data"]["tool_calls"]
    written = len(frame["data"]["message"]) + sum(len(str(call["arguments"])) for call in calls)
    if written % 9 == 4:
        return error("EXECUTION_ERROR", "this episode has a fault")
    if calls and turn < 3:
        return observation(messages=[{"role": "tool", "content": "ok", "tool_call_id": calls[0]["id"], "name": "echo"}])
    return observation(messages=[], done=True, reward=written % 7 / 7, reward_parts={"task_success": written % 7 / 7})


def cpu_job(run_dir: Path, base: Path, url: str, **groups: Any) -> Job:
    """A GRPO job of two steps, two tasks of four rollouts each; verl trains it where ``run.device`` allows it to."""
    run_dir.mkdir(parents=True, exist_ok=True)
    data = write_rows(run_dir / "rows.jsonl", demonstration_rows(), prompts_only=True)
    given: dict[str, Any] = {
        "model": {"source": str(base)},
        "data": {"train": str(data)},
        "environment": {"url": url},
        "rollout": {"engine": "vllm", "max_turn_tokens": 48, "max_prompt_tokens": 200, "max_completion_tokens": 160},
        "optim": {"micro_batch_size": 4},
        "run": {"device": "auto"},
    }
    for name, group in groups.items():
        given[name] = given.get(name, {}) | group
    return Job(job_config(**given), run_dir, Journal(run_dir), threading.Event())


def cpu_folder(job: Job, processes: int = 1, more: dict[str, Any] | None = None) -> JobFolder:
    """The job folder for so many processes on the CPU. ``more`` are settings of verl."""
    settings = SETTINGS | {"ray_kwargs.ray_init.num_gpus": processes} | (more or {})
    return make_folder(job, Devices(1, processes), settings)
