"""What does playing ahead save, and what does it cost? ``python benchmarks/overlap.py [--steps N] [--seeds 42 43 44]``.

*time*: a GRPO run whose turns come from a sampler that only waits (latency without computation, as one on other
devices), with the trainer's real updates; step seconds without and with ``rollout.max_staleness`` 1, next to those of
sampling and training alone. Sampling takes half of, as much as, and twice what training takes. The sampler has weights
of its own: each handover waits for a write, a load and the turns of the proof, and the proof's forward is the trainer's
real one. *step_ahead_s* is with the handover during training, *step_in_series_s* the same run with the handover and its
proof before the next sampling begins, as it was. What the trainer itself spends on them is *handover_s*.

*learning*: the demo's chain (SFT, then GRPO on the tools task) sampled from a copy of the weights that is brought up to
date where vLLM's would be, with staleness 0 and 1, for each seed. Prints JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import copy
import json
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")

import torch  # noqa: E402

from benchmarks.environment import environment_server  # noqa: E402
from benchmarks.learning import DEMONSTRATIONS, TASKS, learned, make_data, train  # noqa: E402
from tests.training.algorithms.test_sampler_check import by_length  # noqa: E402
from tests.training.helpers import demonstration_rows, job_config, of_type, write_rows  # noqa: E402
from training.algorithms import grpo, sampler  # noqa: E402
from training.algorithms.job import Job  # noqa: E402
from training.algorithms.rollouts import (  # noqa: E402
    HANDOVER,
    Ahead,
    Rollouts,
)
from training.config import JobConfig  # noqa: E402
from training.journal import Journal  # noqa: E402
from training.policy.check import SamplerCheck, Tolerance, tolerance_for  # noqa: E402
from training.policy.engine import EngineFigures, Sample, Turn  # noqa: E402
from training.policy.make import make_engine  # noqa: E402
from training.policy.transformers_engine import TransformersEngine  # noqa: E402
from training.presets import presets  # noqa: E402
from training.rollout.tokens import turn_ends  # noqa: E402
from training.starter import build_starter  # noqa: E402

WARM = 3
TOKENS = 48


class Takes(NamedTuple):
    """Seconds of a handover: writing the weights, loading them, and the turns that prove them."""

    write: float = 0.0
    load: float = 0.0
    prove: float = 0.0


class Waits:
    """An engine whose turns take time and no computation, and so do its handovers of weights."""

    def __init__(self, seconds: float, takes: Takes) -> None:
        self._seconds, self._takes, self._version, self._turns = seconds, takes, 0, 0
        self._written = False

    async def generate(self, prompt_ids: list[int], *, max_tokens: int, seed: int, episode: str = "") -> Sample:
        """Ids that depend on the seed, with log-probabilities of the weights' version, for the proof."""
        await asyncio.sleep(self._seconds)
        self._turns += 1
        ids = [10 + (seed >> place) % 90 for place in range(max_tokens - 1)]
        return Sample([*ids, 2], [-4.0 - 0.001 * (self._version % 9)] * max_tokens, True, self._version)

    def release(self, episode: str) -> None:
        """Nothing is kept."""

    @contextmanager
    def sampling(self) -> Iterator[None]:
        """Nothing to prepare."""
        yield

    def weights_changed(self) -> int:
        """Written and loaded."""
        self.write_weights()
        time.sleep(self._takes.load)
        self._written = False
        self._version += 1
        return self._version

    def write_weights(self) -> None:
        """See ``CopyEngine``."""
        if not self._written:
            time.sleep(self._takes.write)
            self._written = True

    def hand_over(self, turns: Sequence[Turn]) -> list[Sample]:
        """See ``CopyEngine``. The answers are others each time, as those of new weights are."""
        self.weights_changed()
        time.sleep(self._takes.prove)
        return [Sample([10 + self._version % 90, 2], [-4.0] * 2, True, self._version) for _turn in turns]

    @property
    def version(self) -> int:
        """See ``Engine``."""
        return self._version

    @property
    def figures(self) -> EngineFigures:
        """Turns alone."""
        return EngineFigures(turns=self._turns)

    def close(self) -> None:
        """Nothing was started."""


class WaitingSampler(sampler.JobSampler):
    """Has a sampler that waits in the place of vLLM. What it says is made up, so the check allows anything."""

    waits = Waits(0.0, Takes())

    def __init__(self, job: Job, folder: Path, device: str) -> None:
        super().__init__(job, folder, device)
        self._vllm = True

    def engine(self, model: Any, tokenizer: Any, logprobs: Any, autocast: Any) -> Any:
        """The one that waits, checked after each handover."""
        check = SamplerCheck(logprobs, Tolerance(1e9, 1e9, 1e9), self._job.journal.write, copies=True)
        self._engine, changed = self.waits, self.waits.weights_changed

        def renewed() -> int:
            check.renew()
            return changed()

        self.waits.weights_changed = renewed  # type: ignore[method-assign]
        return self.waits, check


