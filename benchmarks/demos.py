"""Do the demo sizes of the presets learn? ``python benchmarks/demos.py [webshop …] [--seeds 42 43] [--keep FOLDER]``.

Plays each preset's demo from its parts, as one click on the web does it: its environment's server, its rows, its
warm-up, then the run. Prints JSON: of each preset and seed the mean of the first and the last ten steps of its figure
(task success; where there is none, the accuracy) and of the reward, the ratios, and the wall and processor seconds of
each part, imports included. ``--curves FOLDER`` writes the curve of each preset there as SVG.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.curves import curve_svg  # noqa: E402
from benchmarks.environment import Server, environment_server  # noqa: E402
from training.config import JobConfig  # noqa: E402
from training.data.formats.gsm8k import word_problems  # noqa: E402
from training.journal import Metrics, read_events  # noqa: E402
from training.presets import Preset, presets  # noqa: E402

WINDOW = 10
RUN_LIMIT_S = 3600
DEMOS = [item.id for item in presets().values() if item.demo and item.config_for("demo").method.plays]
# What a demo is judged by; the first that its run reports.
FIGURES = ("rollouts/task_success", "rewards/helloagents_accuracy/mean", "reward")
Change = Callable[[JobConfig], None]


def as_it_is(config: JobConfig) -> None:
    """A demo's options unchanged."""


class Spent:
    """Wall and processor seconds of the child processes that ended in the block."""

    wall_s = cpu_s = 0.0


@contextmanager
def spent() -> Iterator[Spent]:
    """Measure a block."""
    found, began, before = Spent(), time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    yield found
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    found.wall_s = round(time.monotonic() - began, 1)
    found.cpu_s = round(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 1)


def play(preset: Preset, folder: Path, seed: int, change: Change = as_it_is) -> dict[str, Any]:
    """One demo from start to end in a folder of its own; what it learned and what it took.

    ``change`` is called with the options of the warm-up and with those of the run.
    """
    folder.mkdir(parents=True, exist_ok=True)
    need = preset.needs_for("demo")
    server = nullcontext(None)
    if need.environment is not None:
        server = environment_server(need.environment.program, *_words(need.environment.arguments))  # type: ignore[assignment]
    with spent() as all_of_it, server as address:
        first = presets()[need.start.preset] if need.start and need.start.preset else None
        with spent() as warm:
            model = train(first, folder, seed, address, change=change) if first else None
        with spent() as main:
            run = train(preset, folder, seed, address, model, change)
    events = (event for _, event in read_events(run / "journal.jsonl", max_bytes=1 << 30))
    metrics = [event for event in events if isinstance(event, Metrics)]
    values = {name: [event.values[name] for event in metrics if name in event.values] for name in FIGURES}
    figure = next(name for name in FIGURES if values[name])
    return {
        "preset": preset.id,
        "seed": seed,
        "figure": figure,
        **learned(values[figure]),
        **{f"reward_{name}": value for name, value in learned(values["reward"]).items()},
        "no_spread": round(mean_of(metrics, "groups/zero_variance_share"), 3),
        "excluded": sum(event.values["rollouts/excluded"] for event in metrics),
        "steps": len(metrics),
        "step_s": round(mean_of(metrics, "timing/step"), 2),
        "warm_up_s": warm.wall_s,
        "grpo_s": main.wall_s,
        "seconds": all_of_it.wall_s,
        "cpu_s": all_of_it.cpu_s,
        "values": [round(value, 4) for value in values[figure]],
    }


def mean_of(metrics: list[Metrics], name: str) -> float:
    """Over all steps."""
    return sum(event.values[name] for event in metrics) / len(metrics)


def learned(values: list[float]) -> dict[str, float | None]:
    """First and last means of a figure, and their ratio."""
    first, last = (sum(part) / len(part) for part in (values[:WINDOW], values[-WINDOW:]))
    return {"first10": round(first, 3), "last10": round(last, 3), "ratio": round(last / first, 2) if first else None}


