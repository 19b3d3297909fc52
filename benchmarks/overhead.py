"""What do journal, projection and live view cost a step? ``python benchmarks/overhead.py [--steps N]``.

One GRPO run on a whole site with a viewer on its socket. Its trainer speaks in blocks of four steps and is silent in
the blocks between (the same run with and without, paired): a silent step writes no line, so nothing is projected,
nudged or sent. The first step of each block is left out, because what the block before it left is still being
projected then. The learning rate is next to nothing, so all steps play the same policy on the same prompts. Prints
JSON: medians of step seconds, their ratio with its standard error (bootstrap over pairs of blocks), and CPU time by
process.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import random
import re
import statistics
import sys
import threading
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

BLOCK = 4
STEPS_FILE = "overhead-steps.jsonl"
RUN_LIMIT_S = 1500
LAUNCH = """
from webapp.runs.models import Run
from webapp.engine.services import run_create, run_stop
from training.config import JobConfig
demo = Run.objects.get(name="first-grpo")
run_stop(run=demo, user=demo.created_by)
config = JobConfig.model_validate(demo.config)
config.optim.learning_rate = 1e-9
config.run.max_steps = {steps}
config.data.max_rows = config.rollout.prompts_per_step
config.run.save_every = 0
print(run_create(project=demo.project, user=demo.created_by, name="overhead", config=config).pk)
"""
STATE = """
from webapp.runs.models import Run
run = Run.objects.filter(name="{name}").first()
print(run and run.state, run and run.error)
"""


def as_trainer(arguments: list[str]) -> int:
    """Train as ``python -m training`` does, silent in every other block, and note when each step began."""
    from training import __main__ as command
    from training.journal import CheckpointSaved, Event, Journal, RunFinished, RunStarted
    from training.rollout.collector import Collector

    folder = Path(arguments[arguments.index("--run-dir") + 1])
    write, collect = Journal.write, Collector.collect
    silent = False

    def maybe_write(self: Journal, event: Event) -> None:
        if not silent or isinstance(event, RunStarted | CheckpointSaved | RunFinished):
            write(self, event)

    def noting(self: Collector, step: int, rows: Any) -> Any:
        nonlocal silent
        block, place = divmod(step - 1, BLOCK)
        silent = _silent(block)
        note = {"step": step, "block": block, "place": place, "silent": silent, "at": time.monotonic()}
        with open(folder / STEPS_FILE, "a") as file:
            file.write(json.dumps(note | {"cpu": time.process_time()}) + "\n")
        return collect(self, step, rows)

    Journal.write, Collector.collect = maybe_write, noting  # type: ignore[method-assign]
    return command.main(arguments)


def _silent(block: int) -> bool:
    """With, without, without, with: a drift of the machine cancels out."""
    return block % 4 in (1, 2)


class Viewer(threading.Thread):
    """A logged-in person's socket on the run, read as fast as it comes."""

    def __init__(self, site: Any, run: str) -> None:
        super().__init__(daemon=True)
        self.frames = self.bytes = 0
        self._site, self._run_id = site, run

    def run(self) -> None:
        """Log in with the one-time link and read until the socket closes."""
        import httpx
        from websockets.exceptions import ConnectionClosed
        from websockets.sync.client import connect

        base = f"http://127.0.0.1:{self._site.port}"
        with httpx.Client(base_url=base, follow_redirects=True) as client:
            page = client.get(self._site.link).text
            token = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', page)
            assert token is not None  # the login page is a form
            client.post(self._site.link, data={"csrfmiddlewaretoken": token[1]}, headers={"Origin": base})
            cookies = "; ".join(f"{name}={value}" for name, value in client.cookies.items())
        address = f"{base.replace('http', 'ws', 1)}/ws/runs/{self._run_id}/?v=1"
        socket = connect(address, additional_headers={"Cookie": cookies}, origin=base)  # type: ignore[arg-type]
        with contextlib.suppress(OSError, ConnectionClosed), socket:
            for frame in socket:
                self.frames += 1
                self.bytes += len(frame)


