"""How long does a step of rollouts take when the environment is slow? ``python benchmarks/rollouts.py [--model DIR]``.

64 rollouts play the tools environment, each of whose answers takes 200 ms longer than it needs. Three figures: one
rollout played alone, all of them by our loop, all of them by TRL's own ``environment_factory`` loop. Without
``--model`` the demo's two presets are trained first. Prints JSON.
"""

from __future__ import annotations

import argparse
import json
import os
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
from benchmarks.learning import TASKS, make_data, run_chain  # noqa: E402

PROMPTS, GENERATIONS = 8, 8
TARGET = 1.5


def main() -> None:
    """Measure the three and print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, help="folder of a trained starter (default: train one)")
    parser.add_argument("--delay-ms", type=int, default=200, help="extra time of each answer (default 200)")
    parser.add_argument("--rounds", type=int, default=9, help="steps of which the median is taken (default 9)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        make_data("tasks", TASKS, folder / "tasks.jsonl")
        model = options.model or _train_model(folder)
        with environment_server("tools", "--delay-ms", str(options.delay_ms)) as server:
            ours = measure_ours(model, folder, server.url, options.rounds)
            theirs = measure_trl(model, folder, server.url)
    print(
        json.dumps(
            {
                "benchmark": "rollouts",
                "cores": os.cpu_count(),
                "load": round(os.getloadavg()[0], 1),
                "delay_ms": options.delay_ms,
                "rollouts": PROMPTS * GENERATIONS,
                **ours,
                **theirs,
                "trl_over_ours": round(theirs["trl_phase_s"] / ours["phase_s"], 1),
            }
        )
    )


def _train_model(folder: Path) -> Path:
    """A model that calls tools: after SFT alone most rollouts would end without a call, and so without the delay."""
    run_chain(folder / "chain", 42)
    return folder / "chain" / "tools-demo-grpo" / "model"


def measure_ours(model_folder: Path, folder: Path, url: str, rounds: int) -> dict[str, Any]:
    """Seconds of a step's rollout phase, of its rollouts, and of one rollout alone (medians)."""
    from training.rollout.step import Step

    collector, engine = make_collector(model_folder, folder, url)
    phases, seconds, alone, excluded = [], [], [], 0
    with engine.sampling():
        for number in range(rounds + 1):
            indices = [number * PROMPTS + group for group in range(PROMPTS) for _ in range(GENERATIONS)]
            began = time.monotonic()
            rollouts = collector.collect(number + 1, indices).rollouts
            phase = time.monotonic() - began
            # The one that ended last again, alone (the same seed, so the same turns): the phase
            # could not have been shorter than that.
            longest = max(range(len(indices)), key=lambda i: rollouts[i].trajectory.seconds)
            single = collector._runner.run(Step(collector, number + 1, indices).run_one(longest))
            if number:  # the first round warms caches
                phases.append(phase)
                seconds += [rollout.trajectory.seconds for rollout in rollouts]
                alone.append(single.trajectory.seconds)
                excluded += sum(rollout.parts is None for rollout in rollouts)
    collector.close()
    engine.close()
    phase, own, single_s = (statistics.median(values) for values in (phases, seconds, alone))
    ratios = sorted(phase / single for phase, single in zip(phases, alone, strict=True))
    return {
        "phase_s": round(phase, 3),
        "rollout_in_phase_s": round(own, 3),
        "rollout_alone_s": round(single_s, 3),
        "phase_over_rollout_in_phase": round(phase / own, 2),
        "phase_over_rollout_alone": round(statistics.median(ratios), 2),
        "least_and_greatest_ratio": [round(ratios[0], 2), round(ratios[-1], 2)],
        "target": TARGET,
        "excluded": excluded,
    }


