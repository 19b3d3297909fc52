"""A large WebShop catalogue: ``python benchmarks/catalogue.py [--products 200000]``.

The catalogue is generated into files in WebShop's own format, then served from them by a server process on one core.
Prints JSON: seconds until the server answers, its peak memory, and the latencies of searches over the websocket.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from websockets.asyncio.client import connect

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.environment import environment_server  # noqa: E402

SEARCHES = 500
TARGETS = {"load_s": 60, "memory_gib": 2.0, "search_p95_ms": 50}


async def _searches(url: str) -> list[float]:
    """Seconds of searches for what the instructions want, one after another."""
    waits: list[float] = []
    async with connect(f"{url.replace('http', 'ws', 1)}/ws", compression=None, max_size=None) as websocket:
        for number in range(SEARCHES):
            await websocket.send(json.dumps({"type": "reset", "data": {"task": {"session_id": number * 7}}}))
            page = str(await websocket.recv())
            wanted = re.sub(r"[^a-zA-Z ]", " ", page.partition("Instruction: [SEP] ")[2][:200])
            began = time.perf_counter()
            await websocket.send(json.dumps({"type": "step", "data": {"message": f"search[{wanted}]"}}))
            answer = str(await websocket.recv())
            waits.append(time.perf_counter() - began)
            if "Total results" not in answer:
                raise RuntimeError(f"the search answered {answer[:200]!r}")
    return waits


def _peak_gib(pid: int) -> float:
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(found[1]) / 2**20 if found else float("nan")


def measure(products: int) -> dict[str, Any]:
    """Write the files, serve them, search."""
    with tempfile.TemporaryDirectory() as folder:
        words = [sys.executable, "-m", "envs.webshop", "generate", "--products", str(products), "--output", folder]
        subprocess.run(words, cwd=ROOT, check=True)
        began = time.perf_counter()
        with environment_server("webshop", "--data", folder) as server:
            load_s = time.perf_counter() - began
            waits = asyncio.run(_searches(server.url))
            peak_gib = _peak_gib(server.pid)
    cuts = statistics.quantiles(waits, n=100)
    return {
        "benchmark": "webshop.catalogue",
        "products": products,
        "load_s": round(load_s, 1),
        "memory_gib": round(peak_gib, 2),
        "searches": len(waits),
        "search_p50_ms": round(cuts[49] * 1000, 2),
        "search_p95_ms": round(cuts[94] * 1000, 2),
        "targets": TARGETS,
    }


def main() -> int:
    """Measure one size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--products", type=int, default=200_000)
    print(json.dumps(measure(parser.parse_args().products)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
