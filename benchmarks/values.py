"""What do PPO's values explain? ``python benchmarks/values.py [--seeds 42] [--steps 25]``.

The demo's chain with PPO in the place of GRPO (64 rollouts a step, one update each, the same warmed-up model): how much
of the returns' variance the values explain at each step (``value/explained_variance``; a constant explains 0, and so
does the first step, whose values are one), and what the reward does.

*from_zero*: the head begins at 0 and moves by 0.05 an update, as before its start was made of the first returns.
*default*: it starts at their mean. *warmed_up*: and has 20 updates of its own first. Prints JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")

import torch  # noqa: E402

from benchmarks.environment import environment_server  # noqa: E402
from benchmarks.learning import DEMONSTRATIONS, TASKS, make_data, train  # noqa: E402
from training.algorithms.grpo import run_ppo  # noqa: E402
from training.algorithms.job import Job  # noqa: E402
from training.config import JobConfig  # noqa: E402
from training.journal import (  # noqa: E402
    Journal,
    Metrics,
    read_events,
)
from training.policy.value_head import ValueHead  # noqa: E402
from training.presets import presets  # noqa: E402

WIDTH = 128
VARIANTS: dict[str, dict[str, Any]] = {
    "from_zero": {"critic_learning_rate": 0.05 / WIDTH},
    "default": {},
    "warmed_up": {"critic_warmup": 20},
}
SHOWN = (2, 5, 10, 15, 20, 25)


def play(folder: Path, url: str, seed: int, name: str, steps: int) -> dict[str, Any]:
    """One run from the warm-up's model."""
    config = presets()["tools-demo-grpo"].job_for("full").model_dump(mode="json")
    config["model"]["source"] = str(folder / "tools-demo-sft" / "model")
    config["data"]["train"] = str(folder / "tasks.jsonl")
    config["environment"] |= {"name": "tools", "url": url}
    config["run"] |= {"seed": seed, "device": "cpu", "max_steps": steps}
    config |= {"kind": "ppo", "ppo": VARIANTS[name]}
    run_dir, starts = folder / name, ValueHead.begun
    if name == "from_zero":
        ValueHead.begun = property(lambda _head: True)  # type: ignore[assignment]
    try:
        run_ppo(Job(JobConfig.model_validate(config), run_dir, Journal(run_dir), threading.Event()))
    finally:
        ValueHead.begun = starts  # type: ignore[method-assign]
    events = [event for _, event in read_events(run_dir / "journal.jsonl", max_bytes=1 << 30)]
    metrics = [event.values for event in events if isinstance(event, Metrics)]
    explained = [values["value/explained_variance"] for values in metrics]
    rewards = [values["reward"] for values in metrics]
    return {
        "explained": {step: round(explained[step - 1], 3) for step in SHOWN if step <= len(explained)},
        "explained_mean_from_2": round(statistics.fmean(explained[1:]), 3),
        "steps_above_0_from_2": sum(value > 0 for value in explained[1:]),
        "value_mean": [round(metrics[place]["value/mean"], 3) for place in (0, -1)],
        "reward_first5": round(statistics.fmean(rewards[:5]), 3),
        "reward_last5": round(statistics.fmean(rewards[-5:]), 3),
    }


def main() -> int:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[42], help="one chain each (default 42)")
    parser.add_argument("--steps", type=int, default=25)
    options = parser.parse_args()
    torch.set_num_threads(1)
    found: dict[int, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as temporary:
        for seed in options.seeds:
            folder = Path(temporary) / str(seed)
            folder.mkdir()
            make_data("demonstrations", DEMONSTRATIONS, folder / "demonstrations.jsonl")
            make_data("tasks", TASKS, folder / "tasks.jsonl")
            train("tools-demo-sft", folder, seed, {"data": {"train": str(folder / "demonstrations.jsonl")}})
            with environment_server("tools") as server:
                found[seed] = {name: play(folder, server.url, seed, name, options.steps) for name in VARIANTS}
    print(json.dumps({"explained_variance": found, "steps": options.steps, "load": round(os.getloadavg()[0], 1)}))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
