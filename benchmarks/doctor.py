"""The run doctor's detectors: steps from the begin of a planted fault to its advisory, and advisories on healthy runs.

Each fault of the tests is planted into made-up runs of other seeds than the tests take; healthy are made-up runs, and
the recorded ones of ours. Prints one JSON object.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.training.doctor.planted import BEGIN, FAULTS, OTHER_WAYS, healthy, planted
from tests.training.doctor.test_detectors import recorded, seen, taken

SEEDS, HEALTHY = range(100, 120), range(1000, 1200)


def main() -> int:
    """Print the figures."""
    began = time.process_time()
    cases = [*FAULTS.items(), *((code, fault) for code, faults in OTHER_WAYS.items() for fault in faults)]
    delays: dict[str, list[int]] = {}
    missed, early, steps = [], [], 0
    for code, fault in cases:
        for seed in SEEDS:
            found = [one.first for one in seen(planted(fault, seed)) if one.code == code]
            if not found:
                missed.append([code, seed])
            elif found[0] < BEGIN:
                early.append([code, seed])
            else:
                delays.setdefault(code, []).append(found[0] - BEGIN + 1)
    false = [seed for seed in HEALTHY if seen(healthy(seed))]
    runs = recorded("healthy.json")
    recorded_false = [name for name, digests in runs.items() if taken(digests)]
    steps = 60 * (len(cases) * len(SEEDS) + len(HEALTHY)) + sum(map(len, runs.values()))
    print(
        json.dumps(
            {
                "benchmark": "doctor",
                "cores": os.cpu_count(),
                "detectors": len(FAULTS),
                "faults": len(cases),
                "planted": len(cases) * len(SEEDS),
                "missed": missed,
                "before_the_fault": early,
                "steps_to_advisory_at_most": dict(sorted((code, max(found)) for code, found in delays.items())),
                "healthy_made_up": len(HEALTHY),
                "false_made_up": false,
                "healthy_recorded": len(runs),
                "false_recorded": recorded_false,
                "cpu_ms_a_step": round(1000 * (time.process_time() - began) / steps, 3),
            }
        )
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