class InSeries(Rollouts):
    """The handover and its proof as they were: the next sampling begins when both are over."""

    def _take(self, ahead: Ahead, step: int, rows: list[int]) -> Any:
        began = time.monotonic()
        if not ahead.has(step):
            self._hand_over(step)
            ahead.begin(step, rows)
        result = ahead.take(step, rows)
        figures = self._staleness(step, result) | {"timing/waiting": time.monotonic() - began}
        began = time.monotonic()
        assert self._copies is not None and self._check is not None
        probes = self._arrive(self._copies, step, self._asked(result))
        figures |= self._check(step, probes)
        self._check.prove(step, probes)
        for later in self._later(step):
            ahead.begin(later, self._rows_of(later))
        return result, figures | {HANDOVER: time.monotonic() - began}


class Copied(TransformersEngine):
    """Samples from a copy of the weights, brought up to date when it is notified of new ones."""

    def __init__(self, trained: Any, engine: TransformersEngine, own: Any) -> None:
        super().__init__(own, stop_ids=engine._stop_ids, params=engine._params, parks=engine._parks)
        self._trained = trained

    def weights_changed(self) -> int:
        """Take the trainer's."""
        with torch.no_grad():
            for mine, theirs in zip(self._model.parameters(), self._trained.parameters(), strict=True):
                mine.copy_(theirs)
        return super().weights_changed()

    def write_weights(self) -> None:
        """They are copied when they are handed over."""

    def hand_over(self, turns: Sequence[Turn]) -> list[Sample]:
        """The trainer's weights, and the turns."""
        self.weights_changed()

        async def draw() -> list[Sample]:
            asked = (self.generate(t.prompt_ids, max_tokens=t.max_tokens, seed=t.seed) for t in turns)
            return await asyncio.gather(*asked)

        with self.sampling():
            return asyncio.run(draw())


class CopySampler(sampler.JobSampler):
    """Has a copy of the weights in the place of vLLM."""

    def __init__(self, job: Job, folder: Path, device: str) -> None:
        super().__init__(job, folder, device)
        self._vllm = True

    def engine(self, model: Any, tokenizer: Any, logprobs: Any, autocast: Any) -> Any:
        """The copy's, checked as vLLM's is."""
        config = self._job.config
        tolerance = tolerance_for(model, autocast, vllm=True)
        check = SamplerCheck(logprobs, tolerance, self._job.journal.write, copies=True)
        made = make_engine(config, model, turn_ends(tokenizer), autocast=autocast, log=self._job.log)
        self._engine = Copied(model, made, copy.deepcopy(model))
        renew = self._engine.weights_changed

        def changed() -> int:
            check.renew()
            return renew()

        self._engine.weights_changed = changed  # type: ignore[method-assign]
        return self._engine, check


def step_seconds(
    folder: Path, starter: Path, wait_s: float, staleness: int, steps: int, takes: Takes, name: str = ""
) -> dict[str, float]:
    """Medians over the steps of one run with the waiting sampler."""
    data = write_rows(folder / "rows.jsonl", demonstration_rows(), prompts_only=True)
    rollout = {"prompts_per_step": 8, "num_generations": 8, "max_turns": 1, "max_turn_tokens": TOKENS}
    config = job_config(
        model={"source": str(starter)},
        data={"train": str(data)},
        rollout={**rollout, "max_completion_tokens": TOKENS, "engine": "vllm", "max_staleness": staleness},
        vllm={"mode": "server", "urls": ["http://127.0.0.1:9"]},  # never asked
        run={"max_steps": steps, "threads": 1, "save_every_minutes": 0},
    )
    WaitingSampler.waits = Waits(wait_s, takes)
    run_dir = folder / f"{wait_s:.3f}-{staleness}{name}"
    job = Job(config, run_dir, Journal(run_dir), threading.Event(), 1)
    grpo.run_grpo(job, scorer=by_length)
    job.journal.close()
    values = [event.values for event in of_type(run_dir, "metrics")][WARM:]
    parts = ("generation", "environment", "scoring")
    return {
        "step": statistics.median(found["timing/step"] for found in values),
        "training": statistics.median(found["timing/training"] for found in values),
        "handover": statistics.median(found[HANDOVER] for found in values),
        "sampling": statistics.median(sum(found[f"timing/{part}"] for part in parts) for found in values),
    }