def train(
    preset: Preset,
    folder: Path,
    seed: int,
    server: Server | None,
    model: Path | None = None,
    change: Change = as_it_is,
) -> Path:
    """A preset's demo size with its own rows, as a process; its run folder."""
    need, config = preset.needs_for("demo"), preset.job_for("demo")
    rows = folder / f"{preset.id}.jsonl"
    make_rows(preset, rows)
    config.data.train, config.run.seed, config.run.device = str(rows), seed, "cpu"
    if model is not None:
        config.model.source = str(model / "model")
    if need.environment is not None and server is not None and config.method.plays:
        config.environment.name, config.environment.url = need.environment.program, server.url
    change(config)
    path = folder / f"{preset.id}.yaml"
    path.write_text(yaml.safe_dump(config.model_dump(mode="json")), encoding="utf-8")
    words = [sys.executable, "-m", "training", "run", str(path), "--run-dir", str(folder / preset.id)]
    subprocess.run(words, cwd=ROOT, check=True, timeout=RUN_LIMIT_S, stdout=subprocess.DEVNULL)
    return folder / preset.id


def make_rows(preset: Preset, path: Path, most: int | None = None) -> None:
    """The rows that the preset needs, by the command that the web runs; at most ``most`` tasks of them."""
    needs = preset.needs_for("demo")
    need = needs.dataset
    if need is None:
        raise ValueError(f"{preset.id} needs no rows")
    if most is not None:
        need.arguments["count"] = min(need.arguments["count"], most)
    if need.program:
        made = word_problems(**need.arguments, shape=need.command)  # type: ignore[arg-type]
        path.write_text("".join(f"{json.dumps(row)}\n" for row in made), encoding="utf-8")
        return
    if needs.environment is None:
        raise ValueError(f"{preset.id} needs an environment for its rows")
    program, shared = needs.environment.program, needs.environment.arguments
    manifest = yaml.safe_load((ROOT / "envs" / program / "openenv.yaml").read_text(encoding="utf-8"))
    taken = manifest["x-datasets"][need.command].get("shared", [])
    words = _words({name: value for name, value in shared.items() if name in taken} | need.arguments)
    argv = [sys.executable, "-m", f"envs.{program}", need.command, *words, "--output", str(path)]
    subprocess.run(argv, cwd=ROOT, check=True, timeout=RUN_LIMIT_S)


def _words(arguments: dict[str, Any]) -> list[str]:
    return [word for name, value in arguments.items() for word in (f"--{name}", str(value))]


def draw(runs: list[dict[str, Any]], folder: Path) -> None:
    """The figure of each preset over its steps, one line for each of the first two seeds."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in dict.fromkeys(run["preset"] for run in runs):
        of_it = [run for run in runs if run["preset"] == name][:2]
        lines = {f"seed {run['seed']}: {run['first10']:.0%} → {run['last10']:.0%}": run["values"] for run in of_it}
        title = f"{presets()[name].title.en}: {of_it[0]['figure']} of each step"
        (folder / f"demo-{name}.svg").write_text(curve_svg(title, lines), encoding="utf-8")


def main() -> None:
    """Play the named demos, or all, with each seed; print one JSON document."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", choices=[*DEMOS, []], help="presets (default all that have a demo)")
    parser.add_argument("--seeds", type=int, nargs="+", default=[42, 43], help="one chain each (default 42 43)")
    parser.add_argument("--keep", type=Path, help="folder for the run directories (default: a temporary one)")
    parser.add_argument("--curves", type=Path, help="folder for a drawing of each preset's curves")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.keep or Path(temporary)
        runs = [
            play(presets()[name], folder / f"{name}-{seed}", seed)
            for name in options.names or DEMOS
            for seed in options.seeds
        ]
    if options.curves:
        draw(runs, options.curves)
    print(json.dumps({"cores": os.cpu_count(), "load": os.getloadavg()[0], "runs": runs}, indent=2))


if __name__ == "__main__":
    main()