def cpu_by_process(pid: int) -> dict[str, float]:
    """CPU seconds so far of the site's processes, summed by what they are."""
    import psutil

    names = {
        "postgres": "postgres",
        "redis": "redis",
        "uvicorn webapp": "web",
        "celery": "worker",
        "envs.tools": "tools",
    }
    used: dict[str, float] = defaultdict(float)
    for process in psutil.Process(pid).children(recursive=True):
        with contextlib.suppress(psutil.Error):
            line, times = " ".join(process.cmdline()), process.cpu_times()
            kind = next((name for part, name in names.items() if part in line and "--as-trainer" not in line), None)
            if kind:
                used[kind] += times.user + times.system
    return used


def measure(steps: int) -> dict[str, Any]:
    """Play the run on a site of its own."""
    from benchmarks.site import Site

    site = Site(demo=True)
    site.env["DJANGO_SETTINGS_MODULE"] = "benchmarks.overhead_settings"
    with site:
        wait_for(site, "warm-up")
        run = site.shell(LAUNCH.format(steps=steps))
        viewer = Viewer(site, run)
        viewer.start()
        before, began = cpu_by_process(site._process.pid), time.monotonic()
        wait_for(site, "overhead")
        seconds = time.monotonic() - began
        after = cpu_by_process(site._process.pid)
        found = next(path for path in site.data.rglob(STEPS_FILE) if run in str(path))
        notes = [json.loads(line) for line in found.read_text().splitlines()]
    spoken = sum(not note["silent"] for note in notes)
    cpu = {name: round(1000 * (after[name] - before.get(name, 0.0)) / spoken, 1) for name in sorted(after)}
    return {
        "benchmark": "overhead",
        "cores": os.cpu_count(),
        "steps": len(notes),
        "seconds": round(seconds),
        **compare(notes),
        "viewer": {"frames": viewer.frames, "megabytes": round(viewer.bytes / 1e6, 1)},
        "cpu_ms_per_spoken_step": cpu,
    }


def wait_for(site: Any, name: str) -> None:
    """Until the run has succeeded."""
    deadline = time.monotonic() + RUN_LIMIT_S
    while time.monotonic() < deadline:
        state = site.shell(STATE.format(name=name))
        if state.startswith("succeeded"):
            return
        if state.startswith(("failed", "cancelled")):
            raise RuntimeError(state)
        time.sleep(5)
    raise RuntimeError(f"{name} did not end within {RUN_LIMIT_S} s")


def compare(notes: list[dict[str, Any]]) -> dict[str, Any]:
    """Step seconds and trainer CPU with and without, and the ratio of neighbouring blocks."""
    seconds: dict[int, list[float]] = defaultdict(list)
    cpu: dict[bool, list[float]] = defaultdict(list)
    for note, following in itertools.pairwise(notes):
        if note["place"] and note["block"]:  # the first block warms caches
            seconds[note["block"]].append(following["at"] - note["at"])
            cpu[note["silent"]].append(following["cpu"] - note["cpu"])
    means = {block: statistics.fmean(values) for block, values in seconds.items() if len(values) == BLOCK - 1}
    # Neighbours are blocks 2|3, 4|5, 6|7 …: one of each pair is silent.
    pairs = [sorted((b, b + 1), key=_silent) for b in range(2, max(means), 2) if b in means and b + 1 in means]
    ratios = [means[spoken] / means[silent] for spoken, silent in pairs]
    draws = random.Random(0)
    resampled = [statistics.median(draws.choices(ratios, k=len(ratios))) for _ in range(2000)]
    return {
        "with_s": round(statistics.median(s for b, v in seconds.items() if not _silent(b) for s in v), 3),
        "without_s": round(statistics.median(s for b, v in seconds.items() if _silent(b) for s in v), 3),
        "cost": round(statistics.median(ratios) - 1, 4),
        "cost_standard_error": round(statistics.stdev(resampled), 4),
        "pairs": len(ratios),
        "target": 0.03,
        "trainer_cpu_ms": {
            "with": round(1000 * statistics.median(cpu[False])),
            "without": round(1000 * statistics.median(cpu[True])),
        },
    }


def main() -> int:
    """Measure and print, or be the trainer of the measurement."""
    if "--as-trainer" in sys.argv:
        return as_trainer([argument for argument in sys.argv[1:] if argument != "--as-trainer"])
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=560, help="steps of the run (default 560)")
    print(json.dumps(measure(parser.parse_args().steps)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
