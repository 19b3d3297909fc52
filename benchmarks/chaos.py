"""Random kills and outages over real GRPO runs with default settings: ``python benchmarks/chaos.py [--faults N]``.

The site is that of ``manage.py up``, with everything on one small disk (tmpfs, which needs root; without it no disk is
filled) and two training workers. kill -9 of trainers, of workers, of the web server, of the clockwork, of the keeper
and of the environment's server, a PostgreSQL and a Redis that hang and die, a full disk, and locks of 60 s on the table
of runs. The runs are the demo's (starter model, tools environment, 8 × 8 rollouts a step). Which fault comes when is
drawn with a fixed seed. A line for each goes to stderr, the figures are printed as JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

DISK_MB = 2048


def set_up(folder: Path) -> bool:
    """A data folder on a disk of its own, and Django with the product's settings; whether the disk could be made."""
    data = folder / "data"
    data.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={DISK_MB}m,mode=0700", "tmpfs", str(data)], capture_output=True
    )
    os.environ |= {"TILTYARD_DATA_DIR": str(data), "DJANGO_SETTINGS_MODULE": "webapp.settings"}
    # The site names its own once it is there.
    services = {"DATABASE_URL": "postgresql://postgres@127.0.0.1:1/none", "REDIS_URL": "redis://127.0.0.1:1/0"}
    os.environ |= services
    import django

    django.setup()
    for name in services:
        del os.environ[name]
    return made.returncode == 0


def storm(folder: Path, faults: int, minutes: float, seed: int, steps: int) -> dict[str, Any]:
    """One storm; its figures."""
    disk = set_up(folder)
    from tests.chaos import storm as parts
    from tests.webapp.ops.test_up import Upped
    from webapp.common.host import free_port
    from webapp.engine import history
    from webapp.runs.nudge import Nudger

    # The site's own outbox sends the nudges: this process knows another broker.
    history._send_message, Nudger.put = lambda row: False, lambda *_: None  # type: ignore[assignment,method-assign]
    if not disk:
        print("no disk of its own could be mounted: no disk is filled", file=sys.stderr)
        del parts.SHARES["disk"]
    os.environ["CUDA_VISIBLE_DEVICES"] = parts.DEVICES
    site = Upped(folder / "data", free_port())
    blown = parts.Storm(site, seed, steps, lambda line: print(line, file=sys.stderr, flush=True))
    try:
        blown.open()
        blown.blow(faults, minutes)
        return {"seed": seed, **blown.report()}
    finally:
        if site.process.poll() is None:
            site.stop()
        if disk:
            subprocess.run(["umount", "--lazy", str(folder / "data")], check=False)


def main() -> int:
    """Print the figures; 1 if a run did not end well, the database is not the journal, or a page did not come."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--faults", type=int, default=100)
    parser.add_argument("--minutes", type=float, default=60, help="no new fault after so long (default 60)")
    parser.add_argument("--seed", type=int, default=9)
    parser.add_argument("--steps", type=int, default=30, help="steps of each run (default 30)")
    parser.add_argument("--folder", type=Path, help="keep logs here, in place of a temporary folder")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tiltyard-storm-", ignore_cleanup_errors=True) as temporary:
        folder = options.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o711)
        figures = storm(folder, options.faults, options.minutes, options.seed, options.steps)
    print(json.dumps({"chaos": figures}))
    pages = set(figures["pages"]) <= {200, 503}
    return int(bool(figures["not_succeeded"]) or not figures["database_is_journal"] or not pages)


if __name__ == "__main__":
    raise SystemExit(main())
