"""How much of the sampler's speed does an evaluation reach? ``python benchmarks/evaluation.py [--model DIR]``.

256 tasks of the tools environment, four tries each. The evaluation is timed as a run plays it, with its environment,
rewards and journal; then the sampler alone draws the same turns from the same prompts and seeds, as many episodes at
once. The two take turns in parts of the tasks, so that other work on the machine slows both. Prints JSON.

Twice: with the trained starter, whose decoding is mostly Python and so shares the interpreter's lock with the episodes;
and with the same weights and ``WIDE`` idle neurons in each layer, which says the same tokens with 50 million
parameters, so that computing is what takes the time, as in any model that is worth training.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import statistics
import sys
import tempfile
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.environment import environment_server  # noqa: E402
from benchmarks.learning import TASKS as DEMO_TASKS  # noqa: E402
from benchmarks.learning import make_data, run_chain  # noqa: E402

TASKS, TRIES, PARTS = 256, 4, 8
WIDE, WIDE_PARTS = 65_536, 4
TARGET = 0.9


class Recorder:
    """An engine that remembers what it was asked, by episode."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine
        self.asked: dict[str, list[tuple[list[int], int, int]]] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    async def generate(self, prompt_ids: list[int], *, max_tokens: int, seed: int, episode: str = "") -> Any:
        """Ask the engine, and remember."""
        self.asked.setdefault(episode, []).append((list(prompt_ids), max_tokens, seed))
        return await self._engine.generate(prompt_ids, max_tokens=max_tokens, seed=seed, episode=episode)


async def replay(engine: Any, asked: dict[str, list[tuple[list[int], int, int]]], in_flight: int) -> int:
    """The same turns, nothing between them; the tokens that were sampled."""
    slots = asyncio.Semaphore(in_flight)

    async def play(name: str, turns: list[tuple[list[int], int, int]]) -> int:
        async with slots:
            tokens = 0
            for prompt, most, seed in turns:
                tokens += len((await engine.generate(prompt, max_tokens=most, seed=seed, episode=name)).ids)
            engine.release(name)
            return tokens

    return sum(await asyncio.gather(*(play(name, turns) for name, turns in asked.items())))


def keep(played: list[Any], _step: int, result: Any) -> None:
    """Note what a step of the evaluation played."""
    played.extend(result.rollouts)


def widened(source: Path, target: Path) -> Path:
    """The same model with neurons that are never active: no token changes, each costs more."""
    import torch
    from safetensors.torch import load_file, save_file

    shutil.copytree(source, target)
    weights = load_file(source / "model.safetensors")
    for name, weight in weights.items():
        if "gate_proj" in name or "up_proj" in name:
            weights[name] = torch.zeros(WIDE, weight.shape[1])
            weights[name][: weight.shape[0]] = weight
        elif "down_proj" in name:
            weights[name] = torch.zeros(weight.shape[0], WIDE)
            weights[name][:, : weight.shape[1]] = weight
    save_file(weights, target / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((source / "config.json").read_text())
    (target / "config.json").write_text(json.dumps(config | {"intermediate_size": WIDE}))
    return target


def measure(model_folder: Path, folder: Path, url: str, parts: int) -> dict[str, Any]:
    """Tokens per second of both, part by part, and their ratio. The first of the parts only warms caches."""
    from training.algorithms.loading import load_model, load_tokenizer, prepare_device
    from training.data.reader import load_rows
    from training.journal import Journal
    from training.policy.make import make_engine
    from training.presets import presets
    from training.rewards.combining import SCHEDULES_ENDED
    from training.rewards.scoring import score_episode
    from training.rollout.collector import StreamingCollector
    from training.rollout.players import make_player
    from training.rollout.tokens import ChatTemplate, turn_ends

    config = presets()["tools-demo-grpo"].job_for("full")
    config.kind, config.environment.url = "evaluate", url
    config.rollout.num_generations, config.run.threads = TRIES, 0
    device = prepare_device(config)
    tokenizer, _ = load_tokenizer(model_folder)
    engine = Recorder(
        make_engine(config, load_model(config, model_folder, device), turn_ends(tokenizer), autocast=None, log=print)
    )
    player = make_player(config, engine, ChatTemplate(tokenizer))  # type: ignore[arg-type]
    scorer = partial(score_episode, components=config.rewards.components, step=SCHEDULES_ENDED)
    rows, journal = load_rows(folder / "tasks.jsonl"), Journal(folder / f"evaluation-{parts}")
    collector = StreamingCollector(config, rows, player, scorer, journal, threading.Event())
    evaluated, alone, excluded = [], [], 0
    size, in_flight = TASKS // PARTS, config.rollouts_per_step
    with engine.sampling():
        for part in range(parts + 1):
            engine.asked = {}
            played: list[Any] = []
            places = [place for place in range((part % PARTS) * size, (part % PARTS + 1) * size) for _ in range(TRIES)]
            began = time.monotonic()
            collector.stream([(part + 1, places)], in_flight=in_flight, finished=partial(keep, played))
            took = time.monotonic() - began
            tokens = sum(rollout.trajectory.sampled_tokens for rollout in played)
            began = time.monotonic()
            again = asyncio.run(replay(engine._engine, engine.asked, in_flight))
            alone_s = time.monotonic() - began
            if part:
                evaluated.append(tokens / took)
                alone.append(again / alone_s)
                excluded += sum(rollout.parts is None for rollout in played)
    collector.close()
    engine.close()
    ratios = sorted(one / other for one, other in zip(evaluated, alone, strict=True))
    return {
        "evaluation_tokens_per_s": round(statistics.median(evaluated), 1),
        "sampler_tokens_per_s": round(statistics.median(alone), 1),
        "ratio": round(statistics.median(ratios), 3),
        "least_and_greatest_ratio": [round(ratios[0], 3), round(ratios[-1], 3)],
        "in_flight": in_flight,
        "excluded": excluded,
        "target": TARGET,
    }


def main() -> None:
    """Measure and print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, help="folder of a trained starter (default: train one)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        make_data("tasks", DEMO_TASKS, folder / "tasks.jsonl")
        model = options.model
        if model is None:
            run_chain(folder / "chain", 42)
            model = folder / "chain" / "tools-demo-grpo" / "model"
        with environment_server("tools") as server:
            found = {
                "starter": measure(model, folder, server.url, PARTS),
                "wide": measure(widened(model, folder / "wide"), folder, server.url, WIDE_PARTS),
            }
    machine = {"cores": os.cpu_count(), "load": round(os.getloadavg()[0], 1)}
    print(json.dumps({"benchmark": "evaluation", **machine, "tasks": TASKS, "tries": TRIES, **found}))


if __name__ == "__main__":
    main()
