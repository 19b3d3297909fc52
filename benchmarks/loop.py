"""What does the rollout loop itself cost, at 64, 512 and 2,048 rollouts at once? ``python benchmarks/loop.py``.

Each rollout plays three turns in a tools environment that takes 200 ms longer for each answer than it needs; the
sampler answers at once and costs nothing. Rewards, journal, tokens and the libraries that a GRPO trainer loads are the
real ones. For each number, in turns: processor time of a turn in the loop's process with Python's collector as it comes
and as the trainer sets it (``training/garbage.py``), and how long the whole phase takes over one rollout alone. Prints
JSON.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from transformers import AutoTokenizer  # noqa: E402

import training.algorithms.grpo  # noqa: E402, F401 - what a trainer has loaded when it plays
from benchmarks.environment import environment_server  # noqa: E402
from tests.training.helpers import ScriptedEngine, call_text, demonstration_rows  # noqa: E402
from tests.training.rollout.bench import Bench  # noqa: E402
from training.garbage import few_collections  # noqa: E402
from training.policy.engine import Sample  # noqa: E402
from training.starter import build_starter  # noqa: E402

SIZES, GROUP, TURNS = (64, 512, 2048), 8, 3


class FreeEngine(ScriptedEngine):
    """Samples what was tokenised before: two calls, then an answer."""

    def __init__(self, tokenizer: Any) -> None:
        super().__init__(tokenizer, [])
        texts = [call_text("first"), call_text("second"), "It is done."]
        ids = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts]
        self._turns = [[*each, tokenizer.eos_token_id] for each in ids]
        self._played: Counter[str] = Counter()

    async def generate(self, prompt_ids: list[int], *, max_tokens: int, seed: int, episode: str = "") -> Sample:
        turn = self._played[episode]
        self._played[episode] += 1
        ids = self._turns[min(turn, TURNS - 1)][:max_tokens]
        return Sample(ids, [-0.5] * len(ids), True)


def phase(bench: Bench, step: int, rollouts: int, tamed: bool) -> tuple[float, float, int]:
    """Seconds of the phase, processor seconds of a turn, and how many rollouts were excluded."""
    rows = [row % 6 for row in range(rollouts // GROUP) for _ in range(GROUP)] if rollouts > 1 else [0]
    with few_collections() if tamed else contextlib.nullcontext():
        began, spent = time.monotonic(), time.process_time()
        played = bench.collector.collect(step, rows).rollouts
        took, used = time.monotonic() - began, time.process_time() - spent
    turns = sum(rollout.trajectory.turns for rollout in played)
    return took, used / turns, sum(rollout.parts is None for rollout in played)


def measure(tokenizer: Any, url: str, rollouts: int, rounds: int) -> dict[str, Any]:
    """Both ways in turns, after a round that warms up."""
    found: dict[bool, list[tuple[float, float, int]]] = {False: [], True: []}
    alone = []
    with tempfile.TemporaryDirectory() as folder:
        groups = {"prompts_per_step": max(1, rollouts // GROUP), "num_generations": GROUP, "max_turns": TURNS}
        bench = Bench(Path(folder), tokenizer, url, engine=FreeEngine(tokenizer), config={"rollout": groups})
        for round_ in range(rounds + 1):
            for tamed in (False, True):
                result = phase(bench, 2 * round_ + tamed + 1, rollouts, tamed)
                if round_:
                    found[tamed].append(result)
            alone.append(phase(bench, 10_000 + round_, 1, False)[0])
        bench.collector.close()
        bench.journal.close()
    single = statistics.median(alone)
    names = {False: "as it comes", True: "as the trainer sets it"}
    return {
        "rollouts": rollouts,
        "one_alone_s": round(single, 3),
        **{
            names[tamed]: {
                "phase_s": round(statistics.median(each[0] for each in values), 2),
                "phase_over_one_alone": round(statistics.median(each[0] for each in values) / single, 2),
                "cpu_ms_a_turn": round(1000 * statistics.median(each[1] for each in values), 3),
                "excluded": sum(each[2] for each in values),
            }
            for tamed, values in found.items()
        },
    }


def main() -> None:
    """Measure all sizes and print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="*", default=SIZES, help="rollouts at once (default 64 512 2048)")
    parser.add_argument("--rounds", type=int, default=3, help="phases of which the median is taken (default 3)")
    parser.add_argument("--delay-ms", type=int, default=200, help="extra time of each answer (default 200)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        build_starter(demonstration_rows(), Path(folder), seed=3)
        tokenizer = AutoTokenizer.from_pretrained(folder)
    with environment_server("tools", "--delay-ms", str(options.delay_ms), "--slots", "4096") as server:
        rows = [measure(tokenizer, server.url, size, options.rounds) for size in options.sizes]
    about = {"cores": os.cpu_count(), "load": round(os.getloadavg()[0], 1), "delay_ms": options.delay_ms}
    print(json.dumps({"benchmark": "loop", **about, "turns": TURNS, "sizes": rows}))


if __name__ == "__main__":
    main()