def measure_time(folder: Path, steps: int) -> list[dict[str, float]]:
    """One line for each length of sampling. A handover takes 0.15 of an update to write, as long to load, and 0.2 to be
    asked."""
    grpo.JobSampler = WaitingSampler  # type: ignore[misc]
    starter = folder / "starter"
    build_starter(demonstration_rows(), starter, seed=3)
    training = step_seconds(folder, starter, 0.0, 0, steps, Takes())["training"]
    takes = Takes(0.15 * training, 0.15 * training, 0.2 * training)
    lines = []
    for share in (0.5, 1.0, 2.0):
        apart = step_seconds(folder, starter, share * training, 0, steps, takes)
        ahead = step_seconds(folder, starter, share * training, 1, steps, takes)
        grpo.Rollouts = InSeries  # type: ignore[misc]
        series = step_seconds(folder, starter, share * training, 1, steps, takes, "-in-series")
        grpo.Rollouts = Rollouts  # type: ignore[misc]
        longest = max(apart["sampling"], apart["training"])
        lines.append(
            {
                "sampling_s": round(apart["sampling"], 3),
                "training_s": round(apart["training"], 3),
                "sampler_handover_s": round(sum(takes), 3),
                "step_s": round(apart["step"], 3),
                "step_in_series_s": round(series["step"], 3),
                "step_ahead_s": round(ahead["step"], 3),
                "handover_in_series_s": round(series["handover"], 3),
                "handover_s": round(ahead["handover"], 3),
                "in_series_over_longest": round(series["step"] / longest, 3),
                "ahead_over_longest": round(ahead["step"] / longest, 3),
                "ahead_over_sum": round(ahead["step"] / apart["step"], 3),
            }
        )
    return lines


def learn(folder: Path, seed: int, staleness: int, url: str) -> dict[str, Any]:
    """The demo's GRPO run over the warm-up's model."""
    chosen = presets()["tools-demo-grpo"]
    config = chosen.job_for("full").model_dump()
    config["model"]["source"] = str(folder / "tools-demo-sft" / "model")
    config["data"]["train"] = str(folder / "tasks.jsonl")
    config["environment"] |= {"name": "tools", "url": url}
    config["rollout"] |= {"engine": "vllm", "max_staleness": staleness}
    config["vllm"] |= {"mode": "server", "urls": ["http://127.0.0.1:9"]}  # never asked: the copy samples
    config["run"]["seed"] = seed
    run_dir = folder / f"staleness-{staleness}"
    job = Job(JobConfig.model_validate(config), run_dir, Journal(run_dir), threading.Event(), 1)
    began = time.monotonic()
    grpo.run_grpo(job)
    job.journal.close()
    metrics = of_type(run_dir, "metrics")
    return {
        "staleness": staleness,
        **learned(metrics, "reward"),
        "mean": round(statistics.fmean(event.values["reward"] for event in metrics), 3),
        "success_last10": learned(metrics, "rollouts/task_success")["last10"],
        "seconds": round(time.monotonic() - began, 1),
    }


def measure_learning(folder: Path, seeds: list[int]) -> list[dict[str, Any]]:
    """Both stalenesses for each seed, over the same warm-up."""
    grpo.JobSampler = CopySampler  # type: ignore[misc]
    found = []
    for seed in seeds:
        own = folder / str(seed)
        own.mkdir()
        make_data("demonstrations", DEMONSTRATIONS, own / "demonstrations.jsonl")
        make_data("tasks", TASKS, own / "tasks.jsonl")
        train("tools-demo-sft", own, seed, {"data": {"train": str(own / "demonstrations.jsonl")}})
        with environment_server("tools") as server:
            runs = [learn(own, seed, staleness, server.url) for staleness in (0, 1)]
        found.append({"seed": seed, "runs": runs})
    return found


def main() -> int:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=15)
    parser.add_argument("--seeds", type=int, nargs="*", default=[42, 43, 44])
    given = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as temporary:
        figures: dict[str, Any] = {"time": measure_time(Path(temporary), given.steps)}
        print(json.dumps(figures), file=sys.stderr, flush=True)
        if given.seeds:
            figures["learning"] = measure_learning(Path(temporary), given.seeds)
            last = {at: [run["runs"][at]["last10"] for run in figures["learning"]] for at in (0, 1)}
            figures["last10_ratio"] = round(statistics.fmean(last[1]) / statistics.fmean(last[0]), 3)
    print(json.dumps({"overlap": figures | {"load": round(os.getloadavg()[0], 1)}}))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
