"""Does the tools demo learn with verl as it does with TRL? ``python benchmarks/verl_learning.py [--seeds 42 43]``.

The demo's chain without the web: for each seed one warm-up (SFT), then the GRPO run by TRL without a break, and by verl
on processors for each number of devices, in two attempts: the second continues from the checkpoint of the first after
half of the steps. With LoRA and with all weights. Prints one JSON document: the mean reward of the last ten steps of
each run, and for each kind of run on verl the mean over the seeds, its difference from TRL's as a share, and the
difference of each seed. What has ended is printed on stderr meanwhile; with ``--keep`` it is not
run again. Needs ``make setup-verl``.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import yaml

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.environment import environment_server  # noqa: E402
from benchmarks.learning import DEMONSTRATIONS, TASKS, make_data, train  # noqa: E402
from training.journal import Metrics, read_events  # noqa: E402
from training.presets import presets  # noqa: E402

WINDOW, BAR = 10, 0.05
LORA = {"model": {"lora_rank": 16}, "optim": {"learning_rate": 2e-3}}
METHODS: dict[str, dict[str, Any]] = {"all weights": {}, "LoRA": LORA}
LIMIT_S = 3600


class Size(NamedTuple):
    """How much each run plays."""

    steps: int
    prompts: int
    generations: int


def main() -> None:
    """Run all for each seed and print one JSON document."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[42, 43])
    parser.add_argument("--devices", type=int, nargs="*", default=[1, 2], help="of verl's runs (default 1 2)")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument(
        "--size", type=int, nargs=3, default=[40, 8, 8], metavar="N", help="steps, prompts, generations"
    )
    parser.add_argument("--keep", type=Path, help="folder for the run directories (default: a temporary one)")
    options = parser.parse_args()
    size = Size(*options.size)
    runs: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as temporary, environment_server("tools") as server:
        folder = options.keep or Path(temporary)
        for seed in options.seeds:
            base = warm_up(folder / f"seed{seed}", seed)
            for method in options.methods:
                for devices in [0, *options.devices]:
                    runs.append(played(folder / f"seed{seed}", base, server.url, method, devices, seed, size))
                    print(json.dumps(runs[-1]), file=sys.stderr, flush=True)
    print(
        json.dumps(
            {"size": size._asdict(), "load": os.getloadavg()[0], "runs": runs, "found": compared(runs)}, indent=2
        )
    )


def warm_up(folder: Path, seed: int) -> Path:
    """The model that knows the form of tool calls, with the data of the demo next to it."""
    folder.mkdir(parents=True, exist_ok=True)
    model = folder / "tools-demo-sft" / "model"
    if not model.is_dir():
        make_data("demonstrations", DEMONSTRATIONS, folder / "demonstrations.jsonl")
        make_data("tasks", TASKS, folder / "tasks.jsonl")
        train("tools-demo-sft", folder, seed, {"data": {"train": str(folder / "demonstrations.jsonl")}})
    return model


def played(folder: Path, base: Path, url: str, method: str, devices: int, seed: int, size: Size) -> dict[str, Any]:
    """One run by verl on so many devices, or with 0 by TRL."""
    config = presets()["tools-demo-grpo"].job_for("full").model_dump(mode="json")
    over: dict[str, dict[str, Any]] = {
        "data": {"train": str(folder / "tasks.jsonl")},
        "model": {"source": str(base)},
        "environment": {"name": "tools", "url": url},
        "rollout": {"prompts_per_step": size.prompts, "num_generations": size.generations},
        "run": {"seed": seed, "device": "cpu", "max_steps": size.steps, "keep_last": 1},
        "hardware": {"backend": "verl" if devices else "trl", "devices": devices or 1},
    }
    for groups in (over, METHODS[method]):
        for group, values in groups.items():
            config[group] = {**config[group], **values}
    place = folder / f"{method.replace(' ', '-')}-{devices}"
    began, halves = time.time(), [size.steps // 2, size.steps] if devices else [size.steps]
    ran = [attempt(config, place, number, steps) for number, steps in enumerate(halves, start=1)]
    rewards = [reward for number in range(1, len(halves) + 1) for reward in rewards_of(place / str(number))]
    by = f"verl, {devices} devices" if devices > 1 else "verl, 1 device" if devices else "TRL"
    return {
        "seed": seed,
        "method": method,
        "by": by,
        "steps": len(rewards),
        "first": round(statistics.fmean(rewards[:WINDOW]), 4),
        "last": round(statistics.fmean(rewards[-WINDOW:]), 4),
        "seconds": round(time.time() - began) if all(ran) else None,
    }


def attempt(config: dict[str, Any], place: Path, number: int, steps: int) -> bool:
    """Train up to a step, from the checkpoint of the attempt before where there is one; whether that was to be done:
    a folder that was kept may have it."""
    place.mkdir(parents=True, exist_ok=True)
    if (place / str(number) / "model").is_dir():
        return False
    path = place / f"{number}.yaml"
    path.write_text(yaml.safe_dump({**config, "run": {**config["run"], "max_steps": steps}}), encoding="utf-8")
    words = [sys.executable, "-m", "training", "run", str(path), "--run-dir", str(place / str(number))]
    words += ["--attempt", str(number)]
    words += ["--resume-from", str(place), "--earlier", str(place / "1")] if number > 1 else []
    subprocess.run(words, cwd=ROOT, check=True, timeout=LIMIT_S, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return True


def rewards_of(run_dir: Path) -> list[float]:
    """The mean reward of each step of an attempt."""
    path = run_dir / "journal.jsonl"
    events = [event for _, event in read_events(path, max_bytes=1 << 30)] if path.is_file() else []
    return [event.values["reward"] for event in events if isinstance(event, Metrics) and "reward" in event.values]


def compared(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """For each kind of run on verl: the last rewards next to TRL's of the same seeds, and how far they are apart."""
    found = []
    for method, by in dict.fromkeys((run["method"], run["by"]) for run in runs if run["by"] != "TRL"):
        mine, theirs = (
            {r["seed"]: r["last"] for r in runs if (r["method"], r["by"]) == (method, who)} for who in (by, "TRL")
        )
        seeds = sorted(set(mine) & set(theirs))
        share = [mine[seed] / theirs[seed] - 1 for seed in seeds]
        means = [statistics.fmean(each[seed] for seed in seeds) for each in (mine, theirs)]
        found.append(
            {
                "method": method,
                "by": by,
                "n": len(seeds),
                "last": round(means[0], 4),
                "last_trl": round(means[1], 4),
                "difference": round(means[0] / means[1] - 1, 4),
                "of_seeds": [round(each, 4) for each in share],
                "within_bar": abs(means[0] / means[1] - 1) <= BAR,
            }
        )
    return found


if __name__ == "__main__":
    main()
