"""The run doctor on runs that others made up: the simulated runs of two packages, installed by name for this.

Five seeds of each of their 25 faults, and healthy runs of 60 to 1,000 steps. Prints one JSON object.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.training.doctor.others import PACKAGES, counted, installed, looked_at, written

SEEDS, LENGTHS = 5, [60, 120, 200, 400, 1000]


def main() -> int:
    """Print the figures."""
    with tempfile.TemporaryDirectory() as root:
        runs = Path(root, "runs")
        runs.mkdir()
        files = written(installed(Path(root, "venv")), runs, SEEDS, LENGTHS)
        began = time.process_time()
        seen = list(looked_at(files))
    figures = {"benchmark": "doctor_others", "packages": PACKAGES, **counted(seen)}
    print(json.dumps(figures | {"cpu_s": round(time.process_time() - began, 1)}))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
