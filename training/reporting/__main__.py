"""``python -m training.reporting``: reports one run to one tracker. The trainer starts it."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from training.config import TRACKERS, config_load
from training.reporting.telling import Assignment, report_run
from training.reporting.trackers import Identity, shown_options


def main() -> int:
    """Run until the run is over, and end without the packages' own last acts, which may wait for a network."""
    parser = argparse.ArgumentParser(prog="python -m training.reporting", description="Tell a tracker about a run.")
    parser.add_argument("tracker", choices=list(TRACKERS))
    parser.add_argument("config", type=Path)
    parser.add_argument("run_dir", type=Path)
    parser.add_argument("--attempt", type=int, required=True)
    parser.add_argument("--run-id", required=True)
    parser.add_argument("--earlier", type=Path, action="append", default=[])
    options = parser.parse_args()
    config = config_load(options.config)
    identity = Identity(
        run=options.run_id,
        name=config.report.name or options.run_dir.resolve().name,
        project=config.report.project or "tiltyard",
        tags=config.report.tags,
        options=shown_options(config),
        folder=(*options.earlier, options.run_dir)[0],
        from_step=0,
        attempt=options.attempt,
    )
    return report_run(Assignment(options.tracker, options.run_dir, options.earlier, identity))


if __name__ == "__main__":
    os._exit(main())
