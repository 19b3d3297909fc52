"""The real vLLM as the sampler of a run: `pytest -m vllm`. Its CPU build needs 3 GB of memory and a minute to start.

Starts are what takes time, so each test makes one server do all that it can show.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.training.algorithms.conftest import MakeJob
from tests.training.algorithms.test_sampler_check import by_length
from tests.training.helpers import of_type, scripted_server
from training.algorithms.grpo import run_grpo
from training.algorithms.job import Job
from training.errors import SamplerDied, SamplerDisagrees
from training.policy import vllm_engine
from training.policy.vllm_engine import VllmEngine
from training.policy.vllm_server import LOG_NAME, VllmServer, vllm_python
from training.sessions import members

GAP = "sampling/logprob_gap_max"
MOST_GAP = 1e-4


def _missing() -> str:
    try:
        vllm_python()
    except SamplerDied as error:
        return f"{error.message} {error.hint}"
    return ""


needs_vllm = [
    pytest.mark.vllm,
    pytest.mark.timeout(900),
    pytest.mark.skipif(bool(_missing()), reason=_missing() or "there"),
]
pytestmark = [*needs_vllm, pytest.mark.usefixtures("no_health")]


@pytest.fixture
def versions(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """What each change of weights gave."""
    found: list[int] = []
    changed = VllmEngine.weights_changed
    monkeypatch.setattr(VllmEngine, "weights_changed", lambda engine: (found.append(changed(engine)), found[-1])[1])
    return found


@pytest.fixture
def on_step(monkeypatch: pytest.MonkeyPatch) -> dict[int, Callable[[VllmServer], None]]:
    """What happens to the server at the first turn of a step."""
    planted: dict[int, Callable[[VllmServer], None]] = {}
    servers: list[VllmServer] = []
    begin, hand_over = VllmServer.__init__, VllmEngine.weights_changed

    def noted(server: VllmServer, *given: Any, **named: Any) -> None:
        begin(server, *given, **named)
        servers.append(server)

    def changed(engine: VllmEngine) -> int:
        version = hand_over(engine)
        if (act := planted.pop(version, None)) is not None:
            threading.Timer(0.3, act, [servers[-1]]).start()
        return version

    monkeypatch.setattr(VllmServer, "__init__", noted)
    monkeypatch.setattr(VllmEngine, "weights_changed", changed)
    return planted


def vllm_job(make_job: MakeJob, folder: Path, url: str, name: str = "run", **groups: Any) -> Job:
    groups["model"] = {"source": str(folder), **groups.get("model", {})}
    groups["rollout"] = {
        "engine": "vllm",
        "temperature": 0.8,
        "max_prompt_tokens": 300,
        "max_completion_tokens": 200,
        "num_generations": 8,
    }
    return make_job(name, environment={"url": url}, **groups)


def gaps_of(job: Job) -> list[float]:
    return [event.values[GAP] for event in of_type(job.run_dir, "metrics")]


@pytest.mark.parametrize("lora_rank", [8, 0], ids=["adapters", "all weights"])
def test_three_syncs_and_more_each_proved_and_with_a_version_of_its_own(
    make_job: MakeJob, trained_folder: Path, versions: list[int], lora_rank: int
) -> None:
    """The starter's output layer is its embedding, which vLLM's CPU build by itself would not renew."""
    with scripted_server() as url:
        job = vllm_job(make_job, trained_folder, url, model={"lora_rank": lora_rank}, run={"max_steps": 4})
        run_grpo(job, scorer=by_length)
    assert versions == [1, 2, 3, 4]
    gaps = gaps_of(job)
    assert len(gaps) == 4 and max(gaps) <= MOST_GAP, gaps
    ends = of_type(job.run_dir, "rollout_finished")
    assert len(ends) == 4 * 16 and all(end.error is None for end in ends)
    print("largest gaps", gaps)


def test_a_stale_layer_is_caught_at_once(
    make_job: MakeJob, trained_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every tensor but one arrives, and vLLM answers 200: it says so in its log alone."""
    from safetensors.torch import load_file, save_file

    write = vllm_engine.WeightsOnDisk._write_all

    def without_one(weights: Any, folder: Path) -> None:
        write(weights, folder)
        if weights._step() == 1:
            state = load_file(folder / "model.safetensors")
            del state["model.layers.1.mlp.down_proj.weight"]
            save_file(state, folder / "model.safetensors")

    monkeypatch.setattr(vllm_engine.WeightsOnDisk, "_write_all", without_one)
    with scripted_server() as url:
        job = vllm_job(make_job, trained_folder, url, run={"max_steps": 3}, optim={"learning_rate": 5e-4})
        with pytest.raises(SamplerDisagrees) as found:
            run_grpo(job, scorer=by_length)
    print(found.value.message)
    assert len(gaps_of(job)) == 1 and max(gaps_of(job)) <= MOST_GAP
    failed = of_type(job.run_dir, "sampler_checked")[-1]
    assert failed.step == 2 and failed.max_gap > 1e-3


def kill_the_worker(server: VllmServer) -> None:
    """The process that computes: the youngest that is not a helper of multiprocessing."""
    named = {pid: Path(f"/proc/{pid}/comm").read_text().strip() for pid in members(server._process.pid)}
    os.kill(next(pid for pid, name in named.items() if "Worker" in name), signal.SIGKILL)


def test_a_worker_that_is_killed_costs_the_step_and_resume_continues(
    make_job: MakeJob, trained_folder: Path, on_step: dict[int, Callable[[VllmServer], None]]
) -> None:
    on_step[2] = kill_the_worker
    with scripted_server() as url:
        job = vllm_job(make_job, trained_folder, url, run={"max_steps": 3})
        with pytest.raises(SamplerDied) as found:
            run_grpo(job, scorer=by_length)
        assert found.value.pauses and [event.step for event in of_type(job.run_dir, "metrics")] == [1]
        assert [event.step for event in of_type(job.run_dir, "checkpoint")] == [1]
        assert (job.run_dir / LOG_NAME).stat().st_size < 1 << 20
        again = vllm_job(make_job, trained_folder, url, "again", run={"max_steps": 3}, resume_from=job.run_dir)
        began = time.monotonic()
        run_grpo(again, scorer=by_length)
    print("resumed after", time.monotonic() - began)
    assert [event.step for event in of_type(again.run_dir, "metrics")] == [2, 3]
    assert max(gaps_of(again)) <= MOST_GAP
