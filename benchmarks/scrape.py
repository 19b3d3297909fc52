"""What ``/metrics`` costs with 10,000 runs in the database: ``python benchmarks/scrape.py``.

Starts a PostgreSQL and a Redis of its own, writes the runs (50 of them at work with a journal each, 50 queued),
workers and environments, asks ``--asked`` times, and prints JSON: ``busy_ms``, the median of the processor time of
Python and PostgreSQL together, which other work on the machine disturbs little, next to its limit; median and 95th
percentile on the clock; queries, bytes, samples; and the median of each collector on the clock. ``standard_ms`` is the
standard work of ``tests/growth.py``, 5 ms on the machine of reference. ``--runs N`` makes another number of runs.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.kept import kept_services  # noqa: E402

LIMIT_MS = 20
STATE = """CASE WHEN i % 200 = 4 THEN 'running' WHEN i % 200 = 5 THEN 'queued' WHEN i % 200 = 6 THEN 'paused'
    WHEN i % 10 = 7 THEN 'failed' WHEN i % 20 = 8 THEN 'cancelled' ELSE 'succeeded' END"""


def fill(runs: int) -> None:
    """Write the rows and the journals."""
    from django.db import connection
    from django.utils import timezone

    from benchmarks.database_rows import execute, insert
    from training.config import JobConfig
    from training.journal import JOURNAL_NAME
    from webapp.common.storage import attempt_dir
    from webapp.common.workers.models import Worker
    from webapp.engine.models import Outbox, ReaperMark
    from webapp.environments.models import Environment, Replica
    from webapp.people.teams.models import Project, Team
    from webapp.runs.models import Attempt, Run

    project = Project.objects.create(team=Team.objects.create(name="Team"), name="Project", slug="project")
    config = connection.ops.adapt_json_value(JobConfig().model_dump(mode="json"), None)
    execute("CREATE TABLE bench_config AS SELECT %s::jsonb AS config", [config])
    insert(
        Run, f"FROM generate_series(1, {runs}) AS i, bench_config", id="gen_random_uuid()",
        project_id=f"'{project.pk}'::uuid", name="'run-' || i", config="config", resolved="config", state=STATE,
        attempt="1", lease_worker="'train-' || i % 16 || '@host'", lease_beat_at="now()", queued_at="now()",
    )  # fmt: skip
    now = timezone.now()
    for run in Run.objects.filter(state="running"):
        Attempt.objects.create(run=run, number=1, owner="w", started_at=now, journal_offset=1_000)
        Outbox.objects.create(run=run)
        folder = attempt_dir(run.pk, 1)
        folder.mkdir(parents=True)
        (folder / JOURNAL_NAME).write_bytes(b"x" * 2_000)
    Worker.objects.bulk_create(
        Worker(name=f"train-{n}@host", queues=["train"], device="GPU 0", gpu="A GPU", started_at=now, beat_at=now)
        for n in range(16)
    )
    ReaperMark.objects.create(pk=1, ran_at=now)
    for n in range(60):
        place = Environment.objects.create(project=project, name=f"environment-{n}", url="http://127.0.0.1:1")
        health = {"sessions": 3, "slots": 128}
        Replica.objects.create(environment=place, number=1, state="healthy", health=health, checked_at=now)
    execute("VACUUM ANALYZE")


def measure(asked: int) -> dict[str, Any]:
    """Ask through the whole of Django, then each collector by itself."""
    from django.conf import settings
    from django.db import connection
    from django.test import Client
    from django.test.utils import CaptureQueriesContext

    from benchmarks.database import backend_clock
    from benchmarks.pages import _standard
    from webapp.site.monitoring.views import COLLECTORS

    settings.ALLOWED_HOSTS = ["testserver"]
    client = Client()
    with CaptureQueriesContext(connection) as caught:
        answer = client.get("/metrics")
    queries, text = len(caught), answer.content.decode()
    if answer.status_code != 200 or re.search(r"^tiltyard_scrape_errors.* 1", text, re.M):
        raise RuntimeError(text)
    whole, python, postgres = [], [], []
    backend = backend_clock()
    for _ in range(asked):
        began, database = time.process_time(), backend()
        whole += _times(lambda: client.get("/metrics"), 1)
        python.append((time.process_time() - began) * 1000)
        postgres.append((backend() - database) * 1000)
    parts = {name: statistics.median(_times(lambda: list(each.read()), asked)) for name, each in COLLECTORS.items()}  # noqa: B023
    busy = statistics.median(map(sum, zip(python, postgres, strict=True)))
    return {
        "busy_ms": round(busy, 1),
        "limit_ms": LIMIT_MS,
        "within": busy <= LIMIT_MS,
        "clock_median_ms": round(statistics.median(whole), 1),
        "clock_p95_ms": round(statistics.quantiles(whole, n=20)[-1], 1),
        "python_ms": round(statistics.median(python), 1),
        "postgres_ms": round(statistics.median(postgres), 1),
        "standard_ms": _standard(),
        "queries": queries,
        "bytes": len(text),
        "samples": sum(not line.startswith("#") for line in text.splitlines()),
        "collectors_ms": {name: round(each, 2) for name, each in parts.items()},
    }


def _times(action: Any, asked: int) -> list[float]:
    """Milliseconds of each."""
    found = []
    for _ in range(asked):
        began = time.perf_counter()
        action()
        found.append((time.perf_counter() - began) * 1000)
    return found


def main() -> None:
    """Fill, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--asked", type=int, default=200)
    options = parser.parse_args()
    with kept_services(None):
        import django
        from django.core.management import call_command

        django.setup()
        call_command("migrate", verbosity=0)
        fill(options.runs)
        print(json.dumps({"runs": options.runs, **measure(options.asked)}, indent=2))


if __name__ == "__main__":
    main()