def make_collector(model_folder: Path, folder: Path, url: str) -> tuple[Any, Any]:
    """Our loop on the model as a GRPO run sets it up: (collector, engine)."""
    from training.algorithms.loading import load_model, load_tokenizer, prepare_device
    from training.data.reader import load_rows
    from training.journal import Journal
    from training.policy.make import make_engine
    from training.presets import presets
    from training.rewards.scoring import score_episode
    from training.rollout.collector import Collector
    from training.rollout.players import make_player
    from training.rollout.tokens import ChatTemplate, turn_ends

    config = presets()["tools-demo-grpo"].job_for("full")
    config.environment.url = url
    config.rollout.prompts_per_step, config.rollout.num_generations = PROMPTS, GENERATIONS
    config.run.threads = 0  # as by default; the demo's preset leaves a core to the browser and the web server
    device = prepare_device(config)
    tokenizer, _ = load_tokenizer(model_folder)
    model = load_model(config, model_folder, device)
    engine = make_engine(config, model, turn_ends(tokenizer), autocast=None, log=print)
    player = make_player(config, engine, ChatTemplate(tokenizer))
    scorer = partial(score_episode, components=config.rewards.components)
    rows, journal = load_rows(folder / "tasks.jsonl"), Journal(folder / "ours")
    return Collector(config, rows, player, scorer, journal, threading.Event()), engine


def measure_trl(model_folder: Path, folder: Path, url: str) -> dict[str, Any]:
    """Seconds that TRL's own loop takes to generate one step of as many rollouts, its tools on the same server."""
    os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer
    from trl.chat_template_utils import qwen3_template

    from training.algorithms.loading import load_model, load_tokenizer
    from training.config import JobConfig
    from training.data.reader import load_rows

    tokenizer, _ = load_tokenizer(model_folder)
    tokenizer.response_template = qwen3_template
    tokenizer.padding_side = "left"
    rows = load_rows(folder / "tasks.jsonl")[:PROMPTS]
    prompts = [[{"role": "user", "content": row.messages[-1].content}] for row in rows]
    arguments = GRPOConfig(
        output_dir=str(folder / "trl"),
        per_device_train_batch_size=PROMPTS * GENERATIONS,
        num_generations=GENERATIONS,
        max_completion_length=160,
        max_tool_calling_iterations=2,
        max_steps=1,
        use_cpu=True,
        bf16=False,
        report_to=[],
        save_strategy="no",
        disable_tqdm=True,
    )
    trainer = GRPOTrainer(
        model=load_model(JobConfig(), model_folder, "cpu"),
        reward_funcs=lambda completions, **_: [float(len(completion)) for completion in completions],
        args=arguments,
        train_dataset=Dataset.from_dict({"prompt": prompts}),
        processing_class=tokenizer,
        environment_factory=partial(TrlEnvironment, url),
    )
    spent: list[float] = []
    generate = trainer._generate

    def timed(batch: Any) -> Any:
        began = time.monotonic()
        try:
            return generate(batch)
        finally:
            spent.append(time.monotonic() - began)

    trainer._generate = timed
    trainer.train()
    return {"trl_phase_s": round(spent[0], 3), "trl_tool_calls": TrlEnvironment.calls}


class TrlEnvironment:
    """The tools environment as TRL's loop wants it: one method a tool, each a step on a session of its own."""

    calls = 0

    def __init__(self, url: str) -> None:
        from websockets.sync.client import connect

        self._socket = connect(url.replace("http", "ws", 1) + "/ws", compression=None, proxy=None, legacy=True)

    def reset(self, prompt: Any, **_: Any) -> None:
        self._ask("reset", {"task": {"conversation": prompt}, "seed": 0})

    def calculator(self, expression: str) -> str:
        """Calculate.

        Args:
            expression: Arithmetic
        """
        return self._call("calculator", {"expression": expression})

    def weather_query(self, city: str, date: str = "") -> str:
        """Weather.

        Args:
            city: City
            date: Date
        """
        return self._call("weather_query", {"city": city, "date": date})

    def search(self, query: str, max_results: int = 5) -> str:
        """Search facts.

        Args:
            query: Words to look for
            max_results: Results
        """
        return self._call("search", {"query": query, "max_results": max_results})

    def get_current_time(self, timezone: str = "") -> str:
        """Current time.

        Args:
            timezone: City or zone
        """
        return self._call("get_current_time", {"timezone": timezone})

    def _call(self, name: str, arguments: dict[str, Any]) -> str:
        TrlEnvironment.calls += 1
        call = {"id": "1", "name": name, "arguments": arguments}
        answer = self._ask("step", {"message": "", "tool_calls": [call]})
        return str(answer["data"]["observation"]["messages"][0]["content"])

    def _ask(self, kind: str, data: dict[str, Any]) -> dict[str, Any]:
        self._socket.send(json.dumps({"type": kind, "data": data}))
        answer: dict[str, Any] = json.loads(self._socket.recv(timeout=30))
        return answer


if __name__ == "__main__":
    main()
