"""Does the demo learn, and how fast? ``python benchmarks/learning.py [--seeds 42 43 44]``.

Runs the demo's chain of presets (SFT, then GRPO) without the web and prints JSON: mean reward of the first and last ten
steps and their ratio, the same of the environment's verdict, seconds of each part as a process (imports included), and
seconds from the start of the chain to the first reward point.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.environment import environment_server  # noqa: E402
from training.journal import Metrics, read_events  # noqa: E402
from training.presets import presets  # noqa: E402

WINDOW = 10
# As webapp/ops/demo.py makes its data; that module needs Django, this one must not.
DEMONSTRATIONS = ("--difficulty", "starter", "--careless", "0.75", "--count", "3000")
TASKS = ("--difficulty", "starter", "--count", "512")


def main() -> None:
    """Run the chain for each seed and print one JSON document."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[42], help="one chain each (default 42)")
    parser.add_argument("--keep", type=Path, help="folder for the run directories (default: a temporary one)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        results = [run_chain(folder / f"seed{seed}", seed) for seed in options.seeds]
    print(json.dumps({"cores": os.cpu_count(), "load": os.getloadavg()[0], "runs": results}, indent=2))


def run_chain(folder: Path, seed: int) -> dict[str, Any]:
    """SFT and GRPO of one seed. The data are made before the clock starts, as an upload would be."""
    folder.mkdir(parents=True, exist_ok=True)
    make_data("demonstrations", DEMONSTRATIONS, folder / "demonstrations.jsonl")
    make_data("tasks", TASKS, folder / "tasks.jsonl")
    with environment_server("tools") as server:
        began = time.time()
        train("tools-demo-sft", folder, seed, {"data": {"train": str(folder / "demonstrations.jsonl")}})
        middle = time.time()
        train(
            "tools-demo-grpo",
            folder,
            seed,
            {
                "data": {"train": str(folder / "tasks.jsonl")},
                "model": {"source": str(folder / "tools-demo-sft" / "model")},
                "environment": {"name": "tools", "url": server.url},
            },
        )
        end = time.time()
    journal = folder / "tools-demo-grpo" / "journal.jsonl"
    metrics = [event for _, event in read_events(journal, max_bytes=1 << 30) if isinstance(event, Metrics)]
    return {
        "seed": seed,
        **learned(metrics, "reward"),
        **{f"success_{name}": value for name, value in learned(metrics, "rollouts/task_success").items()},
        "steps": len(metrics),
        "excluded": sum(event.values["rollouts/excluded"] for event in metrics),
        "step_s": round(sum(event.values["timing/step"] for event in metrics) / len(metrics), 2),
        "sft_s": round(middle - began, 1),
        "grpo_s": round(end - middle, 1),
        "first_reward_s": round(metrics[0].t - began, 1),
    }


def learned(metrics: list[Any], name: str) -> dict[str, float | None]:
    """First and last means of a metric and their ratio."""
    values = [event.values[name] for event in metrics]
    first, last = (sum(part) / len(part) for part in (values[:WINDOW], values[-WINDOW:]))
    ratio = round(last / first, 2) if first else None
    return {"first10": round(first, 3), "last10": round(last, 3), "ratio": ratio}


def make_data(command: str, options: tuple[str, ...], path: Path) -> None:
    """Rows from the tools environment's generator."""
    words = [sys.executable, "-m", "envs.tools", command, *options, "--output", str(path)]
    subprocess.run(words, cwd=ROOT, check=True, timeout=120)


def train(preset: str, folder: Path, seed: int, over: dict[str, dict[str, Any]]) -> None:
    """Run a preset with the seed and overrides as a process of its own."""
    config = presets()[preset].job_for("full").model_dump(mode="json")
    for group, values in {**over, "run": {"seed": seed, "device": "cpu"}}.items():
        config[group] = {**config.get(group, {}), **values}
    path = folder / f"{preset}.yaml"
    path.write_text(yaml.safe_dump(config), encoding="utf-8")
    words = [sys.executable, "-m", "training", "run", str(path), "--run-dir", str(folder / preset)]
    subprocess.run(words, cwd=ROOT, check=True, timeout=1800, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
