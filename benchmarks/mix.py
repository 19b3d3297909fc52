"""Does a mix teach both environments? ``python benchmarks/mix.py [--seeds 42 43] [--steps 60]``; prints JSON.

One model for each seed, warmed up by SFT on replies that know nothing. Two servers (``benchmarks/mix_environment.py``)
pay for the colour of a shape, which no demonstration says: one asks for two shapes, the other for two others. The model
is trained by GRPO with the same number of rollouts twice: on the first alone (weights 1 and 0), and mixed (1 and 1).
Both runs play the same held-out tasks of both, before the first step and after the last.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.environment import script_server  # noqa: E402
from benchmarks.mix_environment import SHAPES, write_rows  # noqa: E402
from training.journal import Metrics, read_events  # noqa: E402

ARMS = {"alone": {"north": 1.0, "south": 0.0}, "mixed": {"north": 1.0, "south": 1.0}}
DEMONSTRATIONS, TASKS = 400, 200


def main() -> None:
    """Train both arms for each seed and print one JSON document."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[42, 43], help="one model each (default 42 43)")
    parser.add_argument("--steps", type=int, default=60, help="GRPO steps of 32 rollouts (default 60)")
    parser.add_argument("--warm-up", type=int, default=60, help="SFT steps before (default 60)")
    parser.add_argument("--keep", type=Path, help="folder for the run directories (default: a temporary one)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary, servers() as urls:
        folder = options.keep or Path(temporary)
        runs = [compare(folder / f"seed{seed}", seed, urls, options.steps, options.warm_up) for seed in options.seeds]
    print(json.dumps({"cores": os.cpu_count(), "load": os.getloadavg()[0], "seeds": runs}, indent=2))


@contextmanager
def servers() -> Iterator[dict[str, str]]:
    """Both environments, by the name of their part."""
    script = ROOT / "benchmarks" / "mix_environment.py"
    with script_server(script) as north, script_server(script) as south:
        yield {"north": north.url, "south": south.url}


def compare(folder: Path, seed: int, urls: dict[str, str], steps: int, warm_up: int) -> dict[str, Any]:
    """One model, trained both ways: success on the held-out tasks of each part and their mean, before and after."""
    folder.mkdir(parents=True, exist_ok=True)
    write_data(folder, seed)
    base = folder / "warm-up" / "model"
    train(folder / "warm-up", warm_up_job(folder, seed, warm_up))
    found: dict[str, Any] = {"seed": seed}
    for arm, weights in ARMS.items():
        began = time.monotonic()
        train(folder / arm, mix_job(folder, base, urls, weights, seed, steps))
        found[arm] = figures(folder / arm) | {"seconds": round(time.monotonic() - began, 1)}
    after = {arm: found[arm]["after"] for arm in ARMS}
    found["lift"] = {name: round(after["mixed"][name] - after["alone"][name], 3) for name in after["mixed"]}
    return found


def write_data(folder: Path, seed: int) -> None:
    """Demonstrations of both environments in one file, and a file of tasks for each."""
    write_rows(folder / "demonstrations.jsonl", list(SHAPES), DEMONSTRATIONS, seed, answered=True)
    for name in SHAPES:
        write_rows(folder / f"{name}-tasks.jsonl", [name], TASKS, seed + 1, answered=False)


def warm_up_job(folder: Path, seed: int, steps: int) -> dict[str, Any]:
    """SFT of a starter model on the demonstrations of both."""
    return {
        "kind": "sft",
        "model": {"source": "starter"},
        "data": {"train": str(folder / "demonstrations.jsonl")},
        "sft": {"batch_size": 16, "max_length": 64},
        "optim": {"learning_rate": 3e-3, "schedule": "cosine", "warmup_steps": 20},
        "run": {"max_steps": steps, "seed": seed, "threads": 1, "device": "cpu", "save_every": 0},
    }


def mix_job(
    folder: Path, base: Path, urls: dict[str, str], weights: dict[str, float], seed: int, steps: int
) -> dict[str, Any]:
    """GRPO with the two parts; 4 prompts × 8 rollouts a step."""
    parts = [
        {
            "name": name,
            "weight": weight,
            "data": {"train": str(folder / f"{name}-tasks.jsonl")},
            "environment": {"name": "colouring", "url": urls[name]},
        }
        for name, weight in weights.items()
    ]
    return {
        "kind": "grpo",
        "model": {"source": str(base)},
        "rewards": {"components": [{"name": "task_success", "weight": 1.0}]},
        "rollout": {"prompts_per_step": 4, "num_generations": 8, "max_turns": 1, "max_turn_tokens": 8,
                    "max_completion_tokens": 16},
        "optim": {"learning_rate": 1e-3},
        "evaluate": {"every": steps, "share": 0.2, "tasks": 40, "samples": 2},
        "mix": {"parts": parts},
        "run": {"max_steps": steps, "seed": seed, "threads": 1, "device": "cpu", "save_every": 0,
                "no_gradient_updates": 0},
    }  # fmt: skip


def train(run_dir: Path, config: dict[str, Any]) -> None:
    """A job as a process of its own."""
    path = run_dir.with_suffix(".yaml")
    path.write_text(yaml.safe_dump(config), encoding="utf-8")
    words = [sys.executable, "-m", "training", "run", str(path), "--run-dir", str(run_dir)]
    subprocess.run(words, cwd=ROOT, check=True, timeout=3600, stdout=subprocess.DEVNULL)


def figures(run_dir: Path) -> dict[str, Any]:
    """Held-out success of each part and their mean before the first step and after the last, and rollouts by part."""
    found: dict[int, dict[str, float]] = {}
    shares: dict[str, list[float]] = {}
    for _, event in read_events(run_dir / "journal.jsonl", max_bytes=1 << 30):
        if not isinstance(event, Metrics):
            continue
        for name, value in event.values.items():
            prefix, _slash, rest = name.partition("/")
            part, _slash, what = rest.partition("/")
            if prefix == "parts" and what == "heldout_success":
                found.setdefault(event.step, {})[part] = round(value, 3)
            elif prefix == "parts" and what == "share":
                shares.setdefault(part, []).append(value)
    for values in found.values():
        values["mean"] = round(sum(values.values()) / len(values), 3)
    steps = sorted(found)
    mean_shares = {part: round(sum(values) / len(values), 3) for part, values in shares.items()}
    return {"before": found[steps[0]], "after": found[steps[-1]], "share": mean_shares}


if __name__ == "__main__":
    main()
