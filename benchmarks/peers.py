"""A run of a million metric points in other trackers' pages: ``python benchmarks/peers.py PYTHON [--folder F]``.

``PYTHON`` is of a virtual environment with ``tensorboard``, ``mlflow`` and ``trackio`` (and nothing of ours). 40
metrics of 25,000 steps, as in ``benchmarks/points.py``, are written by each tracker's own writer; then its server is
started, and its page of the run is opened in Chromium, until every chart that can be seen has a line. Prints JSON.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.points import SETTLE_S
from webapp.common.host import free_port

OPENINGS, START_LIMIT_S = 10, 180
POINTS = """
import math, random
NAMES = ["reward", "success", "kl", "loss"] + [f"figure/{number}" for number in range(36)]
def value(step): return 0.5 + 0.3 * math.sin(step / 4000) + 0.2 * random.random()
"""
TENSORBOARD = """
from tensorboard.summary import Writer
writer = Writer(FOLDER)
for step in range(1, 25001):
    for name in NAMES: writer.add_scalar(name, value(step), step)
writer.close()
"""
MLFLOW = """
from mlflow import MlflowClient
from mlflow.entities import Metric
client = MlflowClient(f"sqlite:///{FOLDER}/mlflow.db")
run = client.create_run("0").info.run_id
for first in range(1, 25001, 25):
    rows = [Metric(name, value(step), step, step) for step in range(first, first + 25) for name in NAMES]
    client.log_batch(run, metrics=rows)
print(run)
"""
TRACKIO = """
import os
os.environ["TRACKIO_DIR"] = FOLDER
from trackio.sqlite_storage import SQLiteStorage
for first in range(1, 25001, 500):
    steps = list(range(first, first + 500))
    SQLiteStorage.bulk_log("points", "million", [{name: value(step) for name in NAMES} for step in steps], steps)
"""
TRACKIO_SHOWN = """
import os
os.environ["TRACKIO_DIR"] = "{folder}"
import trackio
trackio.show(project="points", open_browser=False, block_thread=True, server_port={port})
"""
DRAWN = {
    "tensorboard": """() => {
        const deep = (root, what) => [...root.querySelectorAll("*")].flatMap((node) =>
            [...(node.matches(what) ? [node] : []), ...(node.shadowRoot ? deep(node.shadowRoot, what) : [])]);
        const cards = deep(document, "tf-scalar-card").filter((card) => {
            const box = card.getBoundingClientRect();
            return box.height > 0 && box.top < innerHeight;
        });
        const drawn = (line) => line.getAttribute("d")?.length > 999;
        return cards.length > 0 && cards.every((card) => deep(card.shadowRoot ?? card, "path.line").some(drawn));
    }""",
    "mlflow": """() => {
        const charts = [...document.querySelectorAll(".js-plotly-plot")].filter(
            (chart) => chart.getBoundingClientRect().top < innerHeight);
        return charts.length > 0 && charts.every((chart) => chart.querySelector(".trace path, .js-line"));
    }""",
    # Four are in view; each has its canvas once it is drawn.
    "trackio": """() => {
        const charts = [...document.querySelectorAll(".vega-embed")].filter(
            (chart) => chart.getBoundingClientRect().top < innerHeight);
        return charts.length >= 4 && charts.every((chart) => chart.querySelector("canvas.marks")?.width > 0);
    }""",
}


class Peer(NamedTuple):
    """How a tracker writes the points and is served, and where the run's page is; ``{run}`` is what writing printed."""

    write: str
    argv: list[str]
    path: str


PEERS = {
    "tensorboard": Peer(
        TENSORBOARD, ["-m", "tensorboard.main", "--logdir", "{folder}", "--port", "{port}"], "/#scalars"
    ),
    "mlflow": Peer(
        MLFLOW,
        ["-m", "mlflow", "server", "--backend-store-uri", "sqlite:///{folder}/mlflow.db", "--port", "{port}"],
        "/#/experiments/0/runs/{run}/model-metrics",
    ),
    "trackio": Peer(TRACKIO, ["-c", TRACKIO_SHOWN], "/?project=points"),
}


def written(python: str, peer: Peer, folder: Path) -> tuple[str, float]:
    """Write the points unless they are there; what the writer printed, and its seconds."""
    record = folder / "written.json"
    if not record.exists():
        folder.mkdir(parents=True, exist_ok=True)
        began = time.monotonic()
        code = f"FOLDER = {str(folder)!r}\n{POINTS}{peer.write}"
        printed = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.split()
        record.write_text(json.dumps([printed[-1] if printed else "", time.monotonic() - began]), encoding="utf-8")
    run, seconds = json.loads(record.read_text(encoding="utf-8"))
    return run, seconds


@contextmanager
def served(python: str, peer: Peer, folder: Path) -> Iterator[str]:
    """The tracker's server, once it answers."""
    port = free_port()
    argv = [word.format(folder=folder, port=port) for word in peer.argv]
    with (folder / "log").open("wb") as log:
        child = subprocess.Popen([python, *argv], stdout=log, stderr=subprocess.STDOUT, cwd=folder)
    try:
        until = time.monotonic() + START_LIMIT_S
        while True:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=5).close()
                break
            except OSError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.5)
        yield f"http://127.0.0.1:{port}"
    finally:
        child.terminate()
        child.wait(30)


def opened(context: Any, url: str, drawn: str) -> float:
    """Seconds until every chart that can be seen has a line."""
    page = context.new_page()
    page.wait_for_timeout(1_000 * SETTLE_S)
    began = time.monotonic()
    page.goto(url, wait_until="commit")
    page.wait_for_function(drawn, timeout=180_000, polling="raf")
    took = time.monotonic() - began
    page.close()
    return took


def measure(name: str, python: str, folder: Path, chromium: Any) -> dict[str, Any]:
    """One tracker, in settled tabs of a profile on disk, as ours is measured."""
    peer = PEERS[name]
    run, wrote = written(python, peer, folder)
    with served(python, peer, folder) as origin:
        context = chromium.launch_persistent_context(
            folder / "profile",
            executable_path=shutil.which("chromium"),
            args=["--no-sandbox"],
            viewport={"width": 1360, "height": 900},
        )
        url = origin + peer.path.format(run=run)
        first = opened(context, url, DRAWN[name])
        found = sorted(opened(context, url, DRAWN[name]) for _number in range(OPENINGS))
        context.close()
    return {
        "write_s": round(wrote, 1),
        "first_opening_s": round(first, 3),
        "usable_median_s": round(median(found), 3),
        "usable_worst_s": round(found[-1], 3),
    }


def main() -> int:
    """Print the figures."""
    from playwright.sync_api import sync_playwright

    parser = argparse.ArgumentParser(description=(__doc__ or "").partition(":")[0])
    parser.add_argument("python", help="of a virtual environment that has the trackers")
    parser.add_argument("--folder", type=Path, help="where the points are kept for the next time")
    parser.add_argument("--names", nargs="+", default=list(PEERS), choices=list(PEERS))
    options = parser.parse_args()
    folder = options.folder or Path(tempfile.mkdtemp(prefix="tiltyard-peers-"))
    with sync_playwright() as playwright:
        chromium = playwright.chromium
        print(json.dumps({name: measure(name, options.python, folder / name, chromium) for name in options.names}))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
