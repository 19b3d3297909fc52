"""Run the benchmarks by name, or all: ``python -m benchmarks [demo overhead rollouts learning envs data lab …]``."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

HERE = Path(__file__).parent
NAMES = (
    "demo",
    "start",
    "overhead",
    "rollouts",
    "learning",
    "envs",
    "catalogue",
    "data",
    "lab",
    "tries",
    "tabs",
    "points",
    "comparison",
    "intervals",
    "evaluation",
    "chat",
    "truth",
    "sampler",
    "values",
    "step",
    "padding",
    "credit",
    "drawing",
    "handover",
    "overlap",
    "tokens",
    "rewind",
    "exchange",
    "loop",
    "ingest",
    "pages",
    "run_page",
    "waiting",
)
# Up to an hour and a half, or 12 GB of disk: only by name.
LONG = ("chaos", "database", "demos", "depth", "indexes", "memory", "soak", "verl_learning")
LIMIT_S, LONG_LIMIT_S = 1800, 4 * 3600


def machine() -> dict[str, object]:
    """Size of this machine and what was measured on it."""
    argv = ["git", "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(argv, cwd=HERE, capture_output=True, text=True).stdout
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "commit": commit.strip(),
        "cores": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "python": platform.python_version(),
    }


def main(names: list[str]) -> int:
    """Print one JSON object for each benchmark; exit 1 if one failed."""
    failed = False
    print(json.dumps({"machine": machine()}), flush=True)
    for name in names or NAMES:
        if name not in NAMES + LONG:
            print(f"There is no benchmark {name!r}; there are: {', '.join(NAMES + LONG)}.", file=sys.stderr)
            return 2
        argv = [sys.executable, "-m", f"benchmarks.{name}"]
        limit = LONG_LIMIT_S if name in LONG else LIMIT_S
        done = subprocess.run(argv, capture_output=True, text=True, timeout=limit, cwd=HERE.parent)
        failed = failed or done.returncode != 0
        if done.returncode:
            print(done.stderr[-2000:], file=sys.stderr)
        print(done.stdout, end="", flush=True)
    return int(failed)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
